// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "bench/row.hpp"
#include "programs/cli.hpp"

namespace tessera::bench {

/// Those of which rows there are, and of how long each is measured.
void add_row_options(CLI::App& app, Options& options);
/// Those and all others of tessera-bench.
void add_options(CLI::App& app, Options& options);
/// Throws `Error invalid_argument` for values that do not go together.
void check_options(const Options& options);

/// Shapes from "512x2048x32768,Q8/S16/D64", or of a file whose lines are "[NAME] SHAPE".
std::vector<GivenShape> parse_shapes(const std::string& text);
/// The shapes of each kind of operator where none is asked for.
std::vector<GivenShape> default_shapes();

}  // namespace tessera::bench
