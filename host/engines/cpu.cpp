// SPDX-License-Identifier: Apache-2.0
#include "host/engines/cpu.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::engines {

std::int64_t cpu_lanes(const opencl::DeviceFacts& facts) {
  return facts.native_float_vector >= 16 ? 16 : facts.native_float_vector >= 8 ? 8 : 4;
}

namespace {

/// The rows of A that are multiplied, and those being packed for the next turn, stay below this,
/// less than half of the second-level cache of current server cores; panels of B stream through the
/// rest. OpenCL 1.2 reports one cache size only, and on CPUs it is that of the last level.
constexpr std::int64_t cached_bytes = 400 * 1024;
/// Depth at a time of an A whose rows lie side by side, against n columns. Not all of it: then many
/// rows are packed, and what is read of each k is a kilobyte, not 200 bytes of a page that must be
/// looked up for them. Deeper for more columns, so that their tiles of C, which are as many rows
/// high, stay in the cache too.
std::int64_t interleaved_depth(std::int64_t n) {
  return std::clamp<std::int64_t>(round_up(n / 2, 8), 128, 512);
}
constexpr std::int64_t micro_m = cpu_micro_m;
constexpr std::int64_t whole_lines = 96;  ///< strips that hold lines of f32 and of 16 bits
constexpr std::int64_t spare = 16;        ///< spare words a packed row has there
/// Tiles shrink from 400 KiB to a few before there are fewer groups.
constexpr std::int64_t smallest_part = 64;
constexpr std::int64_t cache_line_words = 16;

/// Of a row of a tile. 8 lanes with two vectors a row: 12 accumulators, 2 columns and a broadcast
/// fill the 16 registers of AVX2. 16 lanes: AVX-512 has 32 registers, for 24 + 4 + 1. 4 lanes:
/// NEON, SSE.
std::int64_t most_vectors(std::int64_t lanes) { return lanes == 16 ? 4 : 2; }

/// The way of operand A to the multiplier; cl_kernels/engines/cpu/product.cl.
enum class Source {
  in_place,     ///< from where it lies
  rows_apart,   ///< packed, each row by itself
  interleaved,  ///< packed, the rows of a strip element by element
};

class CpuEngine final : public Engine {
 public:
  CpuEngine(const opencl::DeviceFacts& facts, std::int64_t n, DotBf16 dot, std::int64_t lanes,
            std::int64_t vectors)
      : dot_(dot),
        compute_units_(units_of(facts)),
        cache_bytes_(facts.cache_bytes),
        lanes_(lanes),
        vectors_(vectors),
        narrow_(vectors == 1 && n <= lanes) {
    // The instruction is used on whole registers.
    if (lanes_ < 16 && dot_ == DotBf16::instruction) dot_ = DotBf16::none;
    while (few_ < std::min(n, lanes_)) few_ *= 2;
  }

  std::string name() const override { return "cpu"; }
  std::string options() const override {
    // The registers that a narrow tile leaves are several sums per element.
    const std::int64_t phases = most_vectors(lanes_) / vectors_;
    return fmt::format("-DLANES={} -DNV={} -DMICRO_M={} -DPHASES={} -DTILE_N={} -DPACK_STEP={}",
                       lanes_, vectors_, micro_m, phases, tile_n(), pack_step());
  }
  using Engine::options;
  std::vector<NamedValue> product_options(const Product& product) const override {
    std::vector<NamedValue> options;
    if (by_pairs(product)) options.push_back({"DOT_BF16", static_cast<int>(dot_)});
    if (along_k(product)) options.push_back({"ALONG_K", few(product)});
    return options;
  }
  std::vector<NamedValue> knobs() const override {
    std::vector<NamedValue> list = {
        {"lanes", lanes_}, {"micro_rows", micro_m}, {"micro_vectors", vectors_}};
    if (has_pairs()) list.push_back({"dot_bf16", static_cast<int>(dot_)});
    return list;
  }
  /// Columns: the narrowest shape's tile, so that the rule is the same for every vector width.
  BlockRule rule() const override { return {8, cpu_narrowest_tile, 8}; }

