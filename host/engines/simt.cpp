// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "host/engines/engine.hpp"

namespace tessera::engines {
namespace {

/// A square tile of C, by work-items that each sum `item` x `item` elements of it in registers,
/// from panels of A and B `depth` deep.
struct Shape {
  std::int64_t tile, item, depth;
  std::int64_t items() const { return (tile / item) * (tile / item); }
  std::int64_t local_bytes() const { return 4 * (tile * tile + depth * (tile + 1) + depth * tile); }
  /// Of a group: each work-item has its sums, a row and a column of operands, and 32 for the rest.
  std::int64_t registers() const { return items() * (item * item + 2 * item + 32); }
  /// Nothing: the device can run it.
  std::optional<std::string> why_unsupported(const opencl::DeviceFacts& facts) const {
    if (facts.local_memory_bytes < local_bytes()) {
      return fmt::format("it needs {} bytes of local memory, the device has {}", local_bytes(),
                         facts.local_memory_bytes);
    }
    if (facts.max_work_group_size < items()) {
      return fmt::format("it needs work-groups of {}, the device allows {}", items(),
                         facts.max_work_group_size);
    }
    return std::nullopt;
  }
};

/// 64 work-items, 16 KiB + 2 * 4.25 KiB of local memory: legal on every OpenCL 1.2 device (32 KiB),
/// and enough reuse to be bound by arithmetic.
constexpr Shape best = {64, 8, 16};

/// Groups that a compute unit runs at once: what its local memory and registers have room for, up
/// to what the machine allows. Of an unknown machine 8 at most, as with 64 Ki registers.
std::int64_t resident_groups(const opencl::DeviceFacts& facts, const Shape& shape) {
  const std::int64_t local = std::max(facts.unit_local_bytes, facts.local_memory_bytes);
  std::int64_t groups = std::min(local / shape.local_bytes(),
                                 facts.unit_groups > 0 ? facts.unit_groups : std::int64_t{8});
  if (facts.unit_registers > 0) groups = std::min(groups, facts.unit_registers / shape.registers());
  return std::max<std::int64_t>(groups, 1);
}

class SimtEngine final : public Engine {
 public:
  SimtEngine(const opencl::DeviceFacts& facts, const Shape& shape)
      : shape_(shape),
        compute_units_(std::max<std::int64_t>(facts.compute_units, 1)),
        resident_(resident_groups(facts, shape)),
        cached_words_(std::max(facts.is_gpu ? facts.cache_bytes / 8 : 0, Engine::cached_words())),
        is_gpu_(facts.is_gpu) {}

  std::string name() const override { return "simt"; }
  std::string options() const override {
    return fmt::format(
        "-DLANES=1 -DTILE_M={0} -DTILE_N={0} -DITEM_M={1} -DITEM_N={1} "
        "-DSIMT_DEPTH={2} -DPACK_STEP=1",
        shape_.tile, shape_.item, shape_.depth);
  }
  std::vector<NamedValue> knobs() const override {
    return {{"tile", shape_.tile}, {"item", shape_.item}, {"depth", shape_.depth}};
  }
  BlockRule rule() const override { return {shape_.tile, shape_.tile, shape_.depth}; }

  Blocks heuristic(const Product& p) const override {
    const std::int64_t tile = shape_.tile;
    const std::int64_t columns = std::clamp<std::int64_t>(round_up(p.n, tile), tile, 1024);
    // Panels of columns times parts of A are the work-groups. Whole rounds of what runs at once
    // leave none waiting; eight groups or more for each compute unit hide its latencies, and parts
    // no shorter than a tile keep what is stored of each few.
    const std::int64_t panels = columns / tile;
    const std::int64_t rounds =
        std::max(ceil_div(8, resident_), ceil_div(ceil_div(p.m, 2048) * panels, slots()));
    const std::int64_t parts = std::max<std::int64_t>(1, rounds * slots() / panels);
    return {.m = std::max(round_up(ceil_div(std::max<std::int64_t>(p.m, 1), parts), tile), tile),
            .n = columns,
            .k = 512};
  }

  std::int64_t tile_n() const override { return shape_.tile; }
  /// A tile lives in local memory for one panel of columns only: all of k in one step.
  Cut cut(const Product&, std::int64_t) const override {
    return {.tile_m = shape_.tile, .k_step = all_of_k};
  }
  std::int64_t parts(std::int64_t m, const Cut& cut, std::int64_t) const override {
    return std::max<std::int64_t>(1, ceil_div(m, cut.tile_m));
  }
  std::int64_t groups(std::int64_t parts, std::int64_t) const override {
    return parts < 1 ? 1 : parts;
  }
  /// A GPU with more slots than there are groups; a part of fewer than 256 is over too soon.
  std::int64_t k_parts(std::int64_t groups, std::int64_t k) const override {
    if (!is_gpu_) return 1;
    return std::max<std::int64_t>(1, std::min(slots() / groups, k / 256));
  }
  std::int64_t panels_per_group(std::int64_t, std::int64_t) const override { return 1; }
  std::int64_t slots() const override { return compute_units_ * resident_; }
  std::int64_t strip() const override { return shape_.tile; }
  /// Half of the cache: operands are in it too.
  std::int64_t cached_words() const override { return cached_words_; }
  /// A GPU waits several microseconds for a launch. Of 4 H flops or more for each element of dz it
  /// takes longer than to write and read that once more from its memory, 12 bytes.
  std::int64_t worthwhile_ranges() const override {
    return is_gpu_ ? 48 : Engine::worthwhile_ranges();
  }
  std::size_t group_size() const override { return static_cast<std::size_t>(shape_.items()); }
  std::int64_t panel_items() const override { return shape_.tile; }
  std::int64_t pack_step() const override { return 1; }
  RowPass row_pass() const override { return {64, 1, 8192}; }

 private:
  Shape shape_;
  std::int64_t compute_units_, resident_, cached_words_;
  bool is_gpu_;
};

}  // namespace

EngineEntry simt_engine() {
  EngineEntry entry;
  entry.name = "simt";
  entry.description =
      "OpenCL C 1.2 on any device: work-group tiles in local memory; compiled for GPUs, never run "
      "on one";
  entry.why_unsupported = [](const opencl::DeviceFacts& facts, const Operands&) {
    return best.why_unsupported(facts);
  };
  entry.shapes = [](const opencl::DeviceFacts& facts, const Operands&, opencl::Runtime*,
                    std::vector<std::string>& notes) {
    if (facts.is_gpu) notes.push_back("these kernels were never measured on a GPU");
    return EngineShapes{std::make_shared<SimtEngine>(facts, best)};
  };
  entry.variants = [](const opencl::DeviceFacts& facts, const Operands&, opencl::Runtime*,
                      std::vector<std::string>&) {
    EngineShapes all;
    for (const std::int64_t tile : {64, 32, 128}) {
      for (const std::int64_t item : {8, 4, 16}) {
        for (const std::int64_t depth : {16, 8, 32}) {
          const Shape shape{tile, item, depth};
          if (shape.why_unsupported(facts)) continue;
          all.push_back(std::make_shared<SimtEngine>(facts, shape));
        }
      }
    }
    return all;
  };
  return entry;
}

}  // namespace tessera::engines
