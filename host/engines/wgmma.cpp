// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "host/engines/gates.hpp"
#include "host/engines/shares.hpp"
#include "host/engines/tiles.hpp"
#include "host/engines/wgmma_probe.hpp"
#include "tessera/error.hpp"

namespace tessera::engines {
namespace {

/// A tile of C, and elements of k in a step (cl_kernels/engines/wgmma).
constexpr std::int64_t tile_rows = 256, tile_columns = 128, depth = 64;
/// The local memory that NVIDIA's compiler gives a group. Steps take nearly all of it.
constexpr std::int64_t group_local_bytes = 227 * 1024;
/// Registers of a work-item when a group starts; work-items that bring operands then give up most.
constexpr std::int64_t item_registers = 168;
/// Two tensor maps of 128 bytes, and what it takes to begin at a multiple of that.
constexpr std::int64_t maps_words = 96;
/// The unit cuts sums off instead of rounding them: kernels add up so many words of k in f32.
constexpr std::int64_t summed_words = 16384;

class WgmmaEngine final : public TileEngine {
 public:
  WgmmaEngine(const opencl::DeviceFacts& facts, std::int64_t stages, std::int64_t stride_unit)
      : TileEngine(facts, {.tile_m = tile_rows,
                           .tile_n = tile_columns,
                           .items = wgmma_items,
                           .local_bytes = 2 * stages * (tile_rows + tile_columns) * depth,
                           .registers = item_registers * wgmma_items,
                           .speed = 22.1}),  // half of it are the 740 TFLOP/s of logits on an H200
        stages_(stages),
        stride_unit_(stride_unit) {}

  std::string name() const override { return "wgmma"; }
  using Engine::options;
  std::string options() const override {
    return fmt::format(
        "-DLANES=1 -DTILE_M={} -DTILE_N={} -DSTAGES={} -DPACK_STEP={} -DEX2=1 -DMAP_STRIDE_UNIT={}",
        tile_rows, tile_columns, stages_, pack_step(), stride_unit_);
  }
  std::int64_t patched_items() const override { return wgmma_items; }
  std::vector<NamedValue> knobs() const override {
    return {{"tile_rows", tile_rows},
            {"tile_columns", tile_columns},
            {"depth", depth},
            {"stages", stages_}};
  }
  BlockRule rule() const override { return {tile_rows, tile_columns, depth}; }

  Blocks heuristic(const Product& p) const override {
    Blocks blocks = TileEngine::heuristic(p);
    Product launch = p;
    launch.n = std::min(p.n, blocks.n);
    blocks.m = tile_rows * tiles_of_group(launch);
    return blocks;
  }
  std::int64_t even_parts(const Product& p, std::int64_t) const override { return parts_of(p); }
  Cut cut(const Product& p, std::int64_t) const override {
    Cut cut{.tile_m = tile_rows, .k_step = all_of_k, .group_words = maps_words};
    if (p.use == Use::accumulate) cut.k_step = summed_words;
    if (p.use != Use::visit) cut.most_parts = parts_of(p);
    return cut;
  }
  /// Sums of gradients went faster than logits on an H200: 770 and 750 TFLOP/s.
  Rates rates(const Product& p) const override {
    Rates rates = TileEngine::rates(p);
    rates.flops *= p.use == Use::accumulate ? 1.04 : p.use == Use::store ? 1.014 : 1.0;
    rates.launch = 16e-6;
    return rates;
  }

  /// A column's elements lie side by side, and columns begin at multiples of 16 bytes.
  std::int64_t operand_words(const Product& p) const override { return round_up(p.k, 8) / 2; }
  bool packs_alike() const override { return true; }
  DType stored_type(DType, DType) const override { return DType::bf16; }
  /// Blocks of elements of k, whole; in place each lies where the f32 of its elements do.
  std::int64_t operand_words(const Stored& stored, std::int64_t k) const override {
    if (stored.type == DType::f32) return k;
    return round_up(k, stored_block()) / (stored.in_place ? 1 : 2);
  }
  std::int64_t stored_block() const override { return depth; }
  /// The elements of a word.
  std::int64_t pack_step() const override { return 2; }

