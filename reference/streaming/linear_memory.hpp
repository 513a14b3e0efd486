// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "reference/streaming/linear.hpp"

/// How a sweep divides its work and its scratch memory; shared by the planner, which counts, and
/// the runner, which takes.
namespace tessera::streaming {

/// How many tasks each thread gets at least where there is enough work: a thread that starts late
/// then costs at most a quarter of a task list.
inline constexpr std::int64_t tasks_per_thread = 4;
/// Fewer rows than this per task and packing w again costs more than an idle thread.
inline constexpr std::int64_t min_task_rows = 64;

/// A block of this many rows and 512 columns stays in the second- or third-level cache until its
/// statistics are taken, and reads of w are spread over enough rows.
inline constexpr std::int64_t max_logit_rows = 1024;

struct SweepGeometry {
  std::int64_t v_block, h_block;
  std::int64_t v_blocks, h_blocks;  ///< of the whole problem
  std::int64_t ld;                  ///< floats from one row of a block of logits to the next
  std::int64_t logit_rows;          ///< rows per task that computes logits
  std::int64_t slices;              ///< runs of blocks, each with statistics of its own
  std::int64_t grad_x_rows, grad_x_depths;     ///< per task that computes grad_x
  std::int64_t grad_w_depths, grad_w_columns;  ///< per task that computes grad_w
  std::int64_t column_parts;                   ///< tasks that share a block when logits become dz
  std::int64_t target_floats;                  ///< TargetForm::scratch
};

inline std::int64_t task_rows(std::int64_t rows, std::int64_t other_tasks, int threads) {
  const std::int64_t wanted =
      ceil_div(tasks_per_thread * threads, std::max<std::int64_t>(1, other_tasks));
  const std::int64_t parts = std::clamp<std::int64_t>(rows / min_task_rows, 1, wanted);
  return std::max<std::int64_t>(1, ceil_div(rows, parts));
}

/// Below this Eigen's kernel packs its operands for too few products.
inline constexpr std::int64_t min_task_edge = 64;

/// How much of a block one task takes, where the rest of the work comes in `other_tasks` parts:
/// `extent` is cut until each thread has two tasks, since an idle thread costs more than packing
/// operands more often.
inline std::int64_t task_edge(std::int64_t extent, std::int64_t block, std::int64_t other_tasks,
                              int threads) {
  const std::int64_t wanted =
      ceil_div(std::int64_t{2} * threads, std::max<std::int64_t>(1, other_tasks));
  const std::int64_t even = round_up(ceil_div(extent, wanted), lane_quantum);
  return std::min(block, std::max(min_task_edge, even));
}

/// Tasks that compute logits: rows of each, and slices that blocks of columns are divided into.
struct LogitTasks {
  std::int64_t rows, slices;
  /// In rows of a block, until the last of `threads` is done.
  std::int64_t time(std::int64_t all_rows, std::int64_t blocks, int threads) const {
    return ceil_div(ceil_div(all_rows, rows) * slices, threads) * rows * ceil_div(blocks, slices);
  }
};

/// As many as give each thread tasks_per_thread, or up to twice as many rows or slices where the
/// threads then finish closer together.
inline LogitTasks logit_tasks(std::int64_t all_rows, std::int64_t blocks, int threads) {
  const std::int64_t most_rows = std::min(task_rows(all_rows, blocks, threads), max_logit_rows);
  const std::int64_t parts = ceil_div(std::max<std::int64_t>(1, all_rows), most_rows);
  LogitTasks best = {most_rows, std::min(blocks, ceil_div(tasks_per_thread * threads, parts))};
  if (blocks <= 1 || all_rows <= 1) return best;
  const std::int64_t longest = ceil_div(blocks, best.slices);
  for (std::int64_t some = parts; some <= 2 * parts; ++some) {
    const std::int64_t rows = ceil_div(all_rows, some);
    if (some > parts && rows < min_task_rows) break;
    for (std::int64_t each = longest; each >= 1 && 2 * each >= longest; --each) {
      const LogitTasks tasks = {some > parts ? rows : most_rows, ceil_div(blocks, each)};
      // More tasks cost a little, so they must save a twentieth.
      if (20 * tasks.time(all_rows, blocks, threads) < 19 * best.time(all_rows, blocks, threads)) {
        best = tasks;
      }
    }
  }
  return best;
}

inline SweepGeometry geometry(std::int64_t h, std::int64_t v, const Sweep& sweep,
                              std::int64_t v_block, std::int64_t h_block, int threads,
                              const TargetForm& form) {
  SweepGeometry g;
  g.target_floats = form.scratch(v_block);
  g.v_block = v_block;
  g.h_block = h_block;
  g.v_blocks = ceil_div(v, v_block);
  g.h_blocks = ceil_div(h, h_block);
  // One line more than the block: rows a power of two apart would share the sets of the cache.
  g.ld = round_up(v_block, lane_quantum) + lane_quantum;
  const LogitTasks logits = logit_tasks(sweep.rows, sweep.blocks, threads);
  g.logit_rows = logits.rows;
  g.slices = logits.slices;
  g.grad_x_rows = task_rows(sweep.rows, g.h_blocks, threads);
  g.grad_x_depths = task_edge(h, h_block, ceil_div(sweep.rows, g.grad_x_rows), threads);
  g.grad_w_depths = task_edge(h, h_block, sweep.blocks, threads);
  g.grad_w_columns =
      task_edge(v_block, v_block, sweep.blocks * ceil_div(h, g.grad_w_depths), threads);
  g.column_parts = std::clamp<std::int64_t>(
      ceil_div(tasks_per_thread * threads, std::max<std::int64_t>(1, sweep.blocks)), 1,
      std::max<std::int64_t>(1, v_block / 64));
  return g;
}

struct WorkerMemory {
  float* block;
  float* panel;
  float* gemm;
  float* column_sums;
  float* targets;
  float* teacher;  ///< a block of the teacher's logits, where they are not stored
};

struct SweepMemory {
  float* x;                   ///< [rows, h]: rows of x that cannot be read in place
  float* logits;              ///< [blocks][rows, ld]
  float* teacher_x;           ///< as x
  float* teacher_logits;      ///< as logits
  DistillSums* distilled;     ///< [slices][rows]
  DistillRow* distill_rows;   ///< [rows]
  RowSums* parts;             ///< [slices][rows]
  RowGradient* coefficients;  ///< [rows]
  float* w_sums;              ///< [h, v] or [h, blocks * v_block], in the orientation of grad_w
  float* x_sums;              ///< [rows, h]
  double* bias_sums;          ///< [v]
  double* class_sums;         ///< [v_blocks]
  std::int64_t gemm_floats;
  WorkerMemory first;  ///< worker 0; the others follow, `worker_floats` apart
  std::int64_t worker_floats;

