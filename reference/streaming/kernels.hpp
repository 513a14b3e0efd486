// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// The loops that must run at the speed of the machine, compiled once per instruction set and
/// chosen at run time. Plain data only: a type with inline member functions, seen by units that are
/// compiled with different flags, would let the linker keep the one the machine cannot run.
namespace tessera::streaming {

enum class Type : int { f32, bf16, f16 };

/// Floats in one cache line: rows of blocks start on, and are padded to, multiples of this, so that
/// no loop over a block has a tail and results do not depend on the alignment of a caller's array.
inline constexpr std::int64_t lane_quantum = 16;

/// C (m x n, column-major) = A (m x k) . B (k x n), or += . Strides in floats.
struct Gemm {
  std::int64_t m, n, k;
  const float* a;
  std::int64_t lda;
  bool a_row_major;
  const float* b;
  std::int64_t ldb;
  bool b_row_major;
  float* c;
  std::int64_t ldc;
  bool accumulate;
  float* scratch;               ///< for packing, aligned to a cache line
  std::int64_t scratch_floats;  ///< best gemm_scratch(m, n, k); less costs speed, min_gemm_scratch
                                ///< is the least
};

/// Two packed blocks of 16 by 16, each with two lines of padding.
inline constexpr std::int64_t min_gemm_scratch = 2 * (16 * 16 + 2 * lane_quantum);

/// A two-dimensional array of any type and strides (in elements).
template <class Pointer>
struct Array2Of {
  Pointer data;
  Type type;
  std::int64_t row_stride, column_stride;
};
using Array2 = Array2Of<void*>;
using ConstArray2 = Array2Of<const void*>;

/// What one stretch of a row adds to its statistics. Sums are relative to `base`, the larger of the
/// stretch's maximum and the running one.
struct Stretch {
  float max;   ///< NaN when any logit is NaN or +Inf
  float base;  ///< -Inf when nothing finite was seen: then the sums are 0
  float sum, exp_logit, class_logit;
};

/// What probabilities of a row come to.
struct Weighed {
  float sum;
  bool bad;  ///< one is negative or NaN
};

/// The gradient of one row: dz = (gain * exp(logit - max) - smooth * c - the hits of the column)
/// times the slope of scale and cap.
struct RowGradient {
  float max;
  float gain;
  float smooth;
  float hit;
  bool poisoned;  ///< the whole row is NaN
};

/// What the gradient takes off at single columns of a row: that of the label, or of the pairs of a
/// soft target.
struct Hits {
  const std::int64_t* columns;  ///< [count], in the numbering of `first`; others are elsewhere
  const float* values;          ///< [count]
  float* scratch;               ///< [count]
  std::int64_t count;
  std::int64_t first;  ///< column of the row's first element
};

/// How far a student's distribution q is from its teacher's p.
enum class Divergence : int { forward_kl, reverse_kl, jsd };

/// A row of a student and its teacher. u and v are their logits over the temperature.
struct DistillRow {
  Divergence divergence;
  float inverse_temperature;
  float beta;          ///< of jsd
  float max_u, max_v;  ///< so far, or of the whole row
  float log_sum_u, log_sum_v;
  float constant;  ///< of the gradient: the reverse divergence, or jsd's KL(q||m)
  float factor;    ///< of the gradient by u
};

/// What one stretch of a row adds to its sums, relative to `base_u` and `base_v`, the larger of the
/// stretch's maximum and the running one.
struct DistillStretch {
  float base_u, base_v;  ///< NaN when a logit of the student, or of the teacher, is NaN or +Inf
  float sum_u, sum_v;    ///< of exp
  float cross;           ///< of exp(v) (v - u), or of exp(u) (u - v)
  float exp_v;           ///< of exp(v) v
};

/// The sums of jsd: of beta p log(p / m) + (1 - beta) q log(q / m), of q log(q / m), and of q.
struct DistillMix {
  float both, from_q, sum_q;
};

/// One row of a tile of attention's logits, which are products so far.
struct AttentionRow {
  std::int64_t n;           ///< keys of the tile, padded to lane_quantum
  std::int64_t first, end;  ///< the row sees keys [first, end)
  const float* bias;        ///< [n], unaligned, read where the row sees; may be null
  float cap;                ///< 0: none
  float slope, place;       ///< a logit loses slope * |place - key|
  float max;                ///< running
};

/// The row's share of its statistics. The sum is relative to `max`, not below the running one.
struct AttentionStep {
  float max;  ///< NaN when any logit that the row sees is NaN or +Inf; -Inf: all are, so far
  float sum;
};

struct Kernels {
  const char* name;    ///< "baseline", "avx2" or "avx512"
  std::int64_t lanes;  ///< floats per register

