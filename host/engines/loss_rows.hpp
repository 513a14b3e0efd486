// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "host/loss/request.hpp"
#include "host/opencl/call.hpp"

/// The per-row half of a loss on OpenCL (cl_kernels/loss), shared by every operator and engine:
/// labels, compaction of the rows that count, merging of slices, outputs, gradient coefficients.
namespace tessera::engines {

/// `-DNAME=<type>` for a kernel.
std::string type_option(const char* name, DType type);

/// Work sizes of a kernel with one work-item per element: groups of 64, rounded up (kernels check).
opencl::Range per_element(std::int64_t count, std::int64_t second = 1);

/// How long the arrays of LossRows are, for planning. `rows` is b.
std::int64_t loss_rows_words(const loss::LossRequest& request, std::int64_t tile_n);

/// -D options for kernels that make or merge statistics, by what the request asks for.
std::string statistics_options(const loss::LossRequest& request);

/// The kernels of cl_kernels/loss that a request launches whose rows come `chunk_rows` at a time,
/// for `plan`.
std::vector<std::pair<opencl::Specialisation, std::string>> loss_kernels_of(
    const loss::LossRequest& request, std::int64_t chunk_rows);

/// Words that scratch regions are rounded up to: 64 bytes.
std::int64_t region_words(std::int64_t words);

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

  /// What the gradient of a row depends on beside its statistics, in the order in which
  /// cl_kernels/common/coefficients.cl takes it; for kernels that form coefficients themselves.
  struct Cotangents {
    opencl::Scratch weight{}, class_of_label{}, dloss{};
    std::int64_t dloss_stride = 0;
    opencl::Scratch dlse{};
    std::int32_t mean = 0;
    float logsumexp_weight = 0.0f, label_smoothing = 0.0f, v_total = 0.0f;
  };
  Cotangents cotangents() const;

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
  DType class_type() const noexcept { return class_weight_.dtype; }

  /// -D options for kernels that make statistics.
  std::string statistics_options() const { return engines::statistics_options(request_); }

 private:
  /// A per-row output: written in place where its rows lie at one stride, else dense and scattered.
  struct Output {
    opencl::Binding direct{};
    std::int64_t stride = 0;
    std::int64_t column = 1;
    opencl::Binding target{};  ///< for scatter_rows; empty: nothing to do
    std::int64_t width = 1;
  };
  Output bind_output(const MutableView& view, const char* name, int columns);
  void bind_outputs();
  /// The merge that `merge` put off, with coefficients where `out` is given.
  void merge_small(const opencl::Scratch& out);
  opencl::Scratch gather(const View& view, const char* name, std::int64_t rows, int columns);

  opencl::Call& call_;
  const loss::LossRequest& request_;
  std::int64_t tile_n_;
  bool small_;            ///< one work-group takes all rows of the call
  bool reduced_ = false;  ///< the scalar loss is written
  opencl::Scratch info_, rows_, compact_labels_, labels_, class_of_label_;
  opencl::Scratch weight_, dloss_, dlse_, given_statistics_, row_max_, row_sum_, row_loss_;
  struct {
    opencl::Scratch stats{};
    std::int64_t slices = 0;
    std::int64_t ld = 0;  ///< 0: nothing was put off
  } pending_;
  opencl::Binding class_weight_, class_weight_local_;
  std::int64_t class_stride_ = 1;
  Output loss_, lse_, argmax_, label_logprob_, entropy_, z_loss_, statistics_;
  opencl::Binding partial_, scalar_loss_;
  const opencl::Specialisation& program_;
};

}  // namespace tessera::engines
