// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "host/engines/engine.hpp"

/// A call is cut into launches by a list of steps that its operator gives. Search, cost,
/// scratch memory, the order of launches and explanations are code over that list. A call has rows,
/// columns and a depth: its products visit tiles of columns by rows, and gradients have a depth.
namespace tessera::schedule {

/// The sizes of a call, or of a part that it treats at a time.
struct Extents {
  std::int64_t rows = 0, columns = 0, depth = 0;
};

/// The outermost loop of gradients.
enum class Order { rows, columns, depth };

/// The memory in which the results of the visited product wait for gradients.
enum class Results { nowhere, scratch, output, formed_again };

/// The memory in which an output is summed over the rows: the caller's, or f32 scratch for one
/// range of columns or for all of them.
enum class Sums { direct, range, all };

/// Looks go over all columns of a chunk of rows before the main phase.
enum class Phase : std::uint8_t { look, look_again, main };

/// The loops whose every turn runs a step. Of the other loops it runs in the first turn or the
/// last. A piece is the columns that one binding reaches, and has whole ranges.
enum Loops : std::uint8_t {
  once = 0,
  of_rows = 1,
  of_pieces = 2,
  of_ranges = 4,
  of_depth = 8,
  of_columns = of_pieces | of_ranges
};
enum class When : std::uint8_t { first, last };

/// Scratch, by its purpose. Steps that name the same region share its memory.
struct Region {
  const char* name = nullptr;
  std::int64_t words = 0;
};

/// One launch of a product: m rows of A in parts of at most `part_rows`, n columns of B, depth k.
struct Grid {
  std::int64_t m = 1, n = 1, k = 1;
  std::int64_t parts = 1, part_rows = 0;
};

/// The order in which the sums of a column of B are formed: its bits depend on nothing else that a
/// schedule decides.
struct SumOrder {
  std::int64_t lanes = 1;    ///< columns of a tile, side by side
  std::int64_t k_step = 1;   ///< words of k in a step
  std::int64_t k_parts = 1;  ///< parts of k, each with sums of its own
  std::int64_t range = 1;    ///< elements of k that a launch sums, after those of the ones before
  std::int64_t slice = 1;    ///< rows of A whose results are reduced together
};

/// A product of a call's steps, with the extents that no launch exceeds, as its engine cuts it.
struct Product {
  engines::Product product{};
  engines::Cut cut{};
};

/// The launches of one kernel that are alike: when they run, what each does, and its memory.
struct Step {
  const char* name = nullptr;  ///< of its product in explanations; nullptr: it copies or reduces
  int kernel = 0;              ///< the operator's own number
  /// Indices of Steps::products: that it multiplies, packs or writes, and a second one in the same
  /// kernel, whose B is the tile of the first.
  std::int8_t product = -1, second = -1;
  Phase phase = Phase::main;
  When when = When::first;
  std::uint8_t loops = once;
  bool is_counted = true;    ///< false: its time is too short to predict
  std::int64_t columns = 0;  ///< of the ranges that it runs in; 0: of any width
  std::int64_t times = 0;    ///< launches in a call; `Steps::add` multiplies it by the turns
  Grid grid{};
  SumOrder order{};
  /// Its work-groups need scratch for launches with so many parts of A; 0: for none.
  std::array<std::int64_t, 2> scratch_parts{};
  double bytes = 0.0;   ///< that a launch moves and the caches do not have
  double shared = 0.0;  ///< part of that: lines of memory that two work-groups write parts of
  std::array<Region, 2> regions{};
};

struct Schedule;

/// A call's steps in the order in which a turn runs them.
struct Steps {
  std::int64_t look_columns = 0;  ///< of a turn of a look
  std::int64_t main_rows = 0;     ///< of a turn of the main phase with the depth outside
  std::vector<Step> list{};
  std::vector<Product> products{};
  /// A look's slices of so many columns, each with statistics of its own, and their number.
  std::int64_t slice = 1, slices = 1;

