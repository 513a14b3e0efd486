// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <utility>

#include "reference/streaming/linear_memory.hpp"
#include "reference/streaming/spans.hpp"

/// Blocks of the products of a layer, the student's or its teacher's, for the walk of linear.cpp.
namespace tessera::streaming {

class LayerProducts {
 public:
  using Parallel = std::function<void(std::int64_t, const std::function<void(std::int64_t, int)>&)>;

  LayerProducts(const LinearLayer& layer, const Kernels& kernels, std::int64_t h_block,
                std::int64_t gemm_floats)
      : p_(layer), kernels_(kernels), h_block_(h_block), gemm_floats_(gemm_floats) {}

  /// Rows of x as f32: in place where they can be multiplied as they lie, else in `memory`.
  void prepare_x(Span rows_of_chunk, float* memory, const Parallel& parallel) {
    const std::int64_t* offsets = p_.x_offsets + rows_of_chunk.first;
    const std::int64_t rows = rows_of_chunk.count;
    x_ = {memory, p_.h};
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
                      memory + r * p_.h);
      }
    });
  }
  const Operand& x() const { return x_; }

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

  void product(Gemm gemm, const WorkerMemory& worker) const {
    gemm.scratch = worker.gemm;
    gemm.scratch_floats = gemm_floats_;
    kernels_.gemm(gemm);
  }

  /// target[r * ld + j] = the product of row `rows.first + r` of the chunk and column
  /// `columns.first + j`.
  void form(Span columns, Span rows, float* target, std::int64_t ld,
            const WorkerMemory& worker) const {
    const std::int64_t steps = std::max<std::int64_t>(1, ceil_div(p_.h, h_block_));
    for (std::int64_t h = 0; h < steps; ++h) {
      const Span depths = block_span(h, h_block_, p_.h);
      bool by_column = true;
      const Operand w = block_of_w(depths, columns, worker, by_column);
      // Transposed, as products are column-major: logits^T = w^T x^T.
      product({columns.count, rows.count, depths.count, w.data, w.ld, !by_column,
               x_.data + rows.first * x_.ld + depths.first, x_.ld, false, target, ld, h > 0,
               nullptr, 0},
              worker);
    }
  }

 private:
  const LinearLayer& p_;
  const Kernels& kernels_;
  std::int64_t h_block_, gemm_floats_;
  Operand x_ = {nullptr, 0};
};

}  // namespace tessera::streaming
