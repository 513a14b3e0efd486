// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/loss.hpp"

/// The judge: the loss as a textbook writes it, in double, with the logits materialised and the
/// gradients written out by hand. It knows the option structs and Eigen, and nothing it judges.
///
/// Where the maths leaves a choice, this is the choice:
/// - a term whose coefficient is exactly 0 is absent, even where the other factor is infinite: a
///   masked word (-Inf logit) of class weight 0 does not spoil the smoothing;
/// - everything else is IEEE: a per-token weight of 0 times an infinite loss is NaN;
/// - a row of nothing but -Inf has lse -Inf, loss, entropy and label_logprob NaN, and, like any row
///   whose loss is NaN, a NaN gradient;
/// - a row whose label is out of range has loss, label_logprob and its grad_x (or grad_logits) row
///   NaN, and its lse, entropy, z_loss and argmax as usual. It adds nothing to grad_w, grad_bias or
///   the mean's denominator, and makes the loss of a mean or a sum NaN; the other rows' gradients
///   are what they would be without it;
/// - the denominator of the mean is summed in row order; exactly 0 gives loss 0 and no gradient
///   from the loss;
/// - a row whose soft targets have a negative or NaN probability, or an index that is neither a
/// word
///   nor ignore_index, is like one whose label is out of range; two pairs of one index add up;
/// - an ignored row is never read. Its statistics are those of no columns at all: max -Inf, sum 0;
/// - argmax compares logits rounded to f32, the lowest index winning.
namespace tessera::oracle {

/// How far the student's distribution q is from the teacher's p, both at the temperature.
enum class Divergence {
  forward_kl,  ///< KL(p||q)
  reverse_kl,  ///< KL(q||p)
  jsd          ///< beta KL(p||m) + (1 - beta) KL(q||m), m = beta p + (1 - beta) q
};

/// A teacher, and what a row's loss has of its distribution:
/// (1 - alpha) nll + alpha T^2 divergence in place of nll.
struct Distillation {
  bool given = false;
  Divergence divergence = Divergence::forward_kl;
  double beta = 0.5;         ///< jsd; 0 means forward, 1 reverse KL
  double temperature = 1.0;  ///< divides final logits, of the divergence alone
  double alpha = 0.5;
  double logit_scale = 1.0;     ///< the teacher's
  double logit_soft_cap = 0.0;  ///< 0: none

  /// jsd at either end is a KL, as in the fused kernels of the field.
  Divergence effective() const {
    if (divergence != Divergence::jsd || (beta != 0.0 && beta != 1.0)) return divergence;
    return beta == 0.0 ? Divergence::forward_kl : Divergence::reverse_kl;
  }
};

struct Problem {
  std::int64_t b = 0, h = 0, v = 0;  ///< rows, hidden, columns of this call (a shard's)
  std::vector<double> x, w;          ///< [b, h] and [h, v], row-major; not read by the softmax
  std::vector<double> logits;        ///< [b, v] before scale and cap: softmax_cross_entropy
  std::vector<std::int64_t> labels;  ///< [b], global; empty where soft targets are given
  /// Soft targets as `k` pairs a row, each [b, k]; the indices are global, and one that is
  /// ignore_index is no pair. k = 0: not given.
  std::int64_t k = 0;
  std::vector<std::int64_t> target_indices;
  std::vector<double> target_probs;
  /// Soft targets of every word: [b, columns of the whole vocabulary]. Empty: not given.
  std::vector<double> targets;
  std::vector<double> bias;          ///< [v] or empty; not read by the softmax
  std::vector<double> weight;        ///< [b] or empty: 1
  std::vector<double> class_weight;  ///< [columns of the whole vocabulary] or empty: 1
  std::vector<double> dloss;         ///< empty: 1; one element (mean, sum) or b (none)
  std::vector<double> dlse;          ///< [b] or empty: 0
  std::vector<double> max, sum;      ///< [b] merged statistics for `backward`; empty: own
  /// [b, 5], as Values has them; empty: own.
  std::vector<double> divergence_statistics;
  LossOptions options{};  ///< a shard sets vocab_offset and vocab_size_total
  /// A teacher. With one, rows may have no target at all (labels empty): their nll is 0, and every
  /// row counts.
  Distillation distillation{};
  std::int64_t teacher_h = 0;
  std::vector<double> teacher_x, teacher_w;  ///< [b, teacher_h] and [teacher_h, v], row-major
  std::vector<double> teacher_bias;          ///< [v] or empty
  std::vector<double> teacher_logits;        ///< [b, v] before scale and cap, in place of these

