// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "host/engines/fragment.hpp"
#include "host/engines/gates.hpp"
#include "host/engines/tiles.hpp"
#include "host/opencl/runtime.hpp"
#include "host/opencl/specialise.hpp"
#include "tessera/error.hpp"

namespace tessera::engines {
namespace {

/// Registers that a work-item may have; nearly all are taken.
constexpr std::int64_t item_registers = 256;

/// A tile of C by warps, from steps of `depth` words of k, `stages` of them at a time.
struct Shape {
  std::int64_t tile_m, tile_n, warps_m, warps_n, depth, stages;
  std::int64_t items() const { return mma_sync.lanes * warps_m * warps_n; }
  /// The largest form of operand A and B for each stage, or the tile of C
  /// (engines/matrix/memory.cl).
  std::int64_t local_bytes() const {
    const std::int64_t a = std::max(
        {tile_m * (depth + 4), 2 * depth * (tile_m / 2 + 4), tile_m / 2 * (2 * depth + 8)});
    return 4 * (stages * (a + depth * (tile_n + 8)) + items() / 2);
  }
  std::int64_t registers() const { return item_registers * items(); }
  /// A warp has whole results of the instruction, also where its rows are the tile's columns.
  constexpr bool is_whole() const {
    constexpr std::int64_t edge = std::max(mma_sync.m, mma_sync.n);
    return tile_m % (edge * warps_m) == 0 && tile_n % (edge * warps_n) == 0 &&
           2 * depth % mma_sync.k == 0;
  }
};

/// Fastest first. A warp multiplies 64 x 64 of the first, whose group takes all registers of a
/// multiprocessor; the second is for few columns, and for filtered gradients: with the steps that
/// those leave out the first has no registers left. Groups of both have more local memory than
/// drivers report: from sm_90 on NVIDIA's compiler takes up to 227 KiB. The third has the 48 KiB
/// that all devices do, and a multiprocessor has registers for two of its groups.
constexpr Shape large = {128, 256, 2, 4, 32, 3}, narrow = {128, 128, 2, 4, 32, 3},
                small = {64, 128, 2, 2, 16, 3};
/// For devices without the instruction, where every product takes a whole tile's time.
constexpr Shape emulated = {32, 16, 2, 1, 16, 2};
static_assert(large.is_whole() && narrow.is_whole() && small.is_whole() && emulated.is_whole());

bool emulates(const opencl::DeviceFacts& facts) {
  return facts.bf16_products == opencl::Bf16Products::emulated;
}

class MmaEngine final : public TileEngine {
 public:
  MmaEngine(const opencl::DeviceFacts& facts, const Shape& shape, DType type)
      : TileEngine(facts, {.tile_m = shape.tile_m,
                           .tile_n = shape.tile_n,
                           .items = shape.items(),
                           .local_bytes = shape.local_bytes(),
                           .registers = shape.registers(),
                           .speed = 10.0}),  // as an H100 was measured
        shape_(shape),
        type_(type == DType::f16 ? DType::f16 : DType::bf16),
        emulates_(emulates(facts)),
        register_option_(register_option(facts, item_registers, shape.items())) {}

  std::string name() const override { return "mma"; }
  std::string folder() const override { return "matrix"; }
  using Engine::options;
  std::string options() const override {
    return fmt::format(
        "-DLANES=1 -DTILE_M={} -DTILE_N={} -DWARPS_M={} -DWARPS_N={} -DDEPTH={} -DSTAGES={} "
        "-DBAND={} -DPACK_STEP={} -DMMA={} {}{}{}",
        shape_.tile_m, shape_.tile_n, shape_.warps_m, shape_.warps_n, shape_.depth, shape_.stages,
        emulates_ ? 2 : 8, pack_step(), emulates_ ? 2 : 1, opencl::type_option("PAIR_TYPE", type_),
        emulates_ ? "" : " -DEX2=1", register_option_);
  }
  std::vector<NamedValue> knobs() const override {
    return {{"tile_rows", shape_.tile_m},
            {"tile_columns", shape_.tile_n},
            {"depth", shape_.depth},
            {"stages", shape_.stages}};
  }
  BlockRule rule() const override { return {shape_.tile_m, shape_.tile_n, 2 * shape_.depth}; }
  using Engine::operand_words;
  std::int64_t operand_words(const Product& product) const override {
    return ceil_div(product.k, 2);
  }
  /// Whatever the types: others are not served.
  DType stored_type(DType, DType) const override { return type_; }
  /// The elements of a word.
  std::int64_t pack_step() const override { return 2; }