  /// Ranges of one size among those that all columns are cut into.
  struct Kind {
    std::int64_t columns = 0, times = 0;
  };
  using Kinds = std::array<Kind, 4>;  ///< `times` may be 0
  static Kinds kinds_of(const Schedule& schedule, std::int64_t columns);
  /// The first step that multiplies; nullptr: none does.
  const Step* visited() const;
  const Product& product(const Step& step) const {
    return products[static_cast<std::size_t>(step.product)];
  }
  const Product* second(const Step& step) const {
    return step.second < 0 ? nullptr : &products[static_cast<std::size_t>(step.second)];
  }
  /// A step that runs in every turn of `loops`; `kind`: of its range, where it runs in each.
  Step& add(const Schedule& schedule, Phase phase, unsigned loops, const Kind& kind = {0, 1});
};

/// The decisions for one call, made before anything runs, and the steps that follow from them.
struct Schedule {
  const char* name = "";
  engines::Blocks blocks{};  ///< of the visited product
  BlockSource source = BlockSource::fallback;
  Extents all{};           ///< rows: that count, at most
  std::int64_t piece = 0;  ///< columns that one binding reaches
  Extents at{};            ///< at a time: a chunk of rows, a range of columns, a part of the depth
  Order order = Order::rows;
  Results results = Results::nowhere;
  Sums sums = Sums::direct;
  std::int64_t shrink = 1;  ///< of Engine::cut and groups
  std::int64_t scratch_words = 0;
  Steps steps{};  ///< of the one that is chosen

  std::int64_t chunks() const {
    return std::max<std::int64_t>(1, engines::ceil_div(all.rows, at.rows));
  }
  std::int64_t depths() const {
    return std::max<std::int64_t>(
        1, engines::ceil_div(all.depth, std::max<std::int64_t>(at.depth, 1)));
  }
  bool keeps_results() const { return results == Results::scratch || results == Results::output; }
};

/// Predicted time of a call (docs/performance.md, "What a schedule costs"). It is to be compared
/// with that of other schedules on the same device, not with a clock.
struct Cost {
  double multiply = 0.0;  ///< seconds: FLOPs / (those of the machine in a second * the share of it)
  double memory = 0.0;    ///< seconds: bytes / those of the memory in a second
  double launches = 0.0;  ///< seconds that the device waits for launches
  double bytes = 0.0;     ///< that the caches do not have
  double shared = 0.0;    ///< of `memory`: Step::shared
  std::vector<PlannedLaunches> products{};  ///< in the order of the first launch of each
  double seconds() const { return multiply + memory + launches; }
};
Cost cost_of(const Steps& steps, std::int64_t shrink, const engines::Engine& engine);

/// Bytes that miss the caches: of what a step uses again, and of what one launch stores for the
/// next ones.
struct Caches {
  explicit Caches(const engines::Engine& engine, const engines::Rates& rates)
      : again(rates.cached_bytes), next(4.0 * static_cast<double>(engine.cached_words())) {}
  double missed(double bytes) const { return bytes <= again ? 0.0 : bytes; }
  double missed_next(double bytes) const { return bytes <= next ? 0.0 : bytes; }
  double again, next;
};

/// The scratch regions of a list of steps. It counts them where there is no memory, and hands them
/// out where there is.
class Arena {
 public:
  /// The region that steps that multiply share: tiles and packed operands of work-groups.
  static constexpr char groups[] = "packed operands and tiles of work-groups";

  Arena(const Steps& steps, std::int64_t shrink, const engines::Engine& engine);
  const std::vector<Region>& regions() const { return regions_; }
  std::int64_t words(const char* name) const;
  std::int64_t total() const;  ///< each rounded up as memory is
  std::int64_t largest() const;
  void take(opencl::Call& call);
  /// After `take`. No step has a region of that name: no memory.
  opencl::Scratch operator[](const char* name) const;

 private:
  void add(const Region& region);
  std::vector<Region> regions_;  ///< in the order of the steps
  std::vector<opencl::Scratch> memory_;
};

}  // namespace tessera::schedule