  Blocks heuristic(const Product& p) const override {
    const std::int64_t depth = words(p, p.k);
    // The packed columns of B stay in half of the last-level cache while A streams past them.
    const std::int64_t cached = cache_bytes_ / 2 / (4 * std::max<std::int64_t>(depth, 1));
    const std::int64_t columns = std::clamp(cached / tile_n() * tile_n(), 4 * tile_n(),
                                            std::max<std::int64_t>(1024, 4 * tile_n()));
    // As many parts for every group, none longer than 2048: sums stay short and cores balanced.
    const std::int64_t parallel = groups(p.m, 1);
    const std::int64_t rounds = std::max<std::int64_t>(1, ceil_div(p.m, parallel * 2048));
    const std::int64_t part = ceil_div(std::max<std::int64_t>(p.m, 1), parallel * rounds);
    // All of k in one step, or in even steps, so that 48 rows of A and a panel of B stay in the
    // second-level cache.
    // Few columns multiply what they pack at once: 512 steps of 12 rows stay in the first level.
    // Of those that meet A along k half of it: the deeper a step, the fewer sums of lanes.
    const std::int64_t narrow = along_k(p) ? std::max<std::int64_t>(4096 / few(p), 512) : 512;
    const std::int64_t deepest = source(p) == Source::interleaved
                                     ? interleaved_depth(std::min(columns, p.n))
                                 : narrow_ ? narrow
                                           : 2048 + 256;
    const std::int64_t steps = std::max<std::int64_t>(1, ceil_div(depth, deepest));
    return {.m = round_up(part, 8),
            .n = std::min(columns, round_up(std::max<std::int64_t>(p.n, 1), tile_n())),
            .k = round_up(ceil_div(std::max<std::int64_t>(p.k, 1), steps), 8)};
  }

  std::int64_t tile_n() const override { return lanes_ * vectors_; }

