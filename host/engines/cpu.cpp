// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "host/engines/engine.hpp"

namespace tessera::engines {
namespace {

/// The rows of A that are multiplied, and those being packed for the next turn, stay below this,
/// less than half of the second-level cache of current server cores; panels of B stream through the
/// rest. OpenCL 1.2 reports one cache size only, and on CPUs it is that of the last level.
constexpr std::int64_t cached_bytes = 400 * 1024;
/// Depth at a time of an A whose rows lie side by side, against `tokens` columns. Not all of it:
/// then many rows are packed, and what is read of each k is a kilobyte, not 200 bytes of a page
/// that must be looked up for them. Deeper for more tokens, so that their tiles of C, which are as
/// many rows high, stay in the cache too.
std::int64_t interleaved_depth(std::int64_t tokens) {
  return std::clamp<std::int64_t>(round_up(tokens / 2, 8), 128, 512);
}
constexpr std::int64_t micro_m = 6;  ///< MICRO_M of cl_kernels/engines/cpu
constexpr std::int64_t spare = 16;   ///< spare words a packed row has there
/// Tiles shrink from 400 KiB to a few before there are fewer groups.
constexpr std::int64_t smallest_part = 64;

class CpuEngine final : public Engine {
 public:
  CpuEngine(const opencl::DeviceFacts& facts, std::int64_t rows, DotBf16 dot,
            std::int64_t most_columns)
      : dot_(dot),
        is_cpu_(facts.is_cpu),
        compute_units_(facts.compute_units),
        cache_bytes_(facts.cache_bytes) {
    // 8 lanes with two vectors a row: 12 accumulators, 2 columns and a broadcast fill the 16
    // registers of AVX2. 16 lanes: AVX-512 has 32 registers, for 24 + 4 + 1. 4 lanes: NEON, SSE.
    lanes_ = facts.native_float_vector >= 16 ? 16 : facts.native_float_vector >= 8 ? 8 : 4;
    while (lanes_ > most_columns) lanes_ /= 2;
    // The instruction is used on whole registers.
    if (lanes_ < 16 && dot_ == DotBf16::instruction) dot_ = DotBf16::none;
    const std::int64_t full = lanes_ == 16 ? 4 : 2;
    vectors_ = std::clamp<std::int64_t>(most_columns / lanes_, 1, full);
    narrow_ = rows <= lanes_;
    while (few_ < std::min(rows, lanes_)) few_ *= 2;
    // Few tokens: one vector of them, so that no lane multiplies padding and w, which nobody reads
    // twice, sets the pace. (More rows instead would be more rows than the first-level cache has
    // ways, where they lie a power of two apart.)
    if (narrow_) vectors_ = 1;
    // The registers that a narrow tile leaves are several sums per element.
    const std::int64_t phases = full / vectors_;
    options_ = fmt::format("-DENGINE_CPU=1 -DLANES={} -DNV={} -DMICRO_M={} -DPHASES={}", lanes_,
                           vectors_, micro_m, phases);
  }

  std::string name() const override { return "cpu"; }
  std::string description() const override {
    return "OpenCL on CPUs: explicit vectors, one work-item per work-group";
  }
  std::optional<std::string> why_unsupported() const override {
    if (is_cpu_) return std::nullopt;
    return "the device is not a CPU; opencl.simt runs on any device";
  }
  const std::string& options() const override { return options_; }
  bool multiplies_pairs() const override { return dot_ != DotBf16::none; }
  std::string pair_options() const override {
    return !multiplies_pairs() ? "" : fmt::format(" -DDOT_BF16={}", static_cast<int>(dot_));
  }
  std::int64_t words(std::int64_t depth) const override {
    return multiplies_pairs() ? ceil_div(depth, 2) : depth;
  }
  std::vector<NamedValue> knobs() const override {
    std::vector<NamedValue> list = {
        {"lanes", lanes_}, {"micro_rows", micro_m}, {"micro_vectors", vectors_}};
    if (multiplies_pairs()) list.push_back({"dot_bf16", static_cast<int>(dot_)});
    return list;
  }
  /// Tokens: the narrowest shape's tile, so that the rule is the same for every vector width.
  BlockRule rule() const override { return {cpu_narrowest_tile, 8, 8}; }

