// SPDX-License-Identifier: Apache-2.0
#include <span>
#include <vector>

#include "reference/streaming/linear_memory.hpp"

namespace tessera::streaming {
namespace {

/// Below this a chunk reads all of w for too few rows, and walking w once more pays.
constexpr std::int64_t good_rows = 64;
/// Chunks larger than this gain nothing: one read of w already serves thousands of operations.
constexpr std::int64_t enough_rows = 4096;

class Planner {
 public:
  Planner(const LinearShape& shape, const LinearBlocks& blocks, std::int64_t v_block,
          std::int64_t h_block, int threads, std::int64_t limit, bool strict,
          const Kernels& kernels)
      : shape_(shape), limit_(limit), strict_(strict), kernels_(kernels) {
    plan_.threads = threads;
    plan_.form = shape.form;
    plan_.teacher = shape.teacher;
    plan_.v_block = v_block;
    plan_.h_block = h_block;
    all_blocks_ = ceil_div(shape.v, v_block);
    most_rows_ = std::max<std::int64_t>(1, shape.rows);
    if (blocks.b > 0) most_rows_ = std::min(most_rows_, blocks.b);
  }

  std::optional<LinearPlan> plan(std::int64_t min_rows) {
    if (!shape_.gradients()) return try_ways("streamed", with_mix(values(), {}), min_rows);
    if (shape_.values) return plan_value_and_grad(min_rows);
    return plan_backward(min_rows);
  }

  std::int64_t bytes(const Sweep& sweep, std::int64_t* growing = nullptr) const {
    Arena counter(nullptr);
    const auto g = geometry(shape_.h, shape_.v, sweep, plan_.v_block, plan_.h_block, plan_.threads,
                            shape_.form);
    lay_out(counter, shape_.h, shape_.v, sweep, g, plan_.threads, shape_.teacher, kernels_,
            growing);
    return counter.used();
  }

 private:
  enum class Chunks { any, one };

  Sweep values() const {
    Sweep s;
    s.values = true;
    return s;
  }
  /// A sweep for values that stores no logits, the second look that a teacher may ask for, and what
  /// follows.
  std::vector<Sweep> with_mix(const Sweep& values, std::vector<Sweep> rest) const {
    if (shape_.teacher.mixes && !values.stored) {
      Sweep mix;
      mix.mixes = true;
      rest.insert(rest.begin(), mix);
    }
    rest.insert(rest.begin(), values);
    return rest;
  }
  Sweep gradients(bool grad_x, bool grad_w) const {
    Sweep s;
    s.stored = true;
    s.grad_x = grad_x;
    s.grad_w = grad_w;
    s.grad_bias = grad_w ? shape_.grad_bias : (shape_.grad_bias && !shape_.grad_w);
    return s;
  }

  std::optional<LinearPlan> plan_value_and_grad(std::int64_t min_rows) {
    Sweep all = gradients(shape_.grad_x, shape_.grad_w);
    all.values = true;
    if (auto plan = try_ways("one_chunk", {all}, min_rows, Chunks::one)) return plan;
    if (auto plan = try_ways("chunked", {all}, min_rows)) return plan;
    // Statistics (and grad_x, whose sums run along a row) first, then grad_w range by range: 8BHV.
    Sweep grad_w = gradients(false, true);
    grad_w.v_outer = true;
    if (shape_.grad_w) {
      Sweep rest = shape_.grad_x ? gradients(true, false) : values();
      rest.values = true;
      rest.grad_bias = false;
      if (auto plan = try_ways("v_outer", with_mix(rest, {grad_w}), min_rows)) return plan;
    }
    // Not even a few rows of logits fit: ranges of columns after a pass for the statistics.
    Sweep grad_x = gradients(shape_.grad_x, shape_.grad_w && shape_.grad_w_f32);
    if (!shape_.grad_w || shape_.grad_w_f32) {
      return try_ways("v_outer", with_mix(values(), {grad_x}), min_rows);
    }
    return std::nullopt;
  }

  std::optional<LinearPlan> plan_backward(std::int64_t min_rows) {
    Sweep all = gradients(shape_.grad_x, shape_.grad_w);
    if (auto plan = try_ways("one_chunk", {all}, min_rows, Chunks::one)) return plan;
    if (auto plan = try_ways("chunked", {all}, min_rows)) return plan;
    Sweep grad_w = gradients(shape_.grad_x && shape_.grad_x_f32, true);
    grad_w.v_outer = true;
    if (!shape_.grad_x || shape_.grad_x_f32) return try_ways("v_outer", {grad_w}, min_rows);
    // Neither gradient can hold partial sums: each gets a walk of its own.
    Sweep grad_x = gradients(true, false);
    return try_ways("v_outer", {grad_x, grad_w}, min_rows);
  }