  /// True: the logits are given, and x, w and bias are not read. A softmax problem without rows
  /// says so by h = -1.
  bool from_logits() const { return !logits.empty() || h < 0; }
  /// Columns of the whole vocabulary.
  std::int64_t v_total() const {
    return options.vocab_size_total > 0 ? options.vocab_size_total : v;
  }
  /// Whether rows have labels, pairs or probabilities.
  bool has_targets() const { return !labels.empty() || k > 0 || !targets.empty(); }
  /// True: these columns are the whole vocabulary.
  bool whole() const { return options.vocab_offset == 0 && v == v_total(); }
};

struct Values {
  // The ordinary outputs; empty for a problem that is not whole.
  std::vector<double> loss;            ///< 1, or b without reduction
  std::vector<double> label_logprob;   ///< [b]; of soft targets the sum of q (logit - lse)
  std::vector<double> entropy;         ///< [b]
  std::vector<double> z_loss;          ///< [b]
  std::vector<double> divergence;      ///< [b], unweighted and without T^2; empty: no teacher
  std::vector<double> target_entropy;  ///< [b] of p at the temperature; empty: no teacher
  /// [b, 5], with a teacher: of both distributions at the temperature the maximum of the logits, as
  /// f32 holds it, and the sum of their exponentials relative to it, the student's first; then what
  /// the gradient is relative to, the divergence or jsd's KL(q||m).
  std::vector<double> divergence_statistics;
  /// [b, 6], with a teacher: the fields of linear_distillation::DivergenceSums.
  std::vector<double> divergence_sums;
  // Of this call's columns, [b] each.
  std::vector<double> lse, max, sum;
  std::vector<std::int64_t> argmax;  ///< global; -1 for ignored rows
  // The other fields of tessera::Partial, [b] each.
  // label_logit is -Inf for soft targets, and what follows it 0 for labels.
  std::vector<double> label_logit, class_logit, class_sum, argmax_value, exp_logit;
  std::vector<double> target_logit, target_sum, weighted_logit, weighted_sum;
  /// [b, v]: the final logits after scale, bias and cap; 0 in ignored rows.
  std::vector<double> logits;
};

struct Gradients {
  std::vector<double> grad_x;       ///< [b, h]
  std::vector<double> grad_w;       ///< [h, v]
  std::vector<double> grad_bias;    ///< [v], whether or not a bias was given
  std::vector<double> grad_logits;  ///< [b, v], softmax: with respect to the given logits
  /// [b, v], linear: with respect to x . w + bias; 0 in rows that add nothing to grad_w.
  std::vector<double> dz;
};

/// The words that a row's target names and their probabilities; a label is one word of 1, padding
/// none.
std::vector<std::pair<std::int64_t, double>> target_of(const Problem& problem, std::int64_t row);
/// What a row of weight 1 adds to the mean's denominator: the weight of its label's class, the mean
/// of those of its pairs, 1 where every word has a probability.
double share_of(const Problem& problem, std::int64_t row);
/// Whether a row's target names no word at all: it is not read.
bool is_ignored(const Problem& problem, std::int64_t row);
/// Whether it names what is no word, or has a negative or NaN probability.
bool is_bad(const Problem& problem, std::int64_t row);
/// What is left of such a row: NaN in each of its values, argmax -1.
void spoil(Values& values, std::size_t row);

/// The number that saved sums are relative to. `saved`, the maximum as f32 holds it; beyond 2^24,
/// where the two may differ by more than 1 and exponentials would overflow, the maximum itself.
inline double base_of(double max, double saved) {
  return std::abs(max - saved) > 1.0 ? max : saved;
}
/// True: `saved` is `max`, the maximum of these columns. Else it is that of others, which may lie
/// below a logit of these by its rounding: such a logit counts as that maximum.
inline bool is_own(double max, double saved) {
  return static_cast<float>(max) == static_cast<float>(saved);
}

/// One row's divergence from final logits, those of the student and of the teacher.
struct RowDivergence {
  double value = 0.0;
  double target_entropy = 0.0;
  std::array<double, 5> statistics{};
  std::array<double, 6> sums{};
  std::vector<double> slope;  ///< by the student's logits over the temperature
};
/// `saved`: the statistics of a row of which these are but some columns; nullptr: they are all.
RowDivergence divergence_of(const Distillation& d, const double* student, const double* teacher,
                            std::int64_t v, const double* saved = nullptr);
/// Writes them where the values have them, those of every other row as of an ignored one at first.
void keep(const RowDivergence& divergence, const Problem& problem, std::int64_t row,
          Values& values);
/// The teacher's final logits, [b, v], 0 in ignored rows; empty where there is none. Throws as
/// `forward` does.
std::vector<double> teacher_logits(const Problem& problem);

/// Throws std::invalid_argument naming the member whose size does not fit the extents.
Values forward(const Problem& problem);
/// Gradients of sum(dloss * loss) + sum(dlse * lse). Throws as `forward` does.
Gradients backward(const Problem& problem);

}  // namespace tessera::oracle
