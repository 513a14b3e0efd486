// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#ifdef TESSERA_OPENCL
#include "tests/support/test_engines.hpp"

namespace tessera::test {

bool add_test_engines() {
  const char* names = std::getenv("TESSERA_TEST_ENGINES");
  if (names == nullptr || *names == '\0') return true;
  for (const auto& kernel : opencl::embedded_test_kernels()) {
    opencl::override_embedded_kernel(std::string(kernel.path), std::string(kernel.text));
  }
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    bool found = false;
    for (auto& engine : test_engines()) {
      if (engine.name != name) continue;
      engines::add_engine(std::move(engine));
      found = true;
    }
    if (!found) {
      std::cerr << "TESSERA_TEST_ENGINES: there is no folder tests/engines/" << name << '\n';
      return false;
    }
  }
  return true;
}

}  // namespace tessera::test
#endif