  WorkerMemory worker(int index) const {
    const std::int64_t skip = index * worker_floats;
    return {first.block + skip,       first.panel + skip,   first.gemm + skip,
            first.column_sums + skip, first.targets + skip, first.teacher + skip};
  }
};

/// `growing` receives the bytes that grow with columns or chunks.
inline SweepMemory lay_out(Arena& arena, std::int64_t h, std::int64_t v, const Sweep& s,
                           const SweepGeometry& g, int threads, const TeacherShape& teacher,
                           const Kernels& kernels, std::int64_t* growing) {
  SweepMemory m = {};
  const std::int64_t range = std::min(v, s.blocks * g.v_block);
  m.x = arena.take<float>(s.rows * h);
  if (s.stored) m.logits = arena.take<float>(s.blocks * s.rows * g.ld);
  if (s.values) m.parts = arena.take<RowSums>(g.slices * s.rows);
  if (s.stored) m.coefficients = arena.take<RowGradient>(s.rows);
  if (teacher.given) {
    m.teacher_x = arena.take<float>(s.rows * teacher.h);
    if (s.stored) m.teacher_logits = arena.take<float>(s.blocks * s.rows * g.ld);
    if (s.values || s.mixes) m.distilled = arena.take<DistillSums>(g.slices * s.rows);
    m.distill_rows = arena.take<DistillRow>(s.rows);
  }
  const std::int64_t w_columns = s.v_outer ? s.blocks * g.v_block : v;
  if (s.w_accumulator) m.w_sums = arena.take<float>(h * w_columns);
  if (s.x_accumulator) m.x_sums = arena.take<float>(s.rows * h);
  if (s.grad_bias) m.bias_sums = arena.take<double>(v);
  m.class_sums = arena.take<double>(g.v_blocks);

  const std::int64_t most_floats =
      std::max({s.stored ? 0 : g.logit_rows * g.ld, s.grad_x ? g.grad_x_rows * g.h_block : 0,
                s.grad_w ? g.h_block * g.v_block : 0});
  m.gemm_floats = kernels.gemm_scratch(g.v_block, g.logit_rows, g.h_block);
  if (s.grad_x) {
    m.gemm_floats =
        std::max(m.gemm_floats, kernels.gemm_scratch(g.h_block, g.grad_x_rows, g.v_block));
  }
  if (s.grad_w) {
    m.gemm_floats = std::max({m.gemm_floats, kernels.gemm_scratch(g.v_block, g.h_block, s.rows),
                              kernels.gemm_scratch(g.h_block, g.v_block, s.rows)});
  }
  m.gemm_floats = std::max(m.gemm_floats, min_gemm_scratch);
  const auto line = [](std::int64_t floats) { return round_up(floats, lane_quantum); };
  const std::int64_t block_floats = line(most_floats);
  const std::int64_t panel_floats = line(g.h_block * g.v_block);
  const std::int64_t gemm_floats = line(m.gemm_floats);
  const std::int64_t sums_floats = s.grad_bias ? line(g.v_block) : 0;
  const std::int64_t teacher_floats = teacher.given && !s.stored ? line(g.logit_rows * g.ld) : 0;
  m.worker_floats =
      block_floats + panel_floats + gemm_floats + sums_floats + g.target_floats + teacher_floats;
  float* workers = arena.take<float>(m.worker_floats * threads);
  if (workers != nullptr) {
    float* sums = workers + block_floats + panel_floats + gemm_floats;
    m.first = {workers, workers + block_floats, workers + block_floats + panel_floats,
               sums,    sums + sums_floats,     sums + sums_floats + g.target_floats};
  }
  if (growing != nullptr) {
    // A macro-block of rows of x is overhead like the blocks of threads; more is a choice.
    const bool many_rows = s.rows > 1024;
    *growing = 4 * ((s.stored ? s.rows * range * (teacher.given ? 2 : 1) : 0) +
                    (s.w_accumulator ? h * w_columns : 0) +
                    (many_rows ? s.rows * h * (s.x_accumulator ? 2 : 1) : 0));
  }
  return m;
}

}  // namespace tessera::streaming
