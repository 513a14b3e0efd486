// SPDX-License-Identifier: Apache-2.0
#include "reference/streaming/linear.hpp"

#include <algorithm>
#include <cstring>

#include "reference/streaming/linear_values.hpp"

namespace tessera::streaming {
namespace {

class Walk : ValuesWalk {
 public:
  using ValuesWalk::ValuesWalk;

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
    if (range == 0 || s_.v_outer) prepare_rows();
    take_values();
    if (!s_.stored) return;
    differentiate();
    multiply();
  }

  // -- Gradients ----------------------------------------------------------------------------------

  /// Logits become dz in place; columns of dz are summed for grad_bias.
  void differentiate() {
    for (std::int64_t r = 0; r < gradient_rows_; ++r) {
      const RowSums& sums = p_.sums[chunk_rows_.first + r];
      memory_.coefficients[r] = row_gradient(p_.cotangents[chunk_rows_.first + r], sums.max,
                                             sums.sum, p_.logsumexp_weight);
      if (p_.teacher == nullptr) continue;
      memory_.distill_rows[r] =
          distill_row(p_.teacher->terms, p_.teacher->sums[chunk_rows_.first + r],
                      p_.cotangents[chunk_rows_.first + r].loss);
    }
    if (gradient_rows_ == 0) return;
    parallel("logits to dz", blocks_.count * g_.column_parts, [&](std::int64_t task, int index) {
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
      // A share of 0 is absent, however far the teacher is.
      const bool distills = p_.teacher != nullptr && memory_.distill_rows[r].factor != 0.0f;
      float* from_teacher = distills ? teacher_at(block, r) + part.first : nullptr;
      if (distills) {
        kernels_.distill_gradient(row, from_teacher, part.count, memory_.distill_rows[r], p_.scale,
                                  p_.cap);
      }
      differentiate_columns(p_, kernels_, chunk_rows_.first + r, column, part.count,
                            memory_.coefficients[r], row, worker.targets);
      if (distills) kernels_.add(from_teacher, part.count, row);
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
    const std::int64_t x_tasks = s_.grad_x ? ceil_div(p_.h, g_.grad_x_depths) * x_row_tasks : 0;
    const std::int64_t w_parts = ceil_div(g_.v_block, g_.grad_w_columns);  // of a block
    const std::int64_t w_of_block = ceil_div(p_.h, g_.grad_w_depths) * w_parts;
    const std::int64_t w_tasks = s_.grad_w ? w_of_block * blocks_.count : 0;
    const bool in_place = s_.grad_x && p_.grad_x_type == Type::f32 &&
                          (p_.grad_x_stride == 1 || p_.h == 1) && gradient_rows_ > 0 &&
                          evenly_spaced(p_.grad_x_offsets + chunk_rows_.first, gradient_rows_);
    parallel("grad_x and grad_w", x_tasks + w_tasks, [&](std::int64_t task, int index) {
      const WorkerMemory worker = memory_.worker(index);
      if (task < x_tasks) {
        multiply_grad_x(block_span(task / x_row_tasks, g_.grad_x_depths, p_.h),
                        block_span(task % x_row_tasks, g_.grad_x_rows, gradient_rows_), in_place,
                        worker);
      } else {
        const std::int64_t w_task = task - x_tasks;
        const std::int64_t part = w_task % w_of_block;
        multiply_grad_w(blocks_.first + w_task / w_of_block, part % w_parts,
                        block_span(part / w_parts, g_.grad_w_depths, p_.h), worker);
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
      const Operand w = layer_.block_of_w(depths, columns, worker, by_column);
      layer_.product(
          {depths.count, rows.count, columns.count, w.data, w.ld, by_column,
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

  /// grad_w(depths, columns of a part of the block) = or += x^T dz over the chunk's rows.
  void multiply_grad_w(std::int64_t block, std::int64_t part, Span depths,
                       const WorkerMemory& worker) const {
    const Span of_block = block_span(block, g_.v_block, p_.v);
    Span columns = block_span(part, g_.grad_w_columns, of_block.count);
    if (columns.count <= 0) return;  // of the last block
    const float* dz = logits_at(block, 0) + columns.first;
    columns.first += of_block.first;
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
    const float* x = layer_.x().data + depths.first;
    const std::int64_t k = gradient_rows_;
    if (w_by_column_) {
      layer_.product({columns.count, depths.count, k, dz, g_.ld, false, x, layer_.x().ld, true,
                      target, ld, accumulate, nullptr, 0},
                     worker);
    } else {
      layer_.product({depths.count, columns.count, k, x, layer_.x().ld, false, dz, g_.ld, true,
                      target, ld, accumulate, nullptr, 0},
                     worker);
    }
    if (s_.w_accumulator || in_place) return;
    kernels_.store_block(target, ld, w_by_column_ ? depths.count : columns.count, ld,
                         grad_w_at(depths.first, columns.first), p_.add_w || chunk_ > 0);
  }

  /// The one rounding of sums that several chunks contributed to.
  void store_grad_w() {
    parallel("store grad_w", blocks_.count * g_.h_blocks, [&](std::int64_t task, int) {
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
