// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "reference/streaming/rows.hpp"

/// softmax_cross_entropy on the host: rows of logits stream through a block in the first-level
/// cache.
namespace tessera::streaming {

/// Rows are those that are not ignored, in any order; the first `gradient_rows` take part in
/// gradients (the rest have no usable label).
struct SoftmaxProblem : LossProblem {
  const void* logits = nullptr;
  Type type = Type::f32;
  const std::int64_t* offsets = nullptr;  ///< [rows], elements
  std::int64_t stride = 1;                ///< along v
  bool values = false;                    ///< statistics are computed; else those given are used

  /// May be `logits` with the same offsets, stride and type. nullptr: not wanted.
  void* grad_logits = nullptr;
  Type grad_type = Type::f32;
  const std::int64_t* grad_offsets = nullptr;  ///< [gradient_rows]
  std::int64_t grad_stride = 1;
  bool accumulate = false;
};

struct SoftmaxPlan {
  const char* schedule = "";
  std::int64_t v_block = 0;
  std::int64_t rows_per_task = 0;
  std::int64_t slices = 0;  ///< tasks that share a row
  int threads = 1;          ///< that work on it: each has a block of its own
  TargetForm form{};
  std::int64_t workspace_bytes = 0;
};

/// The best plan whose scratch stays within `limit`, else the one that takes least. Block sizes of
/// 0 are chosen here.
SoftmaxPlan plan_softmax(std::int64_t rows, std::int64_t v, const TargetForm& form,
                         std::int64_t b_block, std::int64_t v_block, int threads,
                         std::int64_t limit);

void run_softmax(const SoftmaxProblem& problem, const SoftmaxPlan& plan,
                 const Environment& environment, void* workspace);

}  // namespace tessera::streaming
