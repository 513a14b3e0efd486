// SPDX-License-Identifier: Apache-2.0
#include "tests/support/environment.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#ifdef TESSERA_OPENCL
#include "host/opencl/embedded_kernels.hpp"
#include "tests/support/test_engines.hpp"
#endif

namespace tessera::test {
namespace {

/// Every .cl file below TESSERA_TEST_KERNEL_DIR stands for the embedded one of the same path, so
/// that a planted bug needs no rebuild.
bool override_kernels() {
  const char* folder = std::getenv("TESSERA_TEST_KERNEL_DIR");
  if (folder == nullptr || *folder == '\0') return true;
#ifdef TESSERA_OPENCL
  namespace fs = std::filesystem;
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".cl" && entry.path().extension() != ".h") continue;
    std::ifstream stream(entry.path());
    const std::string text((std::istreambuf_iterator<char>(stream)), {});
    opencl::override_embedded_kernel(fs::relative(entry.path(), folder).generic_string(), text);
    ++files;
  }
  if (files > 0) return true;
  std::cerr << "TESSERA_TEST_KERNEL_DIR=" << folder << " holds no .cl file\n";
#else
  std::cerr << "TESSERA_TEST_KERNEL_DIR needs a build with OpenCL\n";
#endif
  return false;
}

}  // namespace

bool take_environment() {
  // Neither what whoever runs the tests has tuned, nor what the library knows of some devices.
  setenv("TESSERA_TUNED_FILE", "", 0);
  setenv("TESSERA_MEASURED_ROWS", "0", 0);
#ifdef TESSERA_OPENCL
  if (!add_test_engines()) return false;
#endif
  return override_kernels();
}

}  // namespace tessera::test
