// SPDX-License-Identifier: Apache-2.0
#include "reference/streaming/linear.hpp"

#include <algorithm>
#include <cstring>

#include "reference/streaming/linear_memory.hpp"
#include "reference/streaming/spans.hpp"

namespace tessera::streaming {
namespace {

class Walk {
 public:
  Walk(const LinearProblem& problem, const LinearPlan& plan, const Sweep& sweep,
       const Environment& environment, const Kernels& kernels, void* workspace)
      : p_(problem),
        s_(sweep),
        environment_(environment),
        kernels_(kernels),
        threads_(plan.threads),
        g_(geometry(p_.h, p_.v, sweep, plan.v_block, plan.h_block, threads_, plan.form)) {
    Arena arena(workspace);
    memory_ = lay_out(arena, p_.h, p_.v, s_, g_, threads_, kernels_, nullptr);
    // Values are wanted of every row, gradients of the labelled ones.
    rows_ = s_.values ? p_.rows : p_.gradient_rows;
    // With no rows at all gradients must still be written.
    chunks_ = std::max<std::int64_t>(1, ceil_div(rows_, s_.rows));
    ranges_ = ceil_div(g_.v_blocks, s_.blocks);
    w_by_column_ = p_.grad_w_stride_v == 1 ||
                   (p_.grad_w_stride_h != 1 && p_.grad_w_stride_v <= p_.grad_w_stride_h);
  }

  void run() {
    sum_class_weights();
    if (s_.grad_bias) std::fill(memory_.bias_sums, memory_.bias_sums + p_.v, 0.0);
    for (std::int64_t outer = 0; outer < (s_.v_outer ? ranges_ : chunks_); ++outer) {
      for (std::int64_t inner = 0; inner < (s_.v_outer ? chunks_ : ranges_); ++inner) {
        step(s_.v_outer ? inner : outer, s_.v_outer ? outer : inner);
      }
      if (s_.v_outer && s_.w_accumulator) store_grad_w();
    }
    if (!s_.v_outer && s_.w_accumulator) {
      blocks_ = {0, g_.v_blocks};
      store_grad_w();
    }
    if (s_.grad_bias) store_grad_bias();
  }

 private:
  // -- The walk -----------------------------------------------------------------------------------

  void step(std::int64_t chunk, std::int64_t range) {
    chunk_ = chunk;
    range_ = range;
    chunk_rows_ = block_span(chunk, s_.rows, rows_);
    const std::int64_t labelled = p_.gradient_rows - chunk_rows_.first;
    gradient_rows_ = std::clamp<std::int64_t>(labelled, 0, chunk_rows_.count);
    blocks_ = block_span(range, s_.blocks, g_.v_blocks);
    if (range == 0 || s_.v_outer) prepare_x();
    compute_logits();
    if (s_.values) merge_parts();
    if (!s_.stored) return;
    differentiate();
    multiply();
  }

  void sum_class_weights() {
    for (std::int64_t block = 0; block < g_.v_blocks; ++block) {
      const Span columns = block_span(block, g_.v_block, p_.v);
      memory_.class_sums[block] = sum_of(
          p_.class_weight != nullptr ? p_.class_weight + columns.first : nullptr, columns.count);
    }
  }

  void parallel(std::int64_t tasks, const std::function<void(std::int64_t, int)>& body) {
    parallel_for(environment_, threads_, tasks, body);
  }
  // -- Operands -----------------------------------------------------------------------------------
  /// Rows of x as f32: in place where they can be multiplied as they lie.
  void prepare_x() {
    const std::int64_t* offsets = p_.x_offsets + chunk_rows_.first;
    const std::int64_t rows = chunk_rows_.count;
    x_ = {memory_.x, p_.h};
    if (rows <= 0) return;
    if (p_.x_type == Type::f32 && (p_.x_stride == 1 || p_.h == 1) && evenly_spaced(offsets, rows)) {
      x_ = {static_cast<const float*>(p_.x) + offsets[0],
            rows > 1 ? offsets[1] - offsets[0] : p_.h};
      return;
    }
    // A few rows at a time: one row of a small h is no work for a task.
    const std::int64_t step_rows =
        std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, p_.h));
    parallel(ceil_div(rows, step_rows), [&](std::int64_t task, int) {
      const Span some = block_span(task, step_rows, rows);
      for (std::int64_t r = some.first; r < some.first + some.count; ++r) {
        kernels_.load(at(p_.x, p_.x_type, offsets[r]), p_.x_type, p_.x_stride, p_.h,
                      memory_.x + r * p_.h);
      }
    });
  }

