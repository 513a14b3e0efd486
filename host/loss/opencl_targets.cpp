// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>

#include "host/engines/segments.hpp"
#include "host/loss/opencl_rows.hpp"
#include "host/loss/validate.hpp"
#include "host/opencl/specialise.hpp"

// Targets of rows on a device: those that are not labels, and what a call says of those that turn
// out to be none.
namespace tessera::loss {

using opencl::Binding;

kernels::target_sizes LossRows::target_sizes() const {
  const auto& r = request_;
  kernels::target_sizes sizes{};
  sizes.hard = 1.0f - r.options.label_smoothing;
  sizes.smooth = r.options.label_smoothing / static_cast<float>(r.v_total);
  if (r.target_indices) {
    sizes.columns = at_.pair_columns - at_.compact_labels;
    sizes.probs = at_.pair_probs;
    sizes.factors = at_.pair_factors;
    sizes.logits = at_.pair_logits;
    sizes.ld = at_.pair_rows;
    sizes.count = static_cast<std::int32_t>(r.k);
  } else if (r.targets) {
    sizes.geometry = engines::geometry_of(targets_, targets_.extents.rank() - 1);
    sizes.v_stride = targets_.strides.back();
    sizes.v = r.v;
    sizes.rows = at_.rows - at_.compact_labels;
  }
  return sizes;
}

/// What the target of each row comes to.
void LossRows::gather_soft_targets() {
  const auto& r = request_;
  if (r.target_indices) {
    indices_ = call_.read(r.target_indices, "target_indices");
    probs_ = call_.read(r.target_probs, "target_probs");
    call_.launch(program_, opencl::per_element(r.b), pairs_memory<kernels::gather_pairs_memory>(),
                 pairs_sizes());
    return;
  }
  Binding sums;
  if (r.target_weights) {
    sums = call_.read(View::host(r.target_weights->data(), {r.b}), "targets");
  }
  call_.launch(program_, opencl::per_element(r.b),
               kernels::gather_dense_memory{.targets = targets_,
                                            .class_weight = class_weight_,
                                            .sums = sums,
                                            .lists = lists_,
                                            .values = values_},
               {.call = call_rows(), .targets = target_sizes()});
}

/// The pairs of the rows that count, by column.
void LossRows::sort_pairs() {
  call_.launch(program_, opencl::per_element(at_.pair_rows),
               pairs_memory<kernels::sort_pairs_memory>(), pairs_sizes());
}

template <class Pointers>
Pointers LossRows::pairs_memory() const {
  return {.indices = indices_,
          .probs = probs_,
          .class_weight = class_weight_,
          .lists = lists_,
          .values = values_};
}

kernels::gather_pairs_sizes LossRows::pairs_sizes() const {
  const int axes = request_.leading.rank();
  return {.given = {.index_rows = engines::geometry_of(indices_, axes),
                    .prob_rows = engines::geometry_of(probs_, axes),
                    .index_stride = indices_.strides.back(),
                    .prob_stride = probs_.strides.back()},
          .call = call_rows(),
          .targets = target_sizes()};
}

/// Targets in host memory were checked before any work; others are only known now.
void LossRows::report_bad_targets() {
  const auto& r = request_;
  auto words = std::make_shared<std::vector<float>>(4);
  call_.read_back(info_, 4, words);
  const char* what =
      r.labels           ? "labels: row {} is the first of {} with a label outside [0, {}) that "
                           "is not ignore_index; their loss and grad_x are NaN"
      : r.target_indices ? "target_indices: row {} is the first of {} with an index outside "
                           "[0, {}) that is not ignore_index, or with a probability in "
                           "target_probs that is negative or NaN; their loss and grad_x are NaN"
                         : "targets: row {} is the first of {} with a probability for one of {} "
                           "words that is negative or NaN; their loss and grad_x are NaN";
  call_.check_on_completion([words, what, v_total = r.v_total, leading = r.leading] {
    std::int32_t info[4];
    std::memcpy(info, words->data(), sizeof info);
    if (info[1] == 0) return;
    const std::int64_t row =
        (static_cast<std::int64_t>(info[3]) << 32) | static_cast<std::uint32_t>(info[2]);
    throw Error(
        ErrorCode::label_out_of_range,
        fmt::format(fmt::runtime(what), arguments::describe_row(row, leading), info[1], v_total));
  });
}

}  // namespace tessera::loss
