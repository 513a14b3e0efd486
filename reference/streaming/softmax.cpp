// SPDX-License-Identifier: Apache-2.0
#include "reference/streaming/softmax.hpp"

#include <algorithm>

#include "reference/streaming/spans.hpp"

namespace tessera::streaming {
namespace {

/// 8 KiB of f32: a block is still in the first-level cache when it is read for the second time.
constexpr std::int64_t default_v_block = 2048;
/// Smaller blocks are for small workspaces; below this one is not worth its start.
constexpr std::int64_t least_v_block = 64;
/// A thread that starts late then costs at most a quarter of a task list.
constexpr std::int64_t tasks_per_thread = 4;
/// Columns per task below which handing it out costs as much as doing it.
constexpr std::int64_t min_task_columns = 16384;

/// Where a call's scratch arrays are.
struct Scratch {
  float* blocks;
  float* targets;             ///< TargetForm::scratch of each worker
  RowSums* parts;             ///< [rows][slices]
  RowGradient* coefficients;  ///< [rows]
};

Scratch lay_out(Arena& arena, std::int64_t rows, const SoftmaxPlan& plan) {
  Scratch m = {};
  m.blocks = arena.take<float>(plan.threads * round_up(plan.v_block, lane_quantum));
  m.targets = arena.take<float>(plan.threads * plan.form.scratch(plan.v_block));
  if (plan.slices > 1) {
    m.parts = arena.take<RowSums>(rows * plan.slices);
    m.coefficients = arena.take<RowGradient>(rows);
  }
  return m;
}

class Stream {
 public:
  Stream(const SoftmaxProblem& problem, const SoftmaxPlan& plan, const Kernels& kernels,
         const Scratch& memory)
      : p_(problem), plan_(plan), kernels_(kernels), memory_(memory) {}

  float* block(int worker) const {
    return memory_.blocks + worker * round_up(plan_.v_block, lane_quantum);
  }
  float* targets(int worker) const {
    return memory_.targets + worker * plan_.form.scratch(plan_.v_block);
  }

  /// Slices are whole blocks, as even as their number allows.
  std::int64_t slice_begin(std::int64_t slice) const {
    const std::int64_t blocks = ceil_div(p_.v, plan_.v_block);
    return std::min(p_.v, slice * blocks / plan_.slices * plan_.v_block);
  }

  void load(std::int64_t row, std::int64_t column, std::int64_t n, float* logits) const {
    const auto* base = static_cast<const char*>(p_.logits);
    kernels_.load(base + (p_.offsets[row] + column * p_.stride) * bytes_of(p_.type), p_.type,
                  p_.stride, n, logits);
    kernels_.finish(logits, n, nullptr, p_.scale, p_.cap);
  }

  void values(std::int64_t row, std::int64_t begin, std::int64_t end, int worker,
              RowSums& sums) const {
    sums = RowSums{};
    float* logits = block(worker);
    for (std::int64_t column = begin; column < end; column += plan_.v_block) {
      const std::int64_t n = std::min(plan_.v_block, end - column);
      const float* c = p_.class_weight != nullptr ? p_.class_weight + column : nullptr;
      load(row, column, n, logits);
      add_columns(p_, kernels_, row, column, n, logits, p_.class_terms ? sum_of(c, n) : 0.0,
                  targets(worker), sums);
    }
  }

  RowGradient coefficients(std::int64_t row) const {
    return row_gradient(p_.cotangents[row], p_.sums[row].max, p_.sums[row].sum,
                        p_.logsumexp_weight);
  }

  void gradient(std::int64_t row, std::int64_t begin, std::int64_t end, const RowGradient& g,
                int worker) const {
    auto* target = static_cast<char*>(p_.grad_logits);
    float* dz = block(worker);
    for (std::int64_t column = begin; column < end; column += plan_.v_block) {
      const std::int64_t n = std::min(plan_.v_block, end - column);
      load(row, column, n, dz);
      differentiate_columns(p_, kernels_, row, column, n, g, dz, targets(worker));
      kernels_.store(
          dz, n, target + (p_.grad_offsets[row] + column * p_.grad_stride) * bytes_of(p_.grad_type),
          p_.grad_type, p_.grad_stride, p_.accumulate);
    }
  }