 private:
  /// Tiles that a group takes one after the other, so that only its first one waits for operands.
  /// The start of a group, and what comes behind the steps of a tile, take as long as 4 steps. Of
  /// numbers that differ by less than 1% the least leaves the fewest groups to wait for.
  std::int64_t tiles_of_group(const Product& p) const {
    constexpr std::int64_t most = 8, around = 4;
    const std::int64_t steps = ceil_div(p.k, depth) + around;
    const auto cost = [&](std::int64_t tiles) {
      const std::int64_t groups = ceil_div(strips_of(p), tiles) * ceil_div(p.n, tile_columns);
      return static_cast<double>(rounds_of(groups, slots()) * (tiles * steps + around));
    };
    return cheapest(
        1, 2, 1, [](std::int64_t tiles) { return tiles <= most; }, cost, 0.99);
  }
  static std::int64_t strips_of(const Product& p) {
    return std::max<std::int64_t>(1, ceil_div(p.m, tile_rows));
  }
  std::int64_t parts_of(const Product& p) const {
    return ceil_div(strips_of(p), tiles_of_group(p));
  }

  std::int64_t stages_, stride_unit_;
};

/// Throws Error build_failed where a gate is closed, so that the next implementation serves; a
/// description has no device to probe.
EngineShapes shapes_of(const opencl::DeviceFacts& facts, opencl::Runtime* runtime,
                       const std::vector<std::int64_t>& stages) {
  const auto check = [](const std::string& reason) {
    if (reason.empty()) return;
    throw Error(ErrorCode::build_failed, "wgmma is not to be used: " + reason);
  };
  WgmmaVerdict verdict;
  if (runtime != nullptr) verdict = runtime->keep<Wgmma>().verdict(*runtime);
  check(verdict.reason);
  EngineShapes shapes;
  for (const std::int64_t each : stages) {
    auto engine = std::make_shared<WgmmaEngine>(facts, each, verdict.stride_in_16_bytes ? 16 : 1);
    if (runtime != nullptr) {
      check(runtime->keep<Gates>().why_closed(*runtime, *engine, DType::bf16,
                                              [] { return std::string(); }));
    }
    shapes.push_back(std::move(engine));
  }
  return shapes;
}

std::optional<std::string> why_unsupported(const opencl::DeviceFacts& facts,
                                           const Operands& operands) {
  if (auto reason = why_no_wgmma(facts); !reason.empty()) return reason;
  if (facts.unit_local_bytes < group_local_bytes) {
    return fmt::format("it needs {} bytes of local memory in a compute unit, the device has {}",
                       group_local_bytes, facts.unit_local_bytes);
  }
  constexpr const char *mma = "; opencl.mma serves", *simt = "; opencl.simt serves";
  if (operands.rows) return std::string("there is nothing to multiply") + simt;
  if (operands.a != DType::bf16 || operands.b != DType::bf16) {
    const bool is_f16 = operands.a == DType::f16 && operands.b == DType::f16;
    return fmt::format("it multiplies bf16 by bf16; a product of the call has {} by {}{}",
                       to_string(operands.a), to_string(operands.b),
                       is_f16 && operands.are_alike() ? mma : simt);
  }
  if (!operands.are_alike()) {
    return fmt::format(
        "a product of the call has an operand that is not bf16 or not to be rounded to it (dz of "
        "grad_bias and of dz_dtype f32){}",
        simt);
  }
  if (operands.filtered) {
    return fmt::format("it leaves out no steps, as gradient_filter_eps asks{}", mma);
  }
  if (operands.line_bytes == 0) {
    return fmt::format(
        "w (or teacher_w) has no lines of elements side by side, one behind the other{}", mma);
  }
  if (operands.line_bytes % 16 != 0) {
    return fmt::format(
        "lines of w (or teacher_w) begin at multiples of {} bytes, it needs multiples of 16{}",
        operands.line_bytes, mma);
  }
  return std::nullopt;
}

}  // namespace

EngineEntry wgmma_engine() {
  EngineEntry entry;
  entry.name = "wgmma";
  entry.description =
      "matrix units of NVIDIA's Hopper (sm_90), bf16 with f32 sums, by wgmma in PTX patched for "
      "sm_90a";
  entry.why_unsupported = why_unsupported;
  entry.shapes = [](const opencl::DeviceFacts& facts, const Operands&, opencl::Runtime* runtime,
                    std::vector<std::string>&) { return shapes_of(facts, runtime, {4}); };
  entry.variants = [](const opencl::DeviceFacts& facts, const Operands&, opencl::Runtime* runtime,
                      std::vector<std::string>&) {
    return shapes_of(facts, runtime, {4, 3});
  };
  return entry;
}

}  // namespace tessera::engines
