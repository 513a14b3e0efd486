// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>

#include "reference/streaming/linear_logits.hpp"

/// The half of a walk (linear.cpp) that forms logits and takes their statistics, a chunk of rows
/// and a range of columns at a time.
namespace tessera::streaming {

class ValuesWalk {
 public:
  ValuesWalk(const LinearProblem& problem, const LinearPlan& plan, const Sweep& sweep,
             const Environment& environment, const Kernels& kernels, void* workspace)
      : p_(problem),
        s_(sweep),
        environment_(environment),
        kernels_(kernels),
        threads_(plan.threads),
        g_(geometry(p_.h, p_.v, sweep, plan.v_block, plan.h_block, threads_, plan.form)),
        memory_(memory_of(workspace, plan)),
        layer_(p_, kernels, plan.h_block, memory_.gemm_floats),
        teacher_(p_.teacher != nullptr ? static_cast<const LinearLayer&>(*p_.teacher) : p_, kernels,
                 plan.h_block, memory_.gemm_floats) {
    // Values are wanted of every row, gradients of the labelled ones.
    rows_ = takes_sums() ? p_.rows : p_.gradient_rows;
    // With no rows at all gradients must still be written.
    chunks_ = std::max<std::int64_t>(1, ceil_div(rows_, s_.rows));
    ranges_ = ceil_div(g_.v_blocks, s_.blocks);
    w_by_column_ = p_.grad_w_stride_v == 1 ||
                   (p_.grad_w_stride_h != 1 && p_.grad_w_stride_v <= p_.grad_w_stride_h);
  }

 protected:
  SweepMemory memory_of(void* workspace, const LinearPlan& plan) const {
    Arena arena(workspace);
    return lay_out(arena, p_.h, p_.v, s_, g_, threads_, plan.teacher, kernels_, nullptr);
  }

  /// The operands of the chunk's rows.
  void prepare_rows() {
    const auto run = [&](std::int64_t tasks, const auto& body) {
      parallel("widen x", tasks, body);
    };
    layer_.prepare_x(chunk_rows_, memory_.x, run);
    if (has_layer()) teacher_.prepare_x(chunk_rows_, memory_.teacher_x, run);
  }

  /// Logits of the range, and what is asked of them.
  void take_values() {
    if (s_.mixes) prepare_mix();
    compute_logits();
    if (takes_sums()) merge_parts();
    if (s_.stored && s_.values && mixes()) mix_stored();
  }

  void sum_class_weights() {
    for (std::int64_t block = 0; block < g_.v_blocks; ++block) {
      const Span columns = block_span(block, g_.v_block, p_.v);
      memory_.class_sums[block] = sum_of(
          p_.class_weight != nullptr ? p_.class_weight + columns.first : nullptr, columns.count);
    }
  }

  void parallel(const char* phase, std::int64_t tasks,
                const std::function<void(std::int64_t, int)>& body) {
    parallel_for(environment_, threads_, phase, tasks, body);
  }
  /// Logits of the chunk's row `row` and the range's block `block`.
  float* logits_at(std::int64_t block, std::int64_t row) const {
    return memory_.logits + ((block - blocks_.first) * s_.rows + row) * g_.ld;
  }

  // -- Logits and their statistics ----------------------------------------------------------------

  /// Whether this sweep looks at logits for statistics, and not for gradients alone.
  bool takes_sums() const { return s_.values || s_.mixes; }
  bool has_layer() const { return p_.teacher != nullptr && p_.teacher->logits == nullptr; }
  bool mixes() const {
    return p_.teacher != nullptr && p_.teacher->terms.divergence == Divergence::jsd;
  }
  float* teacher_at(std::int64_t block, std::int64_t row) const {
    return memory_.teacher_logits + ((block - blocks_.first) * s_.rows + row) * g_.ld;
  }