  /// w(depths, columns) as f32. `by_column`: columns are contiguous (element (h, v) at h * ld + v),
  /// else depths are.
  Operand block_of_w(Span depths, Span columns, const WorkerMemory& worker, bool& by_column) const {
    const std::int64_t offset = depths.first * p_.w_stride_h + columns.first * p_.w_stride_v;
    if (p_.w_type == Type::f32 && (p_.w_stride_v == 1 || p_.w_stride_h == 1)) {
      by_column = p_.w_stride_v == 1;
      return {static_cast<const float*>(p_.w) + offset, by_column ? p_.w_stride_h : p_.w_stride_v};
    }
    by_column = p_.w_stride_h != 1;
    ConstArray2 source = {at(p_.w, p_.w_type, offset), p_.w_type, p_.w_stride_h, p_.w_stride_v};
    if (!by_column) std::swap(source.row_stride, source.column_stride);
    const std::int64_t ld = by_column ? columns.count : depths.count;
    kernels_.load_block(source, by_column ? depths.count : columns.count, ld, worker.panel, ld);
    return {worker.panel, ld};
  }

  /// Logits of the chunk's row `row` and the range's block `block`.
  float* logits_at(std::int64_t block, std::int64_t row) const {
    return memory_.logits + ((block - blocks_.first) * s_.rows + row) * g_.ld;
  }

  void product(Gemm gemm, const WorkerMemory& worker) const {
    gemm.scratch = worker.gemm;
    gemm.scratch_floats = memory_.gemm_floats;
    kernels_.gemm(gemm);
  }

  // -- Logits and their statistics ----------------------------------------------------------------

  void compute_logits() {
    const std::int64_t rows = chunk_rows_.count;
    const std::int64_t slices = s_.values ? std::min(g_.slices, blocks_.count) : blocks_.count;
    const std::int64_t row_tasks = ceil_div(rows, g_.logit_rows);
    parallel(slices * row_tasks, [&](std::int64_t task, int index) {
      const std::int64_t slice = task / row_tasks;
      const Span some = block_span(task % row_tasks, g_.logit_rows, rows);
      const WorkerMemory worker = memory_.worker(index);
      // Slices differ by at most one block and depend on counts alone.
      const std::int64_t first = blocks_.first + slice * blocks_.count / slices;
      const std::int64_t last = blocks_.first + (slice + 1) * blocks_.count / slices;
      RowSums* sums = nullptr;
      if (s_.values) {
        sums = memory_.parts + slice * s_.rows + some.first;
        std::fill(sums, sums + some.count, RowSums{});
      }
      for (std::int64_t block = first; block < last; ++block) {
        logits_of(block, some, s_.stored ? logits_at(block, some.first) : worker.block, worker,
                  sums);
      }
    });
  }

