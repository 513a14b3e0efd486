// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <optional>

#include "programs/cli.hpp"
#include "programs/output_set.hpp"
#include "programs/progress.hpp"
#include "programs/tile.hpp"

int main(int argc, char** argv) {
  using namespace tessera::programs;
  CLI::App app(
      "How long a kernel would take on a TPU with these block sizes and why, what a TPU would "
      "refuse, "
      "and which block sizes are best; no TPU is needed.",
      "tessera-tile");
  TileOptions options;
  add_tile_options(app, options);
  return run_program(app, argc, argv, [&] {
    check_tile_options(options);
    const Progress progress("tessera-tile",
                            "still modelling; the time grows with the number of blocks, so that "
                            "fewer tokens or words, or larger --block-sizes, take less");
    if (options.sweep) {
      const Json sweep = sweep_tile(options);
      fmt::print("{}", options.json ? dump(sweep) : sweep_text(sweep));
      return;
    }
    std::optional<OutputFile> file;
    if (!options.trace.empty()) file.emplace(options.trace, "--trace");
    std::string trace;
    const Json report = model_tile(options, trace);
    fmt::print("{}", options.json ? dump(report) : tile_text(report));
    if (const Json& refused = report.at("refused"); !refused.empty()) {
      std::string rules;
      for (const auto& one : refused) {
        rules += (rules.empty() ? "" : ", ") + one.at("rule").get<std::string>();
      }
      fail_call("block sizes are refused by " + rules + "; the reasons are above");
    }
    if (file) file->write(trace);
  });
}
