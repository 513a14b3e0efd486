// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/engines/engine.hpp"

/// What the engines of GPUs share: a work-group computes one tile of C at a time through local
/// memory, all of k in one step, and needs no scratch. Groups are many: what runs at once follows
/// from the registers and local memory of a compute unit.
namespace tessera::engines {

/// What a group computes and takes.
struct TileShape {
  std::int64_t tile_m = 1, tile_n = 1;
  std::int64_t items = 1;        ///< work-items
  std::int64_t local_bytes = 0;  ///< of local memory
  std::int64_t registers = 0;    ///< of 32 bits, of all work-items
  double speed = 1.0;            ///< at best, in terms of the unit's f32 FLOPs
  std::int64_t row_items = 64;   ///< of a group that passes over rows
  std::int64_t row_lanes = 1;    ///< of each of those
};

class TileEngine : public Engine {
 public:
  TileEngine(const opencl::DeviceFacts& facts, const TileShape& tile);

  Blocks heuristic(const Product& product) const override;
  std::int64_t tile_n() const override { return tile_.tile_n; }
  /// A tile lives in local memory for one panel of columns only: all of k in one step.
  Cut cut(const Product&, std::int64_t) const override {
    return {.tile_m = tile_.tile_m, .k_step = all_of_k};
  }
  std::int64_t parts(std::int64_t m, const Cut& cut, std::int64_t) const override;
  std::int64_t groups(std::int64_t parts, std::int64_t) const override {
    return parts < 1 ? 1 : parts;
  }
  std::int64_t k_parts(const Cut&, std::int64_t groups, std::int64_t k) const override;
  std::int64_t panels_per_group(std::int64_t, std::int64_t) const override { return 1; }
  std::int64_t slots() const override { return compute_units_ * resident_; }
  std::int64_t strip() const override { return tile_.tile_m; }
  /// Half of the cache: operands are in it too.
  std::int64_t cached_words() const override { return cached_words_; }
  Rates rates(const Product&) const override;
  std::size_t group_size() const override { return static_cast<std::size_t>(tile_.items); }
  std::int64_t panel_items() const override { return tile_.tile_n; }
  RowPass row_pass() const override { return {tile_.row_items, tile_.row_lanes, 8192, row_slots_}; }

 private:
  TileShape tile_;
  std::int64_t compute_units_, resident_, row_slots_, cached_words_;
  double unit_flops_, memory_bytes_;
  bool is_gpu_;
};

}  // namespace tessera::engines