  Blocks heuristic(std::int64_t b, std::int64_t h, std::int64_t v, Operand w) const override {
    // The packed rows of x stay in half of the last-level cache while w streams past them.
    const std::int64_t cached = cache_bytes_ / 2 / (4 * std::max<std::int64_t>(words(h), 1));
    const std::int64_t rows = std::clamp(cached / tile_n() * tile_n(), 4 * tile_n(),
                                         std::max<std::int64_t>(1024, 4 * tile_n()));
    // As many slices for every group, none longer than 2048: sums stay short and cores balanced.
    const std::int64_t parallel = groups(v, 1);
    const std::int64_t rounds = std::max<std::int64_t>(1, ceil_div(v, parallel * 2048));
    const std::int64_t slice = ceil_div(std::max<std::int64_t>(v, 1), parallel * rounds);
    // All of H in one step, or in even steps, so that 48 columns of w and a panel of x stay in the
    // second-level cache.
    // Few tokens multiply what they pack at once: 512 steps of 12 columns stay in the first level.
    const std::int64_t deepest = w == Operand::interleaved ? interleaved_depth(std::min(rows, b))
                                 : narrow_                 ? 512
                                                           : 2048 + 256;
    const std::int64_t steps = std::max<std::int64_t>(1, ceil_div(words(h), deepest));
    return {std::min(rows, round_up(std::max<std::int64_t>(b, 1), tile_n())),
            round_up(ceil_div(std::max<std::int64_t>(h, 1), steps), 8), round_up(slice, 8)};
  }

  std::int64_t step_count(std::int64_t rows, std::int64_t tile_m,
                          std::int64_t thrift) const override {
    // The same number for every group, so that none waits for another's last one.
    const std::int64_t strips = std::max<std::int64_t>(1, ceil_div(rows, micro_m));
    const std::int64_t parallel = groups(strips, thrift);
    return std::min(strips, round_up(std::max<std::int64_t>(1, ceil_div(rows, tile_m)), parallel));
  }
  std::int64_t tokens_along_k(DType type) const override {
    return narrow_ && type != DType::f32 && !multiplies_pairs() ? few_ : 0;
  }
  bool reads_in_place(DType type) const override { return type == DType::f32; }
  std::int64_t tile_n() const override { return lanes_ * vectors_; }
  std::int64_t lanes() const override { return lanes_; }
  std::size_t group_size() const override { return 1; }
  Steps steps(std::int64_t rows, std::int64_t depth, bool shared, Operand operand,
              std::int64_t thrift) const override {
    const bool in_place = operand == Operand::in_place;
    rows = std::max<std::int64_t>(rows, 1);
    std::int64_t tile =
        cached_bytes / thrift / (in_place ? 1 : 2) / ((depth + spare) * 4) / micro_m * micro_m;
    if (narrow_ && operand != Operand::interleaved) tile = micro_m;
    tile = std::clamp(tile, micro_m, round_up(rows, micro_m));
    if (shared) {
      tile = ceil_div(ceil_div(rows, micro_m), step_count(rows, tile, thrift)) * micro_m;
    }
    // Two buffers. Where A is read in place they hold the rows that do not fill a strip.
    const std::int64_t packed = in_place ? micro_m : tile;
    return {tile, 2 * (packed * (depth + spare) + spare), (tile + micro_m) * tile_n()};
  }
  std::int64_t row_padding() const override { return micro_m; }
  bool group_walks_panels() const override { return true; }
  std::int64_t groups(std::int64_t steps, std::int64_t thrift) const override {
    // Two a core: a core that another process slows down leaves work to the rest, while scratch
    // (per group) stays small.
    const std::int64_t fewer = std::max<std::int64_t>(1, thrift / smallest_part);
    const std::int64_t most = std::max<std::int64_t>(1, 2 * compute_units_ / fewer);
    return std::clamp<std::int64_t>(steps, 1, most);
  }
  std::int64_t thrift_of_tiles() const override { return smallest_part; }
  std::int64_t most_thrift() const override {
    return smallest_part * std::max<std::int64_t>(1, 2 * compute_units_);
  }
  std::int64_t v_panel(std::int64_t v, std::int64_t tokens, Operand w) const override {
    return std::clamp<std::int64_t>(v, 1,
                                    w == Operand::interleaved ? interleaved_depth(tokens) : 1024);
  }
  std::int64_t h_step() const override { return 64; }

 private:
  DotBf16 dot_;
  bool is_cpu_;
  std::int64_t compute_units_;
  std::int64_t cache_bytes_;
  std::int64_t lanes_ = 8;
  std::int64_t vectors_ = 2;
  bool narrow_ = false;
  std::int64_t few_ = 1;  ///< tokens, up to a power of two, where they are few
  std::string options_;
};

}  // namespace

std::unique_ptr<Engine> make_cpu_engine(const opencl::DeviceFacts& facts, std::int64_t rows,
                                        DotBf16 dot, std::int64_t most_columns) {
  return std::make_unique<CpuEngine>(facts, rows, dot, most_columns);
}

}  // namespace tessera::engines