  Cut cut(const Product& p, std::int64_t shrink) const override {
    Cut cut;
    std::int64_t depth = words(p, p.k);
    if (p.b.from == Operand::From::tile) {
      cut.k_step = all_of_k;
    } else if (p.use == Use::visit) {
      depth = words(p, std::min(p.k_block > 0 ? p.k_block : p.k, p.k));
      const std::int64_t step = p.k_block > 0 ? p.k_block : std::max<std::int64_t>(p.k, 1);
      cut.k_step = along_k(p) ? round_up(words(p, step), lanes_) : words(p, step);
    } else if (p.use == Use::accumulate) {
      cut.k_step = std::clamp<std::int64_t>(
          depth, 1, source(p) == Source::interleaved ? interleaved_depth(p.n) : 1024);
      if (cut.k_step < depth) {
        const std::int64_t multiple = words(p, p.k_multiple);
        cut.k_step = std::max(cut.k_step / multiple, std::int64_t{1}) * multiple;
      }
      depth = cut.k_step;
    } else {
      cut.k_step = all_of_k;
    }
    const bool in_place = source(p) == Source::in_place;
    const std::int64_t rows = std::max<std::int64_t>(p.m, 1);
    std::int64_t tile =
        cached_bytes / shrink / (in_place ? 1 : 2) / ((depth + spare) * 4) / micro_m * micro_m;
    if (narrow_ && source(p) != Source::interleaved) tile = micro_m;
    // Whole cache lines of each row of memory, so that no two tiles read the same.
    if (p.use == Use::visit && source(p) == Source::interleaved) {
      tile = std::max(tile, (tile + whole_lines / 2) / whole_lines * whole_lines);
    }
    if (shrink == 1 && divide_k(p, cut)) {
      tile = ceil_div(ceil_div(rows, micro_m), cut.most_parts) * micro_m;
      depth = cut.k_step;
    }
    tile = std::clamp(tile, micro_m, round_up(rows, micro_m));
    cut.tile_m = tile;
    // Groups of other uses divide the rows between them, here each has a part of its own.
    if (p.use != Use::visit) {
      cut.tile_m = ceil_div(ceil_div(rows, micro_m), parts(rows, cut, shrink)) * micro_m;
    }
    // Two buffers. Where A is read in place they hold the rows that do not fill a strip.
    const std::int64_t packed = in_place ? micro_m : cut.tile_m;
    cut.own[0] = round_up(2 * (packed * (depth + spare) + spare), cache_line_words);
    // Where k takes several steps, a group keeps the tiles of all its panels of columns.
    const bool in_steps = p.use == Use::visit && p.k_block > 0 && p.k_block < p.k;
    const std::int64_t panels = in_steps ? std::max<std::int64_t>(ceil_div(p.n, tile_n()), 1) : 1;
    const std::int64_t tile_words = (cut.tile_m + micro_m) * tile_n();
    cut.group_words = cut.own[0] + (p.use == Use::accumulate ? 0 : panels * tile_words);
    // Pairs of another tile are packed behind this one.
    if (p.b.from == Operand::From::tile && by_pairs(p)) {
      cut.own[1] = tile_words;
      cut.group_words += depth * tile_n();
    }
    if (p.most_m > 0) cut.tile_m = std::min(cut.tile_m, p.most_m);
    return cut;
  }
  std::int64_t parts(std::int64_t m, const Cut& cut, std::int64_t shrink) const override {
    // The same number for every group, so that none waits for another's last one.
    const std::int64_t strips = std::max<std::int64_t>(1, ceil_div(m, micro_m));
    const std::int64_t least = std::max<std::int64_t>(1, ceil_div(m, cut.tile_m));
    const std::int64_t even = even_groups(strips, shrink);
    if (cut.most_parts < even) return std::min(strips, cut.most_parts);
    return std::min(strips, least <= even ? even : round_up(least, groups(strips, shrink)));
  }
  std::int64_t groups(std::int64_t parts, std::int64_t shrink) const override {
    // Two a core: a core that another process slows down leaves work to the rest, while scratch
    // (per group) stays small.
    const std::int64_t fewer = std::max<std::int64_t>(1, shrink / smallest_part);
    const std::int64_t most = std::max<std::int64_t>(1, 2 * compute_units_ / fewer);
    return std::clamp<std::int64_t>(parts, 1, most);
  }
  std::int64_t even_parts(const Product& p, std::int64_t shrink) const override {
    return even_groups(ceil_div(p.m, micro_m), shrink);
  }
  /// All, so that A is packed once; but where groups are fewer than cores a part of them, with no
  /// more groups than there may be anyway, of columns enough to pack A for.
  std::int64_t panels_per_group(std::int64_t groups, std::int64_t panels) const override {
    constexpr std::int64_t least_columns = 128;
    const std::int64_t most = std::min(2 * compute_units_ / std::max<std::int64_t>(groups, 1),
                                       panels * tile_n() / least_columns);
    const auto share = [&](std::int64_t each) {
      const std::int64_t all = groups * ceil_div(panels, each);
      return static_cast<double>(groups * panels) /
             static_cast<double>(round_up(all, compute_units_) * each);
    };
    std::int64_t best = panels;
    for (std::int64_t parts = 2; parts <= most; ++parts) {
      const std::int64_t each = ceil_div(panels, parts);
      if (share(each) > 1.05 * share(best)) best = each;  // for less it is not worth its packing
    }
    return best;
  }
  /// A matrix that fits the last-level cache is better left there: its reader finds it.
  bool streams(std::int64_t bytes) const override {
    return cache_bytes_ > 0 && bytes > cache_bytes_;
  }
  /// Of the processors that were measured: a core has 32 FLOPs a cycle with 8 lanes and with 16,
  /// and twice as many by pairs. Two cores have 25 GB/s, and many have 4 GB/s each beside the first
  /// 20, as data sheets of servers say. Half of the last cache is for what is used again.
  /// Workers are woken one after the other.
  Rates rates(const Product& p) const override {
    const double cores = static_cast<double>(compute_units_);
    return {.flops = (lanes_ < 8 ? 50e9 : 100e9) * (by_pairs(p) ? 2.0 : 1.0) * cores,
            .bytes = std::min(12.5e9 * cores, 20e9 + 4e9 * cores),
            .launch = 3e-6 + 1e-6 * cores,
            .cached_bytes = static_cast<double>(cache_bytes_) / 2};
  }
  std::size_t group_size() const override { return 1; }
  std::int64_t slots() const override { return compute_units_; }
  std::int64_t strip() const override { return micro_m; }
  std::int64_t shrink_of_tiles() const override { return smallest_part; }
  std::int64_t most_shrink() const override {
    return smallest_part * std::max<std::int64_t>(1, 2 * compute_units_);
  }

  using Engine::operand_words;
  std::int64_t operand_words(const Product& p) const override {
    return along_k(p) ? round_up(words(p, p.k), lanes_) : words(p, p.k);
  }
  /// A tile may write a strip beyond its rows.
  std::int64_t sums_rows(std::int64_t m) const override { return m + micro_m; }
  DType stored_type(DType a, DType b) const override {
    return has_pairs() && a == DType::bf16 && b == DType::bf16 ? DType::bf16 : DType::f32;
  }
  std::int64_t panel_items() const override { return 1; }
  std::int64_t pack_step() const override { return 64; }
  /// A core streams a row with its vectors alone, and sums it in blocks: a slice may be long.
  RowPass row_pass() const override { return {1, lanes_, std::int64_t{1} << 20, compute_units_}; }

