// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <cstdio>

#include "programs/cli.hpp"
#include "programs/dump.hpp"
#include "programs/info.hpp"
#include "programs/output_set.hpp"

int main(int argc, char** argv) {
  using namespace tessera::programs;
  CLI::App app(
      "Devices and drivers found here and, for a shape, which implementation would run, with which "
      "block sizes, and why each other one would not.",
      "tessera-info");
  InfoOptions options;
  add_info_options(app, options);
  return run_program(app, argc, argv, [&] {
    check_info_options(app, options);
    if (!options.dump.empty()) OutputSet(options.dump, "--dump");  // says whether it can be written
    const Json info = gather_info(options);
    if (!options.dump.empty()) summarise_dump(options.dump, "--dump");
    for (const auto& warning : info.at("warnings")) {
      fmt::print(stderr, "tessera-info: warning: {}\n", warning.get<std::string>());
    }
    fmt::print("{}", options.json ? dump(info) : info_text(info));
  });
}