 private:
  Shape shape_;
  DType type_;  ///< of both operands of each product
  bool emulates_;
  std::string register_option_;
};

/// The shapes that a device may have room for.
std::vector<Shape> all_shapes(const opencl::DeviceFacts& facts, const Operands& operands) {
  if (emulates(facts)) return {emulated};
  if (capability(facts) < 90 || facts.unit_local_bytes < large.local_bytes()) return {small};
  if (operands.n <= narrow.tile_n || operands.filtered) return {narrow, small};
  return {large, narrow, small};
}

/// Those that pass their gates; a description has no device to probe. Throws Error build_failed
/// where none does, so that the next implementation serves.
EngineShapes shapes_of(const opencl::DeviceFacts& facts, const Operands& operands,
                       opencl::Runtime* runtime) {
  EngineShapes open;
  std::string reasons;
  for (const auto& shape : all_shapes(facts, operands)) {
    auto engine = std::make_shared<MmaEngine>(facts, shape, operands.a);
    const auto reason = runtime == nullptr
                            ? std::string()
                            : runtime->keep<Gates>().why_closed(*runtime, *engine, operands.a,
                                                                [] { return std::string(); });
    if (reason.empty()) {
      open.push_back(std::move(engine));
    } else {
      reasons += (reasons.empty() ? "" : "; ") + reason;
    }
  }
  if (open.empty()) throw Error(ErrorCode::build_failed, "mma.sync is not to be used: " + reasons);
  return open;
}

}  // namespace

EngineEntry mma_engine() {
  EngineEntry entry;
  entry.name = "mma";
  entry.description =
      "matrix units of NVIDIA GPUs, bf16 or f16 with f32 sums, by mma.sync (sm_80 on)";
  entry.why_unsupported = [](const opencl::DeviceFacts& facts,
                             const Operands& operands) -> std::optional<std::string> {
    constexpr const char* instead = "; opencl.simt serves";
    if (!emulates(facts)) {
      if (capability(facts) < 80) return "the device has no mma.sync of bf16 (NVIDIA, sm_80 on)";
      if (const auto reason = why_unusable(mma_sync, facts.sub_group_sizes)) {
        return *reason + instead;
      }
      if (facts.local_memory_bytes < small.local_bytes() ||
          facts.max_work_group_size < small.items()) {
        return fmt::format(
            "it needs {} bytes of local memory and work-groups of {}, the device has {} and {}",
            small.local_bytes(), small.items(), facts.local_memory_bytes,
            facts.max_work_group_size);
      }
    }
    if (operands.rows) return std::string("there is nothing to multiply") + instead;
    if ((operands.a != DType::bf16 && operands.a != DType::f16) || operands.a != operands.b) {
      return fmt::format(
          "it multiplies bf16 by bf16 and f16 by f16; a product of the call has {} by {}{}",
          to_string(operands.a), to_string(operands.b), instead);
    }
    if (!operands.are_alike()) {
      return fmt::format(
          "a product of the call has an operand that is not {} or not to be rounded to it (dz of "
          "grad_bias, of dz_dtype f32, and of f16 where rows differ in more than their labels){}",
          to_string(operands.a), instead);
    }
    return std::nullopt;
  };
  entry.shapes = [](const opencl::DeviceFacts& facts, const Operands& operands,
                    opencl::Runtime* runtime,
                    std::vector<std::string>&) { return shapes_of(facts, operands, runtime); };
  entry.variants = [](const opencl::DeviceFacts& facts, Operands operands, opencl::Runtime* runtime,
                      std::vector<std::string>&) {
    operands.n = std::numeric_limits<std::int64_t>::max();
    return shapes_of(facts, operands, runtime);
  };
  return entry;
}

}  // namespace tessera::engines