  /// Where the statistics of a slice's rows go; null: they are not taken.
  struct Sums {
    RowSums* own = nullptr;
    DistillSums* distilled = nullptr;
  };
  Sums sums_at(std::int64_t slice, Span rows) const {
    Sums sums;
    if (s_.values && !p_.keeps_sums) {
      sums.own = memory_.parts + slice * s_.rows + rows.first;
      std::fill(sums.own, sums.own + rows.count, RowSums{});
    }
    if (p_.teacher != nullptr && takes_sums()) {
      sums.distilled = memory_.distilled + slice * s_.rows + rows.first;
      std::fill(sums.distilled, sums.distilled + rows.count, DistillSums{});
    }
    return sums;
  }

  void compute_logits() {
    const std::int64_t rows = chunk_rows_.count;
    const std::int64_t slices = takes_sums() ? std::min(g_.slices, blocks_.count) : blocks_.count;
    const std::int64_t row_tasks = ceil_div(rows, g_.logit_rows);
    parallel("logits", slices * row_tasks, [&](std::int64_t task, int index) {
      const std::int64_t slice = task / row_tasks;
      const Span some = block_span(task % row_tasks, g_.logit_rows, rows);
      const WorkerMemory worker = memory_.worker(index);
      // Slices differ by at most one block and depend on counts alone.
      const std::int64_t first = blocks_.first + slice * blocks_.count / slices;
      const std::int64_t last = blocks_.first + (slice + 1) * blocks_.count / slices;
      const Sums sums = sums_at(slice, some);
      for (std::int64_t block = first; block < last; ++block) {
        logits_of(block, some, s_.stored ? logits_at(block, some.first) : worker.block, worker,
                  sums);
      }
    });
  }

  void logits_of(std::int64_t block, Span rows, float* target, const WorkerMemory& worker,
                 const Sums& sums) const {
    const Span columns = block_span(block, g_.v_block, p_.v);
    layer_.form(columns, rows, target, g_.ld, worker);
    const float* bias = p_.bias != nullptr ? p_.bias + columns.first : nullptr;
    for (std::int64_t r = 0; r < rows.count; ++r) {
      float* row = target + r * g_.ld;
      kernels_.finish(row, columns.count, bias, p_.scale, p_.cap);
      if (sums.own == nullptr) continue;
      add_columns(p_, kernels_, chunk_rows_.first + rows.first + r, columns.first, columns.count,
                  row, memory_.class_sums[block], worker.targets, sums.own[r]);
    }
    if (p_.teacher == nullptr) return;
    float* teacher = s_.stored ? teacher_at(block, rows.first) : worker.teacher;
    teacher_logits_of(columns, rows, teacher, worker);
    if (sums.distilled == nullptr) return;
    for (std::int64_t r = 0; r < rows.count; ++r) {
      distill_columns(rows.first + r, columns.count, target + r * g_.ld, teacher + r * g_.ld,
                      sums.distilled[r]);
    }
  }

  // -- The teacher --------------------------------------------------------------------------------

  void teacher_logits_of(Span columns, Span rows, float* target, const WorkerMemory& worker) const {
    const Teacher& t = *p_.teacher;
    if (has_layer()) teacher_.form(columns, rows, target, g_.ld, worker);
    const float* bias = t.bias != nullptr ? t.bias + columns.first : nullptr;
    for (std::int64_t r = 0; r < rows.count; ++r) {
      float* row = target + r * g_.ld;
      if (!has_layer()) {
        const std::int64_t offset = t.logits_offsets[chunk_rows_.first + rows.first + r];
        kernels_.load(at(t.logits, t.logits_type, offset + columns.first * t.logits_stride),
                      t.logits_type, t.logits_stride, columns.count, row);
      }
      kernels_.finish(row, columns.count, bias, t.scale, t.cap);
    }
  }

