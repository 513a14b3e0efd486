// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "host/engines/gates.hpp"
#include "host/engines/tiles.hpp"

namespace tessera::engines {
namespace {

/// A square tile of C, by work-items that each sum `item` x `item` elements of it in registers,
/// from panels of A and B `depth` deep.
struct Shape {
  std::int64_t tile, item, depth;
  std::int64_t items() const { return (tile / item) * (tile / item); }
  std::int64_t local_bytes() const { return 4 * (tile * tile + depth * (tile + 4) + depth * tile); }
  /// Of a group: each work-item has its sums, a row and a column of operands, and 32 for the rest.
  std::int64_t registers() const { return items() * (item * item + 2 * item + 32); }
  /// A work-item needs no more: none has a stack then (docs/gpu_code.csv).
  std::int64_t most_registers() const { return item * item + 2 * item + 88; }
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
    // PoCL 3.1 has work-items without a column run the loops of the others and store beyond the
    // end; Intel's runtime and Oclgrind do not.
    if (!facts.is_gpu && items() > tile) {
      return fmt::format(
          "its work-groups of {} have more work-items than the tile has columns, "
          "which PoCL compiles to stores beyond the end",
          items());
    }
    return std::nullopt;
  }
};

/// 64 work-items, 16 KiB + 2 * 4.25 KiB of local memory: legal on every OpenCL 1.2 device (32 KiB),
/// and enough reuse to be bound by arithmetic.
constexpr Shape best = {64, 8, 16};
/// On GPUs, whose registers what is fetched for the next panels takes.
constexpr Shape best_of_gpu = {64, 8, 8};
/// For few columns, which leave most of a tile of 64 to padding. Measured on PoCL with 1 to 32; on
/// an H200 with 16, where 64 were faster with tiles of 64; nothing is known of a GPU without an
/// architecture.
constexpr Shape few = {32, 8, 16};
constexpr Shape few_of_gpu = {32, 4, 8};
const Shape& best_on(const opencl::DeviceFacts& facts, std::int64_t columns = Operands{}.n) {
  if (facts.is_gpu) {
    return columns <= 16 && !facts.architecture.empty() ? few_of_gpu : best_of_gpu;
  }
  return columns <= 32 ? few : best;
}

class SimtEngine final : public TileEngine {
 public:
  SimtEngine(const opencl::DeviceFacts& facts, const Shape& shape, std::int64_t row_items = 64,
             std::int64_t row_lanes = 1)
      : TileEngine(facts, {.tile_m = shape.tile,
                           .tile_n = shape.tile,
                           .items = shape.items(),
                           .local_bytes = shape.local_bytes(),
                           .registers = shape.registers(),
                           .row_items = row_items,
                           .row_lanes = row_lanes}),
        shape_(shape),
        is_gpu_(facts.is_gpu),
        register_option_(register_option(facts, shape.most_registers(), shape.items())) {}

  std::string name() const override { return "simt"; }
  using Engine::options;
  std::string options() const override {
    return fmt::format(
        "-DLANES=1 -DTILE_M={0} -DTILE_N={0} -DITEM_M={1} -DITEM_N={1} "
        "-DSIMT_DEPTH={2} -DPACK_STEP=1{3}{4}",
        shape_.tile, shape_.item, shape_.depth, is_gpu_ ? " -DIS_GPU=1" : "", register_option_);
  }
  std::vector<NamedValue> knobs() const override {
    return {{"tile", shape_.tile}, {"item", shape_.item}, {"depth", shape_.depth}};
  }
  BlockRule rule() const override { return {shape_.tile, shape_.tile, shape_.depth}; }
  std::int64_t pack_step() const override { return 1; }

 private:
  Shape shape_;
  bool is_gpu_;
  std::string register_option_;
};

/// Elements of 16 bytes, the most that a work-item reads by one instruction.
std::int64_t best_lanes(const Operands& operands) {
  return 16 / static_cast<std::int64_t>(size_of(operands.a));
}

/// Work-items that share a row: more of them keep a GPU busy that has fewer rows than groups.
EngineShapes row_shapes(const opencl::DeviceFacts& facts, std::int64_t lanes) {
  EngineShapes all;
  for (const std::int64_t items : {64, 128, 256, 512, 1024}) {
    // Work-items share 8 bytes each, at most, and some kernels need 128 registers.
    if (items > facts.max_work_group_size || 8 * items > facts.local_memory_bytes) break;
    if (facts.unit_registers > 0 && 128 * items > facts.unit_registers) break;
    all.push_back(std::make_shared<SimtEngine>(facts, best_on(facts), items, lanes));
  }
  return all;
}

}  // namespace

EngineEntry simt_engine() {
  EngineEntry entry;
  entry.name = "simt";
  entry.description =
      "OpenCL C 1.2 on any device: work-group tiles in local memory; of GPUs measured on an H100";
  entry.why_unsupported = [](const opencl::DeviceFacts& facts, const Operands& operands) {
    return best_on(facts, operands.n).why_unsupported(facts);
  };
  entry.shapes = [](const opencl::DeviceFacts& facts, const Operands& operands, opencl::Runtime*,
                    std::vector<std::string>& notes) {
    if (facts.is_gpu && !facts.architecture.starts_with("sm_")) {
      notes.push_back("of GPUs these kernels were measured on NVIDIA's alone");
    }
    if (operands.rows && facts.is_gpu) return row_shapes(facts, best_lanes(operands));
    return EngineShapes{
        std::make_shared<SimtEngine>(facts, best_on(facts, operands.n), 64, best_lanes(operands))};
  };
  entry.variants = [](const opencl::DeviceFacts& facts, const Operands& operands, opencl::Runtime*,
                      std::vector<std::string>&) {
    EngineShapes all;
    if (operands.rows) {
      for (const std::int64_t lanes : {best_lanes(operands), std::int64_t{1}}) {
        const auto shapes = row_shapes(facts, lanes);
        all.insert(all.end(), shapes.begin(), shapes.end());
      }
      return all;
    }
    // The choice's own values come first, so that a knob that is given alone changes no other.
    const Shape first = best_on(facts, operands.n);
    for (const std::int64_t tile : {first.tile, 96 - first.tile, std::int64_t{128}}) {
      for (const std::int64_t item : {first.item, 12 - first.item, std::int64_t{16}}) {
        for (const std::int64_t depth : {first.depth, 24 - first.depth, std::int64_t{32}}) {
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
