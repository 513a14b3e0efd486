// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/coefficients.h"
#include "host/loss/request.hpp"
#include "host/opencl/call.hpp"
#include "loss/arguments.h"

/// Which kernels of cl_kernels/loss a request needs, and how much memory their arrays take.
namespace tessera::loss {

/// How long the arrays of LossRows are, for planning. `rows` is b.
std::int64_t loss_rows_words(const loss::LossRequest& request, std::int64_t tile_n);

/// Why no kernel of cl_kernels/loss takes a request.
std::optional<std::string> why_unsupported(const loss::LossRequest& request,
                                           const opencl::DeviceFacts& facts);

/// Words of a row's statistics in a slice of the vocabulary: STAT_FIELDS of
/// cl_kernels/common/info.cl.
std::int64_t statistics_fields(const loss::LossRequest& request);

/// -D options for kernels that know a row's target: its form, and the type of probabilities.
std::string target_options(const loss::LossRequest& request);

/// -D options for kernels that make or merge statistics, by what the request asks for.
std::string statistics_options(const loss::LossRequest& request);

/// Rows that the kernels of cl_kernels/loss/loss.cl for small calls take: one work-group of
/// `per_element`, which every device can run.
constexpr std::int64_t small_rows = RUN_ITEMS;

/// Blocks that a work-group each sums, of rows or of classes.
constexpr std::int64_t blocks_of(std::int64_t count) { return (count + RUN_BLOCK - 1) / RUN_BLOCK; }

/// Whether one launch merges the statistics of all rows and reduces the loss: a small call whose
/// first chunk has them all.
bool merges_at_once(const loss::LossRequest& request, std::int64_t chunk_rows);

/// The program of every kernel of cl_kernels/loss but `gather_values` of other types than f32.
const opencl::Specialisation& loss_program(const loss::LossRequest& request);
/// The program that has `gather_values` of a type.
opencl::Specialisation gather_program(DType type);

/// The kernels of cl_kernels/loss that a request launches whose rows come `chunk_rows` at a time,
/// for `plan`.
std::vector<std::pair<opencl::Specialisation, std::string>> loss_kernels_of(
    const loss::LossRequest& request, std::int64_t chunk_rows);

/// Where the arrays of a call's rows begin in its two regions, in words; -1: there is none.
struct RowPlaces {
  explicit RowPlaces(const loss::LossRequest& request, std::int64_t tile_n);

  // Of f32 (`values` of cl_kernels/common/coefficients.h).
  std::int64_t class_of_label = -1, weight = -1, dloss = -1, dlse = -1, row_loss = -1;
  std::int64_t share = -1;  ///< of the mean's denominator; labels: class_of_label
  std::int64_t term = -1;   ///< of the loss, besides nll and z-loss; LossRequest::has_terms
  std::int64_t pair_probs = -1, pair_factors = -1, pair_logits = -1;  ///< [k][pair_rows]
  kernels::row_statistics statistics{-1, -1, 1};  ///< merged here (value_and_grad), or given
  std::int64_t value_words = 0;
  // Of i32 (`lists` of cl_kernels/loss/arguments.h); at 0 are the words of common/info.cl.
  std::int64_t labels = 0, rows = 0, compact_labels = 0;
  std::int64_t pair_columns = 0;  ///< [k][pair_rows]
  std::int64_t runs = 0;          ///< a row_run for each block of rows
  std::int64_t class_runs = -1;   ///< and of classes, where their total counts
  std::int64_t list_words = 0;
  std::int64_t pair_rows = 0;  ///< those of the call, and what pads a panel
};

}  // namespace tessera::loss