  void logits_of(std::int64_t block, Span rows, float* target, const WorkerMemory& worker,
                 RowSums* sums) const {
    const Span columns = block_span(block, g_.v_block, p_.v);
    for (std::int64_t h = 0; h < std::max<std::int64_t>(1, g_.h_blocks); ++h) {
      const Span depths = block_span(h, g_.h_block, p_.h);
      bool by_column = true;
      const Operand w = block_of_w(depths, columns, worker, by_column);
      // Transposed, as products are column-major: logits^T = w^T x^T.
      product({columns.count, rows.count, depths.count, w.data, w.ld, !by_column,
               x_.data + rows.first * x_.ld + depths.first, x_.ld, false, target, g_.ld, h > 0,
               nullptr, 0},
              worker);
    }
    const float* bias = p_.bias != nullptr ? p_.bias + columns.first : nullptr;
    for (std::int64_t r = 0; r < rows.count; ++r) {
      float* row = target + r * g_.ld;
      kernels_.finish(row, columns.count, bias, p_.scale, p_.cap);
      if (sums == nullptr) continue;
      add_columns(p_, kernels_, chunk_rows_.first + rows.first + r, columns.first, columns.count,
                  row, memory_.class_sums[block], worker.targets, sums[r]);
    }
  }

  void merge_parts() {
    const std::int64_t rows = chunk_rows_.count;
    const std::int64_t slices = std::min(g_.slices, blocks_.count);
    constexpr std::int64_t rows_per_task = 256;  // a merge costs about as much as an exp
    parallel(ceil_div(rows, rows_per_task), [&](std::int64_t task, int) {
      const Span some = block_span(task, rows_per_task, rows);
      for (std::int64_t r = some.first; r < some.first + some.count; ++r) {
        RowSums total = memory_.parts[r];
        for (std::int64_t slice = 1; slice < slices; ++slice) {
          merge_into(memory_.parts[slice * s_.rows + r], total);
        }
        p_.sums[chunk_rows_.first + r] = total;
      }
    });
  }

  // -- Gradients ----------------------------------------------------------------------------------

  /// Logits become dz in place; columns of dz are summed for grad_bias.
  void differentiate() {
    for (std::int64_t r = 0; r < gradient_rows_; ++r) {
      const RowSums& sums = p_.sums[chunk_rows_.first + r];
      memory_.coefficients[r] = row_gradient(p_.cotangents[chunk_rows_.first + r], sums.max,
                                             sums.sum, p_.logsumexp_weight);
    }
    if (gradient_rows_ == 0) return;
    parallel(blocks_.count * g_.column_parts, [&](std::int64_t task, int index) {
      const std::int64_t block = blocks_.first + task / g_.column_parts;
      const Span columns = block_span(block, g_.v_block, p_.v);
      // Whole lines, so that no two tasks write one.
      const std::int64_t width = round_up(ceil_div(columns.count, g_.column_parts), lane_quantum);
      const Span part = block_span(task % g_.column_parts, width, columns.count);
      if (part.count > 0) differentiate_part(block, columns.first, part, memory_.worker(index));
    });
  }

  void differentiate_part(std::int64_t block, std::int64_t first_column, Span part,
                          const WorkerMemory& worker) const {
    // Sums of this many rows in f32, of those in double: as accurate as double, at the cost of f32.
    constexpr std::int64_t rows_per_sum = 64;
    const std::int64_t column = first_column + part.first;
    const auto size = static_cast<std::size_t>(part.count) * sizeof(float);
    for (std::int64_t r = 0; r < gradient_rows_; ++r) {
      float* row = logits_at(block, r) + part.first;
      differentiate_columns(p_, kernels_, chunk_rows_.first + r, column, part.count,
                            memory_.coefficients[r], row, worker.targets);
      if (!s_.grad_bias) continue;
      if (r % rows_per_sum == 0) {
        std::memcpy(worker.column_sums, row, size);
      } else {
        kernels_.add(row, part.count, worker.column_sums);
      }
      if (r % rows_per_sum == rows_per_sum - 1 || r == gradient_rows_ - 1) {
        for (std::int64_t j = 0; j < part.count; ++j) {
          memory_.bias_sums[column + j] += static_cast<double>(worker.column_sums[j]);
        }
      }
    }
  }