 private:
  /// One for each group, or one a core where that leaves fewer waiting for the last ones.
  std::int64_t even_groups(std::int64_t strips, std::int64_t shrink) const {
    const std::int64_t most = groups(strips, shrink);
    const auto rounds = [&](std::int64_t parts) {
      return ceil_div(parts, compute_units_) * ceil_div(strips, parts);
    };
    return most > compute_units_ && rounds(compute_units_) < rounds(most) ? compute_units_ : most;
  }
  bool has_pairs() const { return dot_ != DotBf16::none; }
  bool by_pairs(const Product& p) const {
    return has_pairs() && p.a.type == DType::bf16 && p.b.type == DType::bf16;
  }
  /// 32-bit words that hold `depth` elements of k.
  std::int64_t words(const Product& p, std::int64_t depth) const {
    return by_pairs(p) ? ceil_div(depth, 2) : depth;
  }
  Source source(const Product& p) const {
    if (p.a.from == Operand::From::stored || p.a.layout == Layout::strided)
      return Source::rows_apart;
    if (p.a.layout == Layout::along_first) return Source::interleaved;
    return p.a.type == DType::f32 || by_pairs(p) ? Source::in_place : Source::rows_apart;
  }
  /// Few columns take no longer to multiply than A takes to read, and a core reads fastest what is
  /// 2 KiB or more in a piece. So work-groups that would have less of A's rows divide k, in parts
  /// beside which their sums are small, and in steps that need little scratch of each. (On two
  /// cores gradients of up to 32 tokens took 0.72 to 1.03 of the time, those of 64 up to 1.07.)
  bool divide_k(const Product& p, Cut& cut) const {
    constexpr std::int64_t most_columns = 32, piece = 512, step = 32;
    const bool few = p.use == Use::accumulate && source(p) == Source::interleaved &&
                     p.n <= most_columns && p.k_multiple == 1;
    if (!few) return false;
    const std::int64_t all = 2 * compute_units_;
    const std::int64_t k_parts = std::max<std::int64_t>(1, p.k / std::max(8 * step, 32 * p.n));
    const std::int64_t parts = std::max(ceil_div(p.m, piece), ceil_div(all, k_parts));
    if (parts >= even_groups(ceil_div(p.m, micro_m), 1)) return false;
    cut.most_parts = parts;
    cut.k_parts = ceil_div(all, parts);
    cut.k_step = std::min(cut.k_step, step);
    return true;
  }
  /// Few columns against an A that is contiguous along k: products run along k, in whole vectors
  /// (cl_kernels/engines/cpu/along_k.cl).
  bool along_k(const Product& p) const {
    if (p.b.from == Operand::From::tile || p.use != Use::visit || !narrow_ ||
        p.a.layout != Layout::along_second)
      return false;
    // A broadcast of A meets all columns at once. Of f32 and of pairs it costs nothing else, so
    // that with more columns than these it is as fast.
    if (by_pairs(p)) return few_ <= 8;
    return p.a.type != DType::f32 || 2 * few(p) <= lanes_;
  }
  /// Columns that these have room for. Four take no longer than one with an A of f32, which takes
  /// twice as long to read.
  std::int64_t few(const Product& p) const {
    return p.a.type == DType::f32 ? std::max<std::int64_t>(few_, 4) : few_;
  }

  DotBf16 dot_;
  std::int64_t compute_units_;
  std::int64_t cache_bytes_;
  std::int64_t lanes_;
  std::int64_t vectors_;
  bool narrow_;           ///< shaped for few columns
  std::int64_t few_ = 1;  ///< columns, up to a power of two, where they are few
};

/// How many vectors, at most `most`, a row of a tile has for n columns. A narrower tile multiplies
/// less padding, but takes longer for each column, since a broadcast of A meets fewer of them. With
/// one or two vectors that is a twentieth in f32 (measured on Zen 4 with 192 columns); with one
/// vector of pairs of bf16 it is a third, so that these have two at least. The prices leave a
/// margin for processors that multiply two vectors at a time, where one vector waits for its
/// broadcasts.
std::int64_t best_vectors(std::int64_t n, std::int64_t lanes, std::int64_t most, DotBf16 dot) {
  const auto price = [&](std::int64_t vectors) {
    const double column = vectors == 4 ? 1.0 : vectors == 2 ? 1.11 : 1.14;
    return column * static_cast<double>(round_up(n, vectors * lanes));
  };
  std::int64_t best = most;
  for (std::int64_t vectors = most / 2; vectors >= (dot == DotBf16::none ? 1 : 2); vectors /= 2) {
    if (price(vectors) < price(best)) best = vectors;
  }
  return best;
}

}  // namespace

