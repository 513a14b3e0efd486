// SPDX-License-Identifier: Apache-2.0
#include "host/engines/tiles.hpp"

#include <algorithm>

#include "host/engines/shares.hpp"

namespace tessera::engines {
namespace {

/// Groups that a compute unit runs at once: what its local memory and registers have room for, up
/// to what the machine allows. Of an unknown machine 8 at most, as with 64 Ki registers.
std::int64_t resident_groups(const opencl::DeviceFacts& facts, std::int64_t local_bytes,
                             std::int64_t registers, std::int64_t most) {
  const std::int64_t local = std::max(facts.unit_local_bytes, facts.local_memory_bytes);
  std::int64_t groups = std::min(local / local_bytes, most);
  if (facts.unit_registers > 0) groups = std::min(groups, facts.unit_registers / registers);
  return std::max<std::int64_t>(groups, 1);
}

/// Groups of 64 work-items of a unit, at most.
std::int64_t most_groups(const opencl::DeviceFacts& facts) {
  return facts.unit_groups > 0 ? std::min<std::int64_t>(facts.unit_groups, 1024) : 8;
}

/// Of groups that pass over rows. A work-item has some 64 registers there and 8 bytes of local
/// memory; what is no GPU runs a group on each of its cores.
std::int64_t resident_row_groups(const opencl::DeviceFacts& facts, std::int64_t items) {
  if (!facts.is_gpu) return 1;
  return resident_groups(facts, 8 * items, 64 * items, most_groups(facts) * 64 / items);
}

}  // namespace

TileEngine::TileEngine(const opencl::DeviceFacts& facts, const TileShape& tile)
    : tile_(tile),
      compute_units_(units_of(facts)),
      resident_(resident_groups(facts, tile.local_bytes, tile.registers, most_groups(facts))),
      row_slots_(compute_units_ * resident_row_groups(facts, tile.row_items)),
      cached_words_(std::max(facts.is_gpu ? facts.cache_bytes / 8 : 0, Engine::cached_words())),
      unit_flops_(1e9 * static_cast<double>(facts.unit_gflops > 0 ? facts.unit_gflops : 300)),
      memory_bytes_(1e9 * static_cast<double>(facts.memory_gbs)),
      is_gpu_(facts.is_gpu) {}

Blocks TileEngine::heuristic(const Product& p) const {
  const std::int64_t tile = tile_.tile_m;
  // A launch more of a GPU reads A once more, and ends in a wave that is not full.
  const std::int64_t columns =
      std::clamp<std::int64_t>(round_up(p.n, tile_.tile_n), tile_.tile_n, is_gpu_ ? 8192 : 1024);
  // Panels of columns times parts of A are the work-groups. Whole rounds of what runs at once leave
  // none waiting; eight groups or more for each compute unit hide its latencies, and parts no
  // shorter than a tile keep what is stored of each few. More than 1024 columns are more rounds of
  // as short parts: longer ones took an H100 1.4 times as long.
  const std::int64_t panels =
      std::max<std::int64_t>(1, std::min<std::int64_t>(columns, 1024) / tile_.tile_n);
  const std::int64_t rounds =
      std::max(ceil_div(8, resident_), ceil_div(ceil_div(p.m, 2048) * panels, slots()));
  const std::int64_t parts = std::max<std::int64_t>(1, rounds * slots() / panels);
  const std::int64_t m = std::max<std::int64_t>(p.m, 1);
  // Whole tiles may have left rounds that are not: shorter or longer parts then take less time.
  // Each part has statistics of every column, some 12 bytes, which are written and read.
  const Rates rate = rates(p);
  const double tile_flops = 2.0 * static_cast<double>(tile * tile_.tile_n * p.k);
  const auto seconds = [&](std::int64_t part) {
    const std::int64_t all = ceil_div(m, part);
    const double tiles =
        room_of(all * ceil_div(columns, tile_.tile_n), slots(), static_cast<double>(part / tile));
    return tiles * tile_flops / rate.flops + static_cast<double>(24 * all * columns) / rate.bytes;
  };
  const std::int64_t longest = std::min<std::int64_t>(round_up(m, tile), 2048);
  const auto is_left = [&](std::int64_t part) { return part <= longest; };
  return {.m = cheapest(std::max(round_up(ceil_div(m, parts), tile), tile), tile, tile, is_left,
                        seconds),
          .n = columns,
          .k = 512};
}

std::int64_t TileEngine::parts(std::int64_t m, const Cut& cut, std::int64_t) const {
  return std::clamp<std::int64_t>(ceil_div(m, cut.tile_m), 1, cut.most_parts);
}

/// A GPU with more slots than there are groups; a part of fewer than 256 is over too soon.
std::int64_t TileEngine::k_parts(const Cut&, std::int64_t groups, std::int64_t k) const {
  if (!is_gpu_) return 1;
  return std::max<std::int64_t>(1, std::min(slots() / groups, k / 256));
}

/// Kernels reach half of what data sheets promise (docs/performance.md, "On a GPU"). Of a device
/// that is not in the table 20 FLOPs take the time of a byte, which is in the middle of those that
/// are.
Rates TileEngine::rates(const Product&) const {
  const double flops = unit_flops_ * static_cast<double>(compute_units_);
  return {.flops = 0.5 * tile_.speed * flops,
          .bytes = memory_bytes_ > 0.0 ? memory_bytes_ : flops / 20,
          .launch = 20e-6,
          .cached_bytes = 4.0 * static_cast<double>(cached_words_),
          .worth_scratch = is_gpu_ ? 1.0 : 0.98};
}

}  // namespace tessera::engines