  void multiply() {
    // grad_x first: its tasks are the longest, and the short ones even out the threads.
    const std::int64_t x_row_tasks = ceil_div(gradient_rows_, g_.grad_x_rows);
    const std::int64_t x_tasks = s_.grad_x ? g_.h_blocks * x_row_tasks : 0;
    const std::int64_t w_tasks = s_.grad_w ? g_.h_blocks * blocks_.count : 0;
    const bool in_place = s_.grad_x && p_.grad_x_type == Type::f32 &&
                          (p_.grad_x_stride == 1 || p_.h == 1) && gradient_rows_ > 0 &&
                          evenly_spaced(p_.grad_x_offsets + chunk_rows_.first, gradient_rows_);
    parallel(x_tasks + w_tasks, [&](std::int64_t task, int index) {
      const WorkerMemory worker = memory_.worker(index);
      if (task < x_tasks) {
        multiply_grad_x(block_span(task / x_row_tasks, g_.h_block, p_.h),
                        block_span(task % x_row_tasks, g_.grad_x_rows, gradient_rows_), in_place,
                        worker);
      } else {
        const std::int64_t w_task = task - x_tasks;
        multiply_grad_w(blocks_.first + w_task / g_.h_blocks,
                        block_span(w_task % g_.h_blocks, g_.h_block, p_.h), worker);
      }
    });
  }

  /// grad_x(rows, depths) = or += dz w^T over the range's columns.
  void multiply_grad_x(Span depths, Span rows, bool in_place, const WorkerMemory& worker) const {
    const std::int64_t* offsets = p_.grad_x_offsets + chunk_rows_.first + rows.first;
    float* target = worker.block;
    std::int64_t ld = depths.count;
    bool accumulate = false;
    if (s_.x_accumulator) {
      target = memory_.x_sums + rows.first * p_.h + depths.first;
      ld = p_.h;
      accumulate = range_ > 0;
    } else if (in_place) {
      target = static_cast<float*>(p_.grad_x) + offsets[0] + depths.first;
      ld = rows.count > 1 ? offsets[1] - offsets[0] : p_.h;
      accumulate = p_.add_x || range_ > 0;
    }
    for (std::int64_t block = blocks_.first; block < blocks_.first + blocks_.count; ++block) {
      const Span columns = block_span(block, g_.v_block, p_.v);
      bool by_column = true;
      const Operand w = block_of_w(depths, columns, worker, by_column);
      product({depths.count, rows.count, columns.count, w.data, w.ld, by_column,
               logits_at(block, rows.first), g_.ld, false, target, ld, accumulate, nullptr, 0},
              worker);
      accumulate = true;
    }
    const bool last_range = range_ + 1 == ranges_;
    if (s_.x_accumulator ? !last_range : in_place) return;
    const bool add = p_.add_x || (!s_.x_accumulator && range_ > 0);
    for (std::int64_t r = 0; r < rows.count; ++r) {
      kernels_.store(target + r * ld, depths.count,
                     at(p_.grad_x, p_.grad_x_type, offsets[r] + depths.first * p_.grad_x_stride),
                     p_.grad_x_type, p_.grad_x_stride, add);
    }
  }

  /// Element (depth, column) of the f32 sums of grad_w, in the orientation of grad_w itself.
  float* w_sum(std::int64_t depth, std::int64_t column) const {
    const std::int64_t first = s_.v_outer ? blocks_.first * g_.v_block : 0;
    return memory_.w_sums + (w_by_column_ ? depth * w_sums_columns() + (column - first)
                                          : (column - first) * p_.h + depth);
  }
  std::int64_t w_sums_columns() const { return s_.v_outer ? s_.blocks * g_.v_block : p_.v; }
  std::int64_t w_sums_ld() const { return w_by_column_ ? w_sums_columns() : p_.h; }

  Array2 grad_w_at(std::int64_t depth, std::int64_t column) const {
    Array2 target = {
        at(p_.grad_w, p_.grad_w_type, depth * p_.grad_w_stride_h + column * p_.grad_w_stride_v),
        p_.grad_w_type, p_.grad_w_stride_h, p_.grad_w_stride_v};
    if (!w_by_column_) std::swap(target.row_stride, target.column_stride);
    return target;
  }

