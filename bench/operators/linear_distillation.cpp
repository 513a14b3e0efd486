// SPDX-License-Identifier: Apache-2.0
#include "tessera/linear_distillation.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/linear_data.hpp"
#include "bench/linear_judge.hpp"
#include "bench/operator.hpp"
#include "bench/sweeps.hpp"

namespace tessera::bench {
namespace {

constexpr double u = unit_roundoff;

/// The sampled rows with their teacher, at the operator's default options but for the divergence.
oracle::Problem with_teacher(const LossJudge& judge, const Factors& teacher) {
  constexpr linear_distillation::Options defaults;
  oracle::Problem p = judge.problem();
  p.distillation.given = true;
  p.distillation.divergence = static_cast<oracle::Divergence>(judge.data().key.divergence);
  p.distillation.beta = static_cast<double>(defaults.beta);
  p.distillation.temperature = static_cast<double>(defaults.temperature);
  p.distillation.alpha = static_cast<double>(defaults.alpha);
  p.teacher_logits = products(teacher.x, teacher.w, judge.rows());
  return p;
}

/// The normaliser of a row, and its largest logit.
struct Normaliser {
  Normaliser(const double* logits, std::int64_t v) {
    max = *std::max_element(logits, logits + v);
    double sum = 0.0;
    for (std::int64_t j = 0; j < v; ++j) sum += std::exp(logits[j] - max);
    lse = max + std::log(sum);
  }
  double max, lse;
};

/// What the divergence's part of dz may be off by, beyond what the loss's own is. With E what log q
/// and log p of a word may be off by together (logits, normalisers, the arguments of exp), that is
/// p E for forward KL, whose slope is q - p, and q (2 + |log(q / p)| + D) E at most for the others,
/// whose slope is q times a difference of logarithms of that size.
std::vector<double> divergence_errors(const LossJudge& judge, const Factors& teacher,
                                      const oracle::Problem& p) {
  const bool forward = p.distillation.effective() == oracle::Divergence::forward_kl;
  std::vector<double> errors;
  for (std::size_t i = 0; i < judge.rows().size(); ++i) {
    const auto* of_teacher = p.teacher_logits.data() + i * at(p.v);
    const auto* of_student = p.logits.data() + i * at(p.v);
    const Normaliser t(of_teacher, p.v), s(of_student, p.v);
    double off = 0.0;
    for (std::int64_t j = 0; j < p.v; ++j) {
      off = std::max(off, teacher.error(judge.rows()[i], j) + 4.0 * u * std::abs(of_teacher[j]));
    }
    const double common = 2.0 * (off + judge.largest_lse_error()) + (24.0 + root(p.v)) * u +
                          2.0 * u * (std::abs(t.lse) + std::abs(s.lse));
    const double value = oracle::divergence_of(p.distillation, of_student, of_teacher, p.v).value;
    const double scale = p.dloss[i] * p.distillation.alpha;
    for (std::int64_t j = 0; j < p.v; ++j) {
      const double log_p = of_teacher[j] - t.lse, log_q = of_student[j] - s.lse;
      const double far = 3.0 * u * ((t.max - of_teacher[j]) + (s.max - of_student[j]));
      const double size =
          forward ? std::exp(log_p) : std::exp(log_q) * (2.0 + std::abs(log_q - log_p) + value);
      errors.push_back(scale * size * (common + far));
    }
  }
  return errors;
}

/// A student and a teacher of the same width.
class Benched final : public BenchOperator {
 public:
  Benched() : BenchOperator("linear_distillation") {}

  void make_arrays(Data& data) const override {
    data.arrays.set("x", hidden_states(data.key, 1));
    data.arrays.set("w", weights(data.key, 2));
    data.arrays.set("teacher_x", hidden_states(data.key, 11));
    data.arrays.set("teacher_w", weights(data.key, 12));
  }

  /// The statistics and grad_x, into which the loss's every term goes; the loss itself would need
  /// the divergence of every row in double.
  Deviation judge(const Data& data, const Outcome& outcome, double filter_eps) const override {
    const Factors student(data.arrays["x"], data.arrays["w"]);
    const Factors teacher(data.arrays["teacher_x"], data.arrays["teacher_w"]);
    LossJudge judge(data, logits_of(student), filter_eps);
    if (const auto& tensor = outcome["statistics"]) judge.statistics(tensor);
    if (const auto& tensor = outcome["grad_x"]) {
      const oracle::Problem p = with_teacher(judge, teacher);
      const auto errors = divergence_errors(judge, teacher, p);
      judge_grad_x(judge, student, oracle::backward(p).grad_logits, tensor,
                   [&](std::size_t i, std::int64_t j) { return errors[i * at(p.v) + at(j)]; });
    }
    return judge.finish();
  }
};

}  // namespace

const BenchOperator& linear_distillation_in_bench() {
  static const Benched benched;
  return benched;
}

}  // namespace tessera::bench