  std::optional<LinearPlan> try_ways(const char* schedule, const std::vector<Sweep>& sweeps,
                                     std::int64_t min_rows, Chunks chunks = Chunks::any) {
    LinearPlan plan = plan_;
    plan.schedule = schedule;
    for (const Sweep& sweep : sweeps) {
      Sweep fitted = sweep;
      if (!fit(fitted, min_rows, chunks)) return std::nullopt;
      plan.sweeps[plan.sweep_count++] = fitted;
      plan.workspace_bytes = std::max(plan.workspace_bytes, bytes(fitted));
      // All rows at once, but the columns in ranges.
      if (chunks == Chunks::one && fitted.blocks < all_blocks_) plan.schedule = "v_outer";
    }
    return plan;
  }

  /// Chooses rows and blocks: the most rows that fit, then the most blocks.
  bool fit(Sweep& s, std::int64_t min_rows, Chunks chunks) const {
    const std::int64_t all_rows = std::max<std::int64_t>(1, shape_.rows);
    if (chunks == Chunks::one) return most_rows_ >= all_rows && fit_blocks(s, all_rows, 1);
    std::int64_t count = ceil_div(all_rows, std::min(most_rows_, enough_rows));
    for (std::int64_t last = 0;; count = std::max(count + 1, count * 5 / 4)) {
      const std::int64_t rows = ceil_div(all_rows, count);
      if (rows == last) continue;
      last = rows;
      if (rows < std::min({min_rows, all_rows, most_rows_})) return false;
      if (fit_blocks(s, rows, ceil_div(all_rows, rows))) return true;
      if (rows == 1) return false;
    }
  }

  bool fit_blocks(Sweep& s, std::int64_t rows, std::int64_t chunks) const {
    s.rows = rows;
    s.w_accumulator = s.grad_w && !shape_.grad_w_f32 && chunks > 1;
    // Statistics need whole rows, unless the logits are thrown away.
    const std::int64_t least = s.values || !s.stored ? all_blocks_ : 1;
    for (s.blocks = all_blocks_; s.blocks >= least;
         s.blocks = s.blocks > 1 ? (s.blocks + 1) / 2 : 0) {
      s.x_accumulator = s.grad_x && !shape_.grad_x_f32 && s.blocks < all_blocks_;
      std::int64_t growing = 0;
      const std::int64_t total = bytes(s, &growing);
      if ((strict_ ? total : growing) <= limit_) return true;
    }
    return false;
  }

  const LinearShape& shape_;
  std::int64_t limit_;
  bool strict_;
  const Kernels& kernels_;
  LinearPlan plan_;
  std::int64_t all_blocks_ = 0;
  std::int64_t most_rows_ = 0;
};

/// Edges of blocks to try, best first: 512 columns keep a block of logits in the second-level cache
/// and make packing a few percent; the smaller ones are for small workspaces. 64 is the smallest
/// with which Eigen's kernel still works at a good part of its speed.
constexpr std::int64_t good_edges[] = {512, 256, 128, 64};
/// When even a row at a time does not fit with those. 16 is a line of f32.
constexpr std::int64_t small_edges[] = {32, 16};

std::int64_t clipped(std::int64_t block, std::int64_t extent) {
  return std::max<std::int64_t>(1, std::min(block, extent));
}

}  // namespace

std::optional<LinearPlan> plan_linear(const LinearShape& shape, const LinearBlocks& blocks,
                                      std::int64_t limit, bool strict, const Kernels& kernels) {
  const auto plan_with = [&](int threads, std::span<const std::int64_t> edges) {
    for (const std::int64_t min_rows : {good_rows, std::int64_t{1}}) {
      for (const std::int64_t edge : edges) {
        Planner planner(shape, blocks, clipped(blocks.v > 0 ? blocks.v : edge, shape.v),
                        clipped(blocks.h > 0 ? blocks.h : edge, shape.h), threads, limit, strict,
                        kernels);
        if (auto plan = planner.plan(min_rows)) return plan;
      }
    }
    return std::optional<LinearPlan>();
  };
  // Fewer threads come last: that is the one step that is sure to cost its part of the speed.
  for (int threads = shape.threads;; threads /= 2) {
    if (auto plan = plan_with(threads, good_edges)) return plan;
    if (auto plan = plan_with(threads, small_edges)) return plan;
    if (threads <= 1) return std::nullopt;
  }
}

std::int64_t minimum_workspace(const LinearShape& shape, const LinearBlocks& blocks,
                               const Kernels& kernels) {
  // Whatever fits into a limit fits into a larger one, so halving finds the least.
  std::int64_t too_small = 0;
  std::int64_t enough = 4096;
  for (; !plan_linear(shape, blocks, enough, true, kernels); enough *= 2) too_small = enough;
  while (enough - too_small > 1) {
    const std::int64_t middle = too_small + (enough - too_small) / 2;
    const auto plan = plan_linear(shape, blocks, middle, true, kernels);
    // What the plan does take is at most the limit, and saves most of the steps.
    (plan ? enough : too_small) = plan ? plan->workspace_bytes : middle;
  }
  return enough;
}

}  // namespace tessera::streaming
