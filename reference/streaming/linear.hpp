// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "reference/streaming/distill.hpp"
#include "reference/streaming/rows.hpp"

/// linear_cross_entropy on the host, blockwise: logits exist for one chunk of rows and one range of
/// columns at a time. Matrix products are Eigen's, one per task of the caller's thread pool.
namespace tessera::streaming {

/// A teacher whose logits a walk forms beside the student's.
struct TeacherShape {
  bool given = false;
  std::int64_t h = 0;  ///< of its layer; 0 where its logits are given
  bool mixes = false;  ///< a second look at all columns precedes the gradient
};

/// What fixes the schedule: everything but the data.
struct LinearShape {
  std::int64_t rows = 0, h = 0, v = 0;
  bool values = false;  ///< statistics are computed; else those given are used
  bool grad_x = false, grad_w = false, grad_bias = false;
  bool grad_x_f32 = true;  ///< partial sums may live in grad_x itself
  bool grad_w_f32 = true;
  int threads = 1;  ///< that there are
  TargetForm form{};
  TeacherShape teacher{};

  bool gradients() const { return grad_x || grad_w || grad_bias; }
};

/// Block sizes of the caller; 0: chosen here.
struct LinearBlocks {
  std::int64_t b = 0, h = 0, v = 0;
};

/// One walk over all rows and columns.
struct Sweep {
  std::int64_t rows = 0;    ///< of a chunk
  std::int64_t blocks = 0;  ///< of v_block columns, in a range
  bool values = false;
  bool mixes = false;   ///< a second look: a teacher's jsd, from sums of all columns
  bool stored = false;  ///< the logits of a chunk and range are kept, to become dz in place
  bool grad_x = false, grad_w = false, grad_bias = false;
  bool v_outer = false;        ///< ranges outside, chunks inside; else the other way round
  bool w_accumulator = false;  ///< sums of grad_w wait in f32 for the last chunk
  bool x_accumulator = false;  ///< sums of grad_x wait in f32 for the last range
};

struct LinearPlan {
  const char* schedule = "";
  std::int64_t v_block = 0, h_block = 0;
  int threads = 1;  ///< that work on it: each has scratch of its own
  TargetForm form{};
  TeacherShape teacher{};
  Sweep sweeps[3];
  int sweep_count = 0;
  std::int64_t workspace_bytes = 0;

  /// Rows of the sweep that multiplies most.
  std::int64_t rows_per_chunk() const { return sweeps[sweep_count - 1].rows; }
};

/// The best plan whose scratch stays within `limit`; nothing when none does. With `strict` the
/// limit bounds all scratch memory; without, only what grows with the number of columns or of
/// chunks, so that a default does not shrink with the number of threads.
std::optional<LinearPlan> plan_linear(const LinearShape& shape, const LinearBlocks& blocks,
                                      std::int64_t limit, bool strict, const Kernels& kernels);
/// The least scratch memory with which a strict plan exists.
std::int64_t minimum_workspace(const LinearShape& shape, const LinearBlocks& blocks,
                               const Kernels& kernels);

/// What logits are the product of.
struct LinearLayer {
  std::int64_t h = 0;
  const void* x = nullptr;
  Type x_type = Type::f32;
  const std::int64_t* x_offsets = nullptr;  ///< [rows], elements
  std::int64_t x_stride = 1;                ///< along h
  const void* w = nullptr;
  Type w_type = Type::f32;
  std::int64_t w_stride_h = 0, w_stride_v = 1;
  const float* bias = nullptr;  ///< [v]
};

/// The teacher: a layer, or logits that exist.
struct Teacher : LinearLayer {
  const void* logits = nullptr;
  Type logits_type = Type::f32;
  const std::int64_t* logits_offsets = nullptr;  ///< [rows], elements
  std::int64_t logits_stride = 1;
  float scale = 1.0f, cap = 0.0f;
  DistillTerms terms{};
  DistillSums* sums = nullptr;  ///< [rows], written by values
};

/// Rows are those that are not ignored, in any order; the first `gradient_rows` take part in
/// gradients (the rest have no usable label).
struct LinearProblem : LossProblem, LinearLayer {
  const Teacher* teacher = nullptr;
  bool keeps_sums = false;  ///< those of the student are given: values are the teacher's alone

  bool add_x = false, add_w = false, add_bias = false;  ///< to what the gradient holds
  void* grad_x = nullptr;
  Type grad_x_type = Type::f32;
  const std::int64_t* grad_x_offsets = nullptr;  ///< [gradient_rows]
  std::int64_t grad_x_stride = 1;
  void* grad_w = nullptr;
  Type grad_w_type = Type::f32;
  std::int64_t grad_w_stride_h = 0, grad_w_stride_v = 1;
  void* grad_bias = nullptr;
  Type grad_bias_type = Type::f32;
  std::int64_t grad_bias_stride = 1;
};

/// Runs `plan`, made for a shape with at least as many rows, in `workspace` (plan.workspace_bytes
/// bytes, aligned to 64).
void run_linear(const LinearProblem& problem, const LinearPlan& plan,
                const Environment& environment, void* workspace);

}  // namespace tessera::streaming
