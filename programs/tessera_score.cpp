// SPDX-License-Identifier: Apache-2.0
#include <CLI/App.hpp>

#include "programs/cli.hpp"
#include "programs/score.hpp"
#include "programs/score_options.hpp"

int main(int argc, char** argv) {
  using namespace tessera::programs;
  CLI::App app(
      "The fused output projection, softmax cross-entropy and z-loss on dumped arrays: reads .npy, "
      "writes .npy and report.json.",
      "tessera-score");
  ScoreOptions options;
  add_score_options(app, options);
  return run_program(app, argc, argv, [&] {
    check_score_options(app, options);
    score(options);
  });
}
