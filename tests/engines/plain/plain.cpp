// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "host/engines/engine.hpp"

/// The plain engine (engine.cl beside this file): correct on any device, and as slow as it looks.
namespace tessera::engines {
namespace {

constexpr std::int64_t tile_rows = 4;
constexpr std::int64_t tile_columns = 8;

class PlainEngine final : public Engine {
 public:
  std::string name() const override { return "plain"; }
  std::string options() const override {
    return "-DLANES=1 -DTILE_M=" + std::to_string(tile_rows) +
           " -DTILE_N=" + std::to_string(tile_columns) + " -DPACK_STEP=1";
  }
  std::vector<NamedValue> knobs() const override {
    return {{"tile_rows", tile_rows}, {"tile_columns", tile_columns}};
  }
  BlockRule rule() const override { return {tile_rows, tile_columns, 1}; }
  Blocks heuristic(const Product& p) const override {
    return {.m = round_up(std::clamp<std::int64_t>(p.m, 1, 64), tile_rows),
            .n = round_up(std::clamp<std::int64_t>(p.n, 1, 256), tile_columns),
            .k = std::max<std::int64_t>(p.k, 1)};
  }
  std::int64_t tile_n() const override { return tile_columns; }
  Cut cut(const Product&, std::int64_t) const override {
    return {.tile_m = tile_rows, .k_step = all_of_k};
  }
  std::int64_t parts(std::int64_t m, const Cut& cut, std::int64_t) const override {
    return std::max<std::int64_t>(1, ceil_div(m, cut.tile_m));
  }
  std::int64_t groups(std::int64_t parts, std::int64_t) const override {
    return std::max<std::int64_t>(1, parts);
  }
  std::int64_t panels_per_group(std::int64_t, std::int64_t) const override { return 1; }
  std::int64_t slots() const override { return 1; }
  std::int64_t strip() const override { return tile_rows; }
  std::size_t group_size() const override { return tile_rows * tile_columns; }
  std::int64_t panel_items() const override { return tile_columns; }
  std::int64_t pack_step() const override { return 1; }
  RowPass row_pass() const override {
    return {.items = 16, .lanes = 1, .longest = 512, .slots = 1};
  }
  /// Half the memory traffic of dz; products widen it again.
  DType stored_type(DType a, DType b) const override {
    return a == DType::bf16 && b == DType::bf16 ? DType::bf16 : DType::f32;
  }
};

}  // namespace

EngineEntry plain_engine() {
  EngineEntry entry;
  entry.name = "plain";
  entry.description = "the engines' contract in its plainest form, for tests";
  entry.why_unsupported = [](const opencl::DeviceFacts& facts,
                             const Operands&) -> std::optional<std::string> {
    constexpr std::int64_t largest = 64;  // of the kernels that copy rows (Engine::copy_range)
    if (facts.max_work_group_size >= largest) return std::nullopt;
    return "it needs work-groups of " + std::to_string(largest);
  };
  entry.shapes = [](const opencl::DeviceFacts&, const Operands&, opencl::Runtime*,
                    std::vector<std::string>&) {
    return EngineShapes{std::make_shared<PlainEngine>()};
  };
  entry.variants = entry.shapes;  // its knobs have one value each
  return entry;
}

}  // namespace tessera::engines