  /// Of row `row` of the chunk: its sums, or the second look at them.
  void distill_columns(std::int64_t row, std::int64_t n, const float* student, const float* teacher,
                       DistillSums& sums) const {
    const DistillTerms& terms = p_.teacher->terms;
    if (s_.mixes) return add_mix(row, n, student, teacher, sums);
    const bool reverse = terms.divergence == Divergence::reverse_kl;
    add_stretch(terms, kernels_.distill(student, teacher, n, distill_row(terms, sums), reverse),
                sums);
  }

  void add_mix(std::int64_t row, std::int64_t n, const float* student, const float* teacher,
               DistillSums& sums) const {
    const DistillMix mix = kernels_.distill_mix(student, teacher, n, memory_.distill_rows[row]);
    sums.both += static_cast<double>(mix.both);
    sums.from_q += static_cast<double>(mix.from_q);
    sums.sum_q += static_cast<double>(mix.sum_q);
  }

  /// What a second look needs of the first.
  void prepare_mix() {
    for (std::int64_t r = 0; r < chunk_rows_.count; ++r) {
      memory_.distill_rows[r] =
          distill_row(p_.teacher->terms, p_.teacher->sums[chunk_rows_.first + r]);
    }
  }

  /// The second look, at logits that are stored.
  void mix_stored() {
    prepare_mix();
    constexpr std::int64_t rows_per_task = 4;
    parallel("mixture", ceil_div(chunk_rows_.count, rows_per_task), [&](std::int64_t task, int) {
      const Span some = block_span(task, rows_per_task, chunk_rows_.count);
      for (std::int64_t r = some.first; r < some.first + some.count; ++r) {
        DistillSums& sums = p_.teacher->sums[chunk_rows_.first + r];
        for (std::int64_t block = blocks_.first; block < blocks_.first + blocks_.count; ++block) {
          const Span columns = block_span(block, g_.v_block, p_.v);
          add_mix(r, columns.count, logits_at(block, r), teacher_at(block, r), sums);
        }
      }
    });
  }

  void merge_parts() {
    const std::int64_t rows = chunk_rows_.count;
    const std::int64_t slices = std::min(g_.slices, blocks_.count);
    constexpr std::int64_t rows_per_task = 256;  // a merge costs about as much as an exp
    parallel("merge", ceil_div(rows, rows_per_task), [&](std::int64_t task, int) {
      const Span some = block_span(task, rows_per_task, rows);
      for (std::int64_t r = some.first; r < some.first + some.count; ++r) {
        if (s_.values && !p_.keeps_sums) {
          RowSums total = memory_.parts[r];
          for (std::int64_t slice = 1; slice < slices; ++slice) {
            merge_into(memory_.parts[slice * s_.rows + r], total);
          }
          p_.sums[chunk_rows_.first + r] = total;
        }
        if (p_.teacher != nullptr) merge_distilled(r, slices);
      }
    });
  }

  void merge_distilled(std::int64_t r, std::int64_t slices) const {
    DistillSums& to = p_.teacher->sums[chunk_rows_.first + r];
    if (s_.values) to = memory_.distilled[r];
    for (std::int64_t slice = s_.values ? 1 : 0; slice < slices; ++slice) {
      const DistillSums& part = memory_.distilled[slice * s_.rows + r];
      if (s_.values) {
        merge_into(p_.teacher->terms, part, to);
      } else {
        to.both += part.both;
        to.from_q += part.from_q;
        to.sum_q += part.sum_q;
      }
    }
  }

  const LinearProblem& p_;
  const Sweep& s_;
  const Environment& environment_;
  const Kernels& kernels_;
  int threads_;
  SweepGeometry g_;
  SweepMemory memory_;
  LayerProducts layer_, teacher_;
  std::int64_t rows_ = 0, chunks_ = 0, ranges_ = 0;
  bool w_by_column_ = true;  ///< sums of grad_w are laid out with columns contiguous

  // Of the step at hand.
  std::int64_t chunk_ = 0, range_ = 0, gradient_rows_ = 0;
  Span chunk_rows_ = {0, 0}, blocks_ = {0, 0};
};

}  // namespace tessera::streaming