std::unique_ptr<Engine> make_cpu_engine(const opencl::DeviceFacts& facts, std::int64_t n,
                                        DotBf16 dot, std::int64_t most_columns) {
  std::int64_t lanes = cpu_lanes(facts);
  while (lanes > most_columns) lanes /= 2;
  // Few columns: one vector of them, so that no lane multiplies padding and A, which nobody reads
  // twice, sets the pace. (More rows instead would be more rows than the first-level cache has
  // ways, where they lie a power of two apart.)
  std::int64_t vectors =
      n <= lanes ? 1 : std::clamp<std::int64_t>(most_columns / lanes, 1, most_vectors(lanes));
  if (lanes == 16) vectors = best_vectors(n, lanes, vectors, dot);
  return std::make_unique<CpuEngine>(facts, n, dot, lanes, vectors);
}

EngineShapes make_cpu_shapes(const opencl::DeviceFacts& facts, std::int64_t n, DotBf16 dot) {
  EngineShapes shapes;
  for (std::int64_t columns = cpu_widest_tile; columns >= cpu_narrowest_tile; columns /= 2) {
    auto engine = make_cpu_engine(facts, n, dot, columns);
    if (!shapes.empty() && shapes.back()->tile_n() == engine->tile_n()) continue;
    shapes.push_back(std::move(engine));
  }
  return shapes;
}

namespace {

/// How pairs of bf16 are multiplied, where both operands are; an f32 operand is never rounded.
DotBf16 dot_of(const Operands& operands, opencl::Runtime* runtime,
               std::vector<std::string>& notes) {
  if (runtime == nullptr || operands.a != DType::bf16 || operands.b != DType::bf16) {
    return DotBf16::none;
  }
  const auto verdict = dot_bf16_of(*runtime, runtime->keep<Gates>());
  if (!verdict.reason.empty()) notes.push_back("bf16 is widened to f32: " + verdict.reason);
  return verdict.dot;
}

/// Every register tile, the processor's own vectors first.
EngineShapes all_shapes(const opencl::DeviceFacts& facts, std::int64_t n, DotBf16 best) {
  EngineShapes all;
  for (const std::int64_t lanes :
       {cpu_lanes(facts), std::int64_t{16}, std::int64_t{8}, std::int64_t{4}}) {
    if (!all.empty() && lanes == cpu_lanes(facts)) continue;
    for (std::int64_t vectors = most_vectors(lanes); vectors > 0; vectors /= 2) {
      all.push_back(std::make_shared<CpuEngine>(facts, n, best, lanes, vectors));
      if (best == DotBf16::none) continue;
      all.push_back(std::make_shared<CpuEngine>(facts, n, DotBf16::none, lanes, vectors));
    }
  }
  return all;
}

}  // namespace

EngineEntry cpu_engine() {
  EngineEntry entry;
  entry.name = "cpu";
  entry.description = "OpenCL on CPUs: explicit vectors, one work-item per work-group";
  entry.why_unsupported = [](const opencl::DeviceFacts& facts,
                             const Operands&) -> std::optional<std::string> {
    if (!facts.is_cpu) return "the device is not a CPU; opencl.simt runs on any device";
    constexpr std::int64_t largest = 64;  // of the kernels with a work-item per element
    if (facts.max_work_group_size >= largest) return std::nullopt;
    return fmt::format("it needs work-groups of {}, the device allows {}", largest,
                       facts.max_work_group_size);
  };
  entry.shapes = [](const opencl::DeviceFacts& facts, const Operands& operands,
                    opencl::Runtime* runtime, std::vector<std::string>& notes) {
    return make_cpu_shapes(facts, operands.n, dot_of(operands, runtime, notes));
  };
  entry.variants = [](const opencl::DeviceFacts& facts, const Operands& operands,
                      opencl::Runtime* runtime, std::vector<std::string>& notes) {
    return all_shapes(facts, operands.n, dot_of(operands, runtime, notes));
  };
  return entry;
}

}  // namespace tessera::engines
