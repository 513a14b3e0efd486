// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "common/coefficients.h"
#include "host/loss/opencl_programs.hpp"
#include "host/loss/request.hpp"
#include "host/opencl/call.hpp"
#include "loss/arguments.h"

/// The per-row half of a loss on OpenCL (cl_kernels/loss), shared by every operator and engine:
/// targets, compaction of the rows that count, merging of slices, outputs, gradient coefficients.
namespace tessera::loss {

class LossRows {
 public:
  LossRows(opencl::Call& call, const loss::LossRequest& request, std::int64_t tile_n);

  /// Labels, per-token inputs and the list of rows; fills the outputs of rows that do not count.
  void prepare();

  /// Merges `slices` statistics of the rows [chunk_begin, chunk_begin + ld) and writes outputs. Of
  /// a small call it may only be enqueued by the next of `coefficients` and `finish`: until then
  /// nothing may write to `stats`.
  void merge(const opencl::Scratch& stats, std::int64_t slices, std::int64_t ld,
             std::int64_t chunk_begin);

  /// Gradient coefficients of the rows [chunk_begin, chunk_begin + ld), [5][ld] words, from the
  /// statistics merged before (value_and_grad) or those given (backward).
  void coefficients(const opencl::Scratch& out, std::int64_t ld, std::int64_t chunk_begin);

  /// What the loss of a row and its gradient depend on beside the statistics, for kernels that form
  /// coefficients themselves (cl_kernels/common/coefficients.h): arrays of `values`.
  kernels::loss_sizes loss_sizes() const;
  kernels::cotangent_sizes cotangent_sizes() const;
  const opencl::Scratch& values() const noexcept { return values_; }
  /// Place of what the loss of a row has besides, which is there before `merge`; -1: nothing.
  std::int64_t term() const noexcept { return at_.term; }

  /// Reduces the loss, scatters strided outputs, and arranges for the report of bad labels.
  void finish();

  const opencl::Scratch& info() const noexcept { return info_; }
  const opencl::Scratch& rows() const noexcept { return rows_; }
  /// Local labels of the rows that count, in compact order, padded by a tile.
  const opencl::Scratch& compact_labels() const noexcept { return compact_labels_; }
  /// Local label or LABEL_* of every row of the call.
  const opencl::Scratch& labels() const noexcept { return labels_; }
  /// Class weights as kernels take them: bound, from this shard's first column.
  const opencl::Binding& class_weight() const noexcept { return class_weight_local_; }
  std::int64_t class_stride() const noexcept { return class_stride_; }
  /// The caller's probabilities of every word, from this shard's first on; empty where rows have
  /// other targets.
  const opencl::Binding& targets() const noexcept { return targets_local_; }
  /// Where targets that are not labels are, for kernels that visit logits (common/targets.cl).
  kernels::target_sizes target_sizes() const;

 private:
  /// A per-row output: written in place where its rows lie at one stride in the type that kernels
  /// write, else dense and scattered.
  struct Output {
    opencl::Binding direct{};
    std::int64_t stride = 0;
    std::int64_t column = 1;
    opencl::Binding target{};  ///< for scatter_rows; empty: nothing to do
    std::int64_t width = 1;
    bool to_i64 = false;  ///< scattered from i32
  };
  Output bind_output(const MutableView& view, const char* name, int columns);
  void bind_outputs();
  kernels::row_output_strides output_strides() const;
  /// Arguments of a kernel that writes outputs, with those given.
  template <class Pointers>
  Pointers with_outputs() const;
  template <class Pointers>
  Pointers merging(const opencl::Scratch& stats) const;
  void find_targets();
  void gather_soft_targets();
  void sort_pairs();
  void report_bad_targets();
  template <class Pointers>
  Pointers pairs_memory() const;
  kernels::gather_pairs_sizes pairs_sizes() const;
  kernels::call_rows call_rows() const;
  /// The merge that `merge` put off, with coefficients where `out` is given.
  void merge_small(const opencl::Scratch& out);
  /// Makes a per-token input dense, at a place of `values_`.
  void gather(const View& view, const char* name, std::int64_t place, std::int64_t rows,
              int columns);

  opencl::Call& call_;
  const loss::LossRequest& request_;
  std::int64_t tile_n_;
  bool small_;            ///< one work-group takes all rows of the call
  bool reduced_ = false;  ///< the scalar loss is written
  RowPlaces at_;
  opencl::Scratch values_, lists_;                         ///< regions of f32 and of i32
  opencl::Scratch info_, rows_, compact_labels_, labels_;  ///< parts of lists_
  struct {
    opencl::Scratch stats{};
    std::int64_t slices = 0;
    std::int64_t ld = 0;  ///< 0: nothing was put off
  } pending_;
  opencl::Binding class_weight_, class_weight_local_, indices_, probs_, targets_, targets_local_;
  std::int64_t class_stride_ = 1;
  Output loss_, lse_, argmax_, label_logprob_, entropy_, z_loss_, statistics_;
  opencl::Binding partial_, scalar_loss_;
  const opencl::Specialisation& program_;
};

}  // namespace tessera::loss
