// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "host/engines/engine.hpp"

namespace tessera::engines {
namespace {

/// 64 x 64 elements of C for 64 work-items of 8 x 8 registers, in panels 16 deep: 24.1 KiB of local
/// memory, legal on every OpenCL 1.2 device (32 KiB), and enough reuse to be bound by arithmetic.
constexpr std::int64_t tile = 64;
constexpr std::int64_t item = 8;
constexpr std::int64_t depth_step = 16;
constexpr std::int64_t items = (tile / item) * (tile / item);
constexpr std::int64_t local_bytes =
    4 * (tile * tile + depth_step * (tile + 1) + depth_step * tile);

class SimtEngine final : public Engine {
 public:
  explicit SimtEngine(const opencl::DeviceFacts& facts)
      : local_memory_bytes_(facts.local_memory_bytes),
        max_work_group_size_(facts.max_work_group_size),
        compute_units_(facts.compute_units),
        options_(fmt::format("-DENGINE_SIMT=1 -DLANES=1 -DTILE_M={} -DTILE_N={} -DITEM_M={} "
                             "-DITEM_N={} -DSIMT_DEPTH={}",
                             tile, tile, item, item, depth_step)) {}

  std::string name() const override { return "simt"; }
  std::string description() const override {
    return "OpenCL C 1.2 on any device: work-group tiles in local memory";
  }
  std::optional<std::string> why_unsupported() const override {
    if (local_memory_bytes_ < local_bytes) {
      return fmt::format("it needs {} bytes of local memory, the device has {}", local_bytes,
                         local_memory_bytes_);
    }
    if (max_work_group_size_ < items) {
      return fmt::format("it needs work-groups of {}, the device allows {}", items,
                         max_work_group_size_);
    }
    return std::nullopt;
  }
  const std::string& options() const override { return options_; }
  std::vector<NamedValue> knobs() const override {
    return {{"tile", tile}, {"item", item}, {"depth", depth_step}};
  }
  BlockRule rule() const override { return {tile, depth_step, tile}; }

  Blocks heuristic(std::int64_t b, std::int64_t, std::int64_t v, Operand) const override {
    // Panels of tokens times slices of the vocabulary are the work-groups: about eight for each
    // compute unit hide its latencies, and slices no shorter than a tile keep statistics few.
    const std::int64_t rows = std::clamp<std::int64_t>(round_up(b, tile), tile, 1024);
    const std::int64_t slices =
        std::max<std::int64_t>(ceil_div(8 * compute_units_, rows / tile), ceil_div(v, 2048));
    return {rows, 512,
            std::max(round_up(ceil_div(std::max<std::int64_t>(v, 1), slices), tile), tile)};
  }

  std::int64_t tile_n() const override { return tile; }
  std::int64_t lanes() const override { return 1; }
  std::size_t group_size() const override { return items; }
  std::int64_t step_count(std::int64_t rows, std::int64_t tile_m, std::int64_t) const override {
    return std::max<std::int64_t>(1, ceil_div(rows, tile_m));
  }
  bool reads_in_place(DType) const override { return true; }
  Steps steps(std::int64_t, std::int64_t, bool, Operand, std::int64_t) const override {
    return {tile, 0, 0};
  }
  std::int64_t row_padding() const override { return 0; }
  bool group_walks_panels() const override { return false; }
  std::int64_t groups(std::int64_t steps, std::int64_t) const override {
    return steps < 1 ? 1 : steps;
  }
  // Groups have no scratch of their own.
  std::int64_t thrift_of_tiles() const override { return 1; }
  std::int64_t most_thrift() const override { return 1; }
  std::int64_t v_panel(std::int64_t v, std::int64_t, Operand) const override {
    return v < 1 ? 1 : v;
  }
  std::int64_t h_step() const override { return 1; }

 private:
  std::int64_t local_memory_bytes_;
  std::int64_t max_work_group_size_;
  std::int64_t compute_units_;
  std::string options_;
};

}  // namespace

std::unique_ptr<Engine> make_simt_engine(const opencl::DeviceFacts& facts) {
  return std::make_unique<SimtEngine>(facts);
}

std::unique_ptr<Engine> make_engine(const std::string& name, const opencl::DeviceFacts& facts,
                                    std::int64_t rows, DotBf16 dot) {
  if (name == "cpu") return make_cpu_engine(facts, rows, dot);
  if (name == "simt") return make_simt_engine(facts);
  return nullptr;
}

EngineShapes make_engine_shapes(const std::string& name, const opencl::DeviceFacts& facts,
                                std::int64_t rows, DotBf16 dot) {
  EngineShapes shapes;
  if (name != "cpu") {
    shapes.push_back(make_engine(name, facts, rows, dot));
    return shapes;
  }
  for (std::int64_t columns = cpu_widest_tile; columns >= cpu_narrowest_tile; columns /= 2) {
    auto engine = make_cpu_engine(facts, rows, dot, columns);
    if (!shapes.empty() && shapes.back()->tile_n() == engine->tile_n()) continue;
    shapes.push_back(std::move(engine));
  }
  return shapes;
}

std::optional<std::string> beyond_32_bits(
    std::initializer_list<std::pair<const char*, std::int64_t>> extents) {
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 4096;  // room to round up to tiles
  for (const auto& [name, extent] : extents) {
    if (extent > most) return fmt::format("{} is {}, beyond {}", name, extent, most);
  }
  return std::nullopt;
}

}  // namespace tessera::engines