  /// grad_w(depths, columns of the block) = or += x^T dz over the chunk's rows.
  void multiply_grad_w(std::int64_t block, Span depths, const WorkerMemory& worker) const {
    const Span columns = block_span(block, g_.v_block, p_.v);
    const bool in_place =
        p_.grad_w_type == Type::f32 && (p_.grad_w_stride_v == 1 || p_.grad_w_stride_h == 1);
    float* target = worker.block;
    std::int64_t ld = w_by_column_ ? columns.count : depths.count;
    bool accumulate = false;
    if (s_.w_accumulator) {
      target = w_sum(depths.first, columns.first);
      ld = w_sums_ld();
      accumulate = chunk_ > 0;
    } else if (in_place) {
      const Array2 array = grad_w_at(depths.first, columns.first);
      target = static_cast<float*>(array.data);
      ld = array.row_stride;
      accumulate = p_.add_w || chunk_ > 0;
    }
    const float* dz = logits_at(block, 0);
    const float* x = x_.data + depths.first;
    const std::int64_t k = gradient_rows_;
    if (w_by_column_) {
      product({columns.count, depths.count, k, dz, g_.ld, false, x, x_.ld, true, target, ld,
               accumulate, nullptr, 0},
              worker);
    } else {
      product({depths.count, columns.count, k, x, x_.ld, false, dz, g_.ld, true, target, ld,
               accumulate, nullptr, 0},
              worker);
    }
    if (s_.w_accumulator || in_place) return;
    kernels_.store_block(target, ld, w_by_column_ ? depths.count : columns.count, ld,
                         grad_w_at(depths.first, columns.first), p_.add_w || chunk_ > 0);
  }

  /// The one rounding of sums that several chunks contributed to.
  void store_grad_w() {
    parallel(blocks_.count * g_.h_blocks, [&](std::int64_t task, int) {
      const Span columns = block_span(blocks_.first + task / g_.h_blocks, g_.v_block, p_.v);
      const Span depths = block_span(task % g_.h_blocks, g_.h_block, p_.h);
      kernels_.store_block(w_sum(depths.first, columns.first), w_sums_ld(),
                           w_by_column_ ? depths.count : columns.count,
                           w_by_column_ ? columns.count : depths.count,
                           grad_w_at(depths.first, columns.first), p_.add_w);
    });
  }

  void store_grad_bias() {
    for (std::int64_t j = 0; j < p_.v; ++j) {
      const auto sum = static_cast<float>(memory_.bias_sums[j]);
      kernels_.store(&sum, 1, at(p_.grad_bias, p_.grad_bias_type, j * p_.grad_bias_stride),
                     p_.grad_bias_type, 1, p_.add_bias);
    }
  }

  const LinearProblem& p_;
  const Sweep& s_;
  const Environment& environment_;
  const Kernels& kernels_;
  int threads_;
  SweepGeometry g_;
  SweepMemory memory_;
  std::int64_t rows_ = 0, chunks_ = 0, ranges_ = 0;
  bool w_by_column_ = true;  ///< sums of grad_w are laid out with columns contiguous

  // Of the step at hand.
  std::int64_t chunk_ = 0, range_ = 0, gradient_rows_ = 0;
  Span chunk_rows_ = {0, 0}, blocks_ = {0, 0};
  Operand x_ = {nullptr, 0};
};

}  // namespace

void run_linear(const LinearProblem& problem, const LinearPlan& plan,
                const Environment& environment, void* workspace) {
  const Kernels& chosen = environment.kernels != nullptr ? *environment.kernels : kernels();
  for (int i = 0; i < plan.sweep_count; ++i) {
    Walk(problem, plan, plan.sweeps[i], environment, chosen, workspace).run();
  }
}

}  // namespace tessera::streaming