 private:
  const SoftmaxProblem& p_;
  const SoftmaxPlan& plan_;
  const Kernels& kernels_;
  const Scratch& memory_;
};

/// One task reads whole rows: values and gradient follow each other while the row is in cache.
void run_rows(const SoftmaxProblem& p, const SoftmaxPlan& plan, const Environment& environment,
              const Stream& stream) {
  const std::int64_t rows = p.values ? p.rows : p.gradient_rows;
  const std::int64_t tasks = ceil_div(rows, plan.rows_per_task);
  if (tasks == 0) return;
  parallel_for(environment, plan.threads, "rows", tasks, [&](std::int64_t task, int worker) {
    const std::int64_t last = std::min(rows, (task + 1) * plan.rows_per_task);
    for (std::int64_t row = task * plan.rows_per_task; row < last; ++row) {
      if (p.values) stream.values(row, 0, p.v, worker, p.sums[row]);
      if (p.grad_logits != nullptr && row < p.gradient_rows) {
        stream.gradient(row, 0, p.v, stream.coefficients(row), worker);
      }
    }
  });
}

/// Few long rows: several tasks share a row.
void run_slices(const SoftmaxProblem& p, const SoftmaxPlan& plan, const Environment& environment,
                const Stream& stream, const Scratch& memory) {
  const auto each_slice = [&](const char* phase, std::int64_t rows, const auto& body) {
    if (rows == 0) return;
    const auto run = [&](std::int64_t task, int worker) {
      const std::int64_t slice = task % plan.slices;
      body(task, task / plan.slices, stream.slice_begin(slice), stream.slice_begin(slice + 1),
           worker);
    };
    parallel_for(environment, plan.threads, phase, rows * plan.slices, run);
  };
  if (p.values) {
    each_slice("values", p.rows,
               [&](std::int64_t task, std::int64_t row, std::int64_t begin, std::int64_t end,
                   int worker) { stream.values(row, begin, end, worker, memory.parts[task]); });
    for (std::int64_t row = 0; row < p.rows; ++row) {
      p.sums[row] = memory.parts[row * plan.slices];
      for (std::int64_t slice = 1; slice < plan.slices; ++slice) {
        merge_into(memory.parts[row * plan.slices + slice], p.sums[row]);
      }
    }
  }
  if (p.grad_logits == nullptr) return;
  for (std::int64_t row = 0; row < p.gradient_rows; ++row) {
    memory.coefficients[row] = stream.coefficients(row);
  }
  each_slice("gradient", p.gradient_rows,
             [&](std::int64_t, std::int64_t row, std::int64_t begin, std::int64_t end, int worker) {
               stream.gradient(row, begin, end, memory.coefficients[row], worker);
             });
}

SoftmaxPlan plan_with(std::int64_t rows, std::int64_t v, const TargetForm& form,
                      std::int64_t b_block, std::int64_t v_block, int threads) {
  SoftmaxPlan plan;
  plan.form = form;
  plan.threads = threads;
  plan.v_block = std::max<std::int64_t>(1, std::min(v_block, v));
  const std::int64_t some_rows = std::max<std::int64_t>(1, rows);
  const std::int64_t tasks = tasks_per_thread * threads;
  const std::int64_t blocks = ceil_div(v, plan.v_block);
  const std::int64_t useful = ceil_div(v, std::max(plan.v_block, min_task_columns));
  plan.slices = threads == 1 || some_rows >= tasks
                    ? 1
                    : std::clamp<std::int64_t>(ceil_div(tasks, some_rows), 1,
                                               std::max<std::int64_t>(1, std::min(blocks, useful)));
  plan.schedule = plan.slices > 1 ? "sliced" : "streamed";
  // Short rows are handed out in bundles.
  const std::int64_t bundle =
      std::max<std::int64_t>(1, min_task_columns / std::max<std::int64_t>(1, v));
  plan.rows_per_task =
      std::clamp<std::int64_t>(some_rows / tasks, std::min(bundle, some_rows), some_rows);
  if (b_block > 0) plan.rows_per_task = std::min(plan.rows_per_task, b_block);
  Arena counter(nullptr);
  lay_out(counter, some_rows, plan);
  plan.workspace_bytes = counter.used();
  return plan;
}

}  // namespace

SoftmaxPlan plan_softmax(std::int64_t rows, std::int64_t v, const TargetForm& form,
                         std::int64_t b_block, std::int64_t v_block, int threads,
                         std::int64_t limit) {
  // Blocks shrink first: they cost little until they are short.
  for (;; threads = std::max(1, threads / 2)) {
    for (std::int64_t block = v_block > 0 ? v_block : default_v_block;; block /= 2) {
      const SoftmaxPlan plan = plan_with(rows, v, form, b_block, block, threads);
      const bool last = v_block > 0 || block <= least_v_block;
      if (plan.workspace_bytes <= limit || (last && threads == 1)) return plan;
      if (last) break;
    }
  }
}

void run_softmax(const SoftmaxProblem& problem, const SoftmaxPlan& plan,
                 const Environment& environment, void* workspace) {
  Arena arena(workspace);
  const Scratch memory = lay_out(arena, std::max<std::int64_t>(1, problem.rows), plan);
  const Stream stream(problem, plan,
                      environment.kernels != nullptr ? *environment.kernels : kernels(), memory);
  if (plan.slices > 1) {
    run_slices(problem, plan, environment, stream, memory);
  } else {
    run_rows(problem, plan, environment, stream);
  }
}

}  // namespace tessera::streaming
