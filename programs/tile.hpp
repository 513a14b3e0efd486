// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "programs/cli.hpp"
#include "programs/report.hpp"
#include "tessera/linear_cross_entropy_tile.hpp"

namespace tessera::programs {

/// The command line of tessera-tile.
struct TileOptions {
  std::string chip = "v5p";
  std::string kernel = "linear_cross_entropy";
  Pass pass = Pass::forward;
  std::vector<std::int64_t> shape;  ///< B, H, V
  tile::ElementType x_type = tile::ElementType::f32;
  std::optional<tile::ElementType> w_type;
  bool w_is_vh = false;
  std::vector<std::int64_t> block_sizes;
  tile::F32Passes f32_passes = tile::F32Passes::one;
  std::optional<std::int64_t> vmem_limit_kib;
  std::string trace;  ///< file
  bool dry_run = false;
  bool sweep = false;
  bool json = false;
};

void add_tile_options(CLI::App& app, TileOptions& options);
/// Throws `Error invalid_argument` for options that do not go together.
void check_tile_options(const TileOptions& options);

/// The report of one run, `refused` empty; or, where the blocks are illegal, `refused` with every
/// rule and no figures. `trace` gets the timeline where one is asked for.
Json model_tile(const TileOptions& options, std::string& trace);
/// `candidates`: legal ones first, by modelled time; then the refused ones with their rules.
Json sweep_tile(const TileOptions& options);

/// The same for people.
std::string tile_text(const Json& report);
std::string sweep_text(const Json& sweep);

}  // namespace tessera::programs
