// SPDX-License-Identifier: Apache-2.0
// Which share of its threads `eigen` keeps busy on machines that are not here, by its plans.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <queue>
#include <vector>

#include "host/arguments/workspace.hpp"
#include "reference/streaming/linear_memory.hpp"
#include "tests/support/runner.hpp"

namespace tessera::streaming {
namespace {

/// FLOPs of tasks that threads take one after the other, in order, and how long those work for whom
/// all of them wait.
class Tasks {
 public:
  explicit Tasks(int threads) {
    for (int i = 0; i < threads; ++i) free_at_.push(0.0);
  }
  void add(std::int64_t m, std::int64_t n, std::int64_t k) {
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n * k);
    const double end = free_at_.top() + flops;
    free_at_.pop();
    free_at_.push(end);
    total_ += flops;
    last_ = std::max(last_, end);
  }
  double total() const { return total_; }
  double time() const { return last_ * static_cast<double>(free_at_.size()); }

 private:
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at_;
  double total_ = 0.0, last_ = 0.0;
};

struct Share {
  double flops = 0.0, time = 0.0;
  void add(const Tasks& tasks, std::int64_t times) {
    flops += tasks.total() * static_cast<double>(times);
    time += tasks.time() * static_cast<double>(times);
  }
  double value() const { return flops / time; }
};

/// Logits, and gradients, of one chunk and range: the tasks of linear_values.hpp and linear.cpp.
void add_sweep(const LinearShape& shape, const LinearPlan& plan, const Sweep& s, Share& share) {
  const SweepGeometry g =
      geometry(shape.h, shape.v, s, plan.v_block, plan.h_block, plan.threads, plan.form);
  const std::int64_t times = ceil_div(shape.rows, s.rows) * ceil_div(g.v_blocks, s.blocks);
  const auto rows_of = [&](std::int64_t task, std::int64_t each) {
    return std::min(each, s.rows - task * each);
  };
  Tasks logits(plan.threads), products(plan.threads);
  for (std::int64_t slice = 0; slice < g.slices; ++slice) {
    const std::int64_t blocks = (slice + 1) * s.blocks / g.slices - slice * s.blocks / g.slices;
    for (std::int64_t task = 0; task < ceil_div(s.rows, g.logit_rows); ++task) {
      logits.add(rows_of(task, g.logit_rows), blocks * g.v_block, shape.h);
    }
  }
  share.add(logits, times);
  if (!s.grad_x && !s.grad_w) return;
  const auto for_depths = [&](std::int64_t each, const auto& add) {
    for (std::int64_t h = 0; h < shape.h; h += each) add(std::min(each, shape.h - h));
  };
  if (s.grad_x) {
    for_depths(g.grad_x_depths, [&](std::int64_t depths) {
      for (std::int64_t task = 0; task < ceil_div(s.rows, g.grad_x_rows); ++task) {
        products.add(rows_of(task, g.grad_x_rows), depths, s.blocks * g.v_block);
      }
    });
  }
  for (std::int64_t block = 0; s.grad_w && block < s.blocks; ++block) {
    for_depths(g.grad_w_depths, [&](std::int64_t depths) {
      for (std::int64_t v = 0; v < g.v_block; v += g.grad_w_columns) {
        products.add(s.rows, depths, std::min(g.grad_w_columns, g.v_block - v));
      }
    });
  }
  share.add(products, times);
}

TEST(StreamingShares, ManyThreadsHaveWork) {
  struct Model {
    std::int64_t h, v;
  };
  constexpr Model models[] = {{384, 30522},   {768, 50257},   {2304, 256000}, {2560, 262144},
                              {2880, 201088}, {4096, 128256}, {7168, 129280}};
  for (const int threads : {2, 8, 16, 32, 64, 128, 192}) {
    for (const bool values : {true, false}) {
      for (const bool gradients : {true, false}) {
        if (!values && !gradients) continue;
        Share all;
        for (const Model& model : models) {
          for (const std::int64_t b : {512, 2048, 8192}) {
            LinearShape shape;
            shape.rows = b;
            shape.h = model.h;
            shape.v = model.v;
            shape.values = values;
            shape.grad_x = shape.grad_w = gradients;
            shape.threads = threads;
            const auto plan = plan_linear(
                shape, {}, arguments::default_workspace_bytes(model.v, threads), false, kernels());
            ASSERT_TRUE(plan.has_value());
            EXPECT_EQ(plan->threads, threads);
            Share one;
            for (int i = 0; i < plan->sweep_count; ++i) {
              add_sweep(shape, *plan, plan->sweeps[i], one);
              add_sweep(shape, *plan, plan->sweeps[i], all);
            }
            // H 384 has six tasks of grad_x for every 64 rows, too few for 192 threads at B 512.
            EXPECT_GE(one.value(), b * model.h <= 1024 * threads ? 0.5 : 0.75)
                << threads << " threads, B " << b << ", H " << model.h << ": " << plan->schedule;
          }
        }
        fmt::print("{} threads{}{}: {:.1f}%\n", threads, values ? ", values" : "",
                   gradients ? ", gradients" : "", 100 * all.value());
        EXPECT_GE(all.value(), 0.92);
      }
    }
  }
}

/// Blocks of w, x and dz whose products several threads share.
TEST(StreamingShares, ManyThreadsAreRight) {
  Context context({.threads = 64, .host_only = true});
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const test::WLayout layout : {test::WLayout::vh, test::WLayout::hv}) {
      test::Case c;
      c.name = fmt::format("threads_{}_{}", to_string(type), static_cast<int>(layout));
      c.b = 200;
      c.h = 150;
      c.v = 1100;
      c.x_type = c.w_type = type;
      c.w_layout = layout;
      c.bias = true;
      for (const Pass pass : {Pass::backward, Pass::value_and_grad}) {
        EXPECT_TRUE(test::run_case(context, "eigen", pass, c)) << to_string(pass);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::streaming