  void (*gemm)(const Gemm&);
  std::int64_t (*gemm_scratch)(std::int64_t m, std::int64_t n, std::int64_t k);

  /// target[i] = source[i * stride] as f32.
  void (*load)(const void* source, Type type, std::int64_t stride, std::int64_t n, float* target);
  /// target[i * stride] = source[i] rounded once, or += with the sum formed in f32.
  void (*store)(const float* source, std::int64_t n, void* target, Type type, std::int64_t stride,
                bool accumulate);
  /// target[r * ld + c] = source(r, c).
  void (*load_block)(const ConstArray2& source, std::int64_t rows, std::int64_t columns,
                     float* target, std::int64_t ld);
  /// target(r, c) = source[r * ld + c], or += .
  void (*store_block)(const float* source, std::int64_t ld, std::int64_t rows, std::int64_t columns,
                      const Array2& target, bool accumulate);

  /// In place: row = cap * tanh(scale * (row + bias) / cap), and -Inf from n to the next multiple
  /// of lane_quantum. `bias` (unaligned) may be null.
  void (*finish)(float* row, std::int64_t n, const float* bias, float scale, float cap);
  /// Statistics of n logits, padded by `finish`. `class_weight` (unaligned) may be null: 1.
  Stretch (*reduce)(const float* row, std::int64_t n, float running_max, const float* class_weight,
                    bool class_terms, bool entropy);
  /// The sum of weight * (logit - base), without the terms of weight 0; no padding is read.
  float (*weighted_sum)(const float* row, std::int64_t n, float base, const float* weight);
  /// target[i] = (keep * q[i] + smooth) * c[i], and what they add up to. Nothing need be aligned;
  /// `c` may be null, 1, and so may `target`, which may be q.
  Weighed (*weigh)(const float* q, std::int64_t n, float keep, float smooth, const float* c,
                   float* target);
  /// In place: logits become dz.
  void (*gradient)(float* row, std::int64_t n, const RowGradient& coefficients,
                   const float* class_weight, const Hits& hits, float scale, float cap);
  /// target[i] += source[i].
  void (*add)(const float* source, std::int64_t n, float* target);

  /// Sums of n logits of a student and its teacher, both padded by `finish`. `reverse`: cross is of
  /// the student's exponentials.
  DistillStretch (*distill)(const float* student, const float* teacher, std::int64_t n,
                            const DistillRow& running, bool reverse);
  /// Of whole rows' sums in `row`.
  DistillMix (*distill_mix)(const float* student, const float* teacher, std::int64_t n,
                            const DistillRow& row);
  /// In place: the teacher's logits become what the divergence adds to dz.
  void (*distill_gradient)(const float* student, float* teacher, std::int64_t n,
                           const DistillRow& row, float scale, float cap);

  /// In place: products become exp(logit - max), and 0 where the row sees no key.
  AttentionStep (*attend)(float* row, const AttentionRow& terms);
  /// target[i] *= factor.
  void (*scale)(float* target, std::int64_t n, float factor);
  /// target[i] += factor * source[i].
  void (*add_scaled)(const float* source, std::int64_t n, float factor, float* target);
  bool (*all_finite)(const float* source, std::int64_t n);
};

/// The best that this machine runs.
const Kernels& kernels();

}  // namespace tessera::streaming
