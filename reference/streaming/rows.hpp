// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>

#include "reference/streaming/kernels.hpp"

/// What the two streaming operators share: who runs tasks, scratch memory, statistics of rows.
namespace tessera::streaming {

/// Runs body(task, worker) for every task in [0, tasks), each once, in any order; `worker` lies in
/// [0, threads), and no two tasks that run at once share it. `phase`: what the tasks do, a literal.
using ParallelFor =
    std::function<void(const char* phase, std::int64_t tasks,
                       const std::function<void(std::int64_t task, int worker)>& body)>;

/// Where a call runs. Results depend on `threads` and `kernels`, never on which thread did what.
struct Environment {
  int threads = 1;
  ParallelFor parallel_for{};
  const Kernels* kernels = nullptr;  ///< nullptr: the best of this machine
};

/// Runs the tasks on at most `threads` of the environment's; `worker` lies in [0, threads).
void parallel_for(const Environment& environment, int threads, const char* phase,
                  std::int64_t tasks,
                  const std::function<void(std::int64_t task, int worker)>& body);

/// Statistics of one row over the columns seen so far. Sums are relative to `max` and kept in
/// double: one addition per block and row, which costs nothing.
struct RowSums {
  float max = -std::numeric_limits<float>::infinity();  ///< NaN when any logit was NaN or +Inf
  float label_logit = -std::numeric_limits<float>::infinity();  ///< -Inf: the label was not seen
  double sum = 0.0;                                             ///< sum of exp(logit - max)
  double exp_logit = 0.0;     ///< sum of exp(logit - max) * (logit - max)
  double class_logit = 0.0;   ///< sum of c * (logit - max), terms of c = 0 left out
  double class_sum = 0.0;     ///< sum of c
  double target_logit = 0.0;  ///< sum of q * (logit - max), terms of q = 0 left out
  double target_sum = 0.0;    ///< sum of q
  double hit_logit = 0.0;     ///< sum of q c * (logit - max), terms of q c = 0 left out
  double hit_sum = 0.0;       ///< sum of q c
  std::int64_t argmax = -1;   ///< column of the largest logit, lowest on ties; -1: none seen
};

/// Where the rows' targets are besides labels: in `k` pairs of column and probability a row, or in
/// a probability of every column, which take scratch memory of a worker.
struct TargetForm {
  std::int64_t k = 0;
  bool dense = false;

  /// Floats of a worker's scratch for blocks of `v_block` columns.
  std::int64_t scratch(std::int64_t v_block) const;
};

/// Appends `later`, whose columns all lie behind those of `sums`.
void merge_into(const RowSums& later, RowSums& sums);
/// Sum of n class weights; nullptr: n.
double sum_of(const float* class_weight, std::int64_t n);
/// lse of (max, sum): -Inf when nothing finite was seen.
double log_sum_exp(double max, double sum);

/// How the gradient of one row depends on its statistics:
/// g = loss * ((a + 2 * logsumexp_weight * lse) p - hit * onehot - smooth * c) + dlse * p.
struct Cotangent {
  double loss = 0.0;  ///< weight_b * dloss_b
  double dlse = 0.0;
  double a = 1.0;
  double hit = 1.0;     ///< (1 - eps) * c_y
  double smooth = 0.0;  ///< eps / V
};
/// The rows of a loss operator's problem, and what is computed of each.
struct LossProblem {
  std::int64_t rows = 0, gradient_rows = 0, v = 0;
  const float* class_weight = nullptr;   ///< [v]; nullptr: 1
  const std::int64_t* labels = nullptr;  ///< [rows], columns of this call, or outside of [0, v)
  TargetForm form{};                     ///< k or dense: `labels` is not read
  const std::int64_t* pair_columns = nullptr;  ///< [rows, k], as labels
  float* pair_logits = nullptr;                ///< [rows, k]: written by values
  const float* pair_hits = nullptr;            ///< [gradient_rows, k]: what dz is less by
  const void* targets = nullptr;               ///< dense: q
  Type target_type = Type::f32;
  const std::int64_t* target_offsets = nullptr;  ///< [rows], elements
  std::int64_t target_stride = 1;
  float keep = 1.0f, smooth = 0.0f;  ///< dense: t = keep * q + smooth
  bool target_terms = false;         ///< dense: the sums of q beside those of c t
  bool hit_terms = false;            ///< dense: those of q c too, and of c in place of c t
  float scale = 1.0f, cap = 0.0f;
  bool class_terms = false, entropy = false, argmax = false;
  /// [rows]: written by values, with argmax as a column of this call; read (max, sum) otherwise.
  RowSums* sums = nullptr;
  const Cotangent* cotangents = nullptr;  ///< [gradient_rows]
  double logsumexp_weight = 0.0;
};

/// Adds n final logits of a row, padded by Kernels::finish, to its statistics; `class_sum` is the
/// columns' sum of c. `scratch` has TargetForm::scratch floats.
void add_columns(const LossProblem& problem, const Kernels& kernels, std::int64_t row,
                 std::int64_t first_column, std::int64_t n, const float* logits, double class_sum,
                 float* scratch, RowSums& sums);

/// In place: n final logits of a row become dz. `scratch` as above.
void differentiate_columns(const LossProblem& problem, const Kernels& kernels, std::int64_t row,
                           std::int64_t first_column, std::int64_t n, const RowGradient& gradient,
                           float* logits, float* scratch);

RowGradient row_gradient(const Cotangent& cotangent, double max, double sum,
                         double logsumexp_weight);

/// Hands out pieces of one block of memory; with a null block it only counts.
class Arena {
 public:
  explicit Arena(void* block) : base_(static_cast<char*>(block)) {}
  template <class T>
  T* take(std::int64_t count) {
    auto* piece = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    // Whole cache lines: blocks must start on one, and threads must not share one.
    used_ += (count * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
    return piece;
  }
  std::int64_t used() const { return used_; }

 private:
  char* base_;
  std::int64_t used_ = 0;
};

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
inline std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

}  // namespace tessera::streaming
