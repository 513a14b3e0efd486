// SPDX-License-Identifier: Apache-2.0
#include "tests/support/divergence_tolerance.hpp"

#include <algorithm>
#include <cmath>

#include "tests/support/logit_errors.hpp"

// Where the tolerances come from; u, e_bv and s are those of tolerance.cpp.
//
// At the temperature T, a student's logit is off by e / T, log q_v therefore by
//   E_v = e_v / T + sum q e / T + s + 4 u (max - log q_v's own logit + |log sum|),
// and q_v by that, relatively; F_v is the same of the teacher's log p_v. A backward that forms
// probabilities from a saved lse adds 2 u |lse|.
//
// A divergence D moves with the logits by its slopes: with q - p and p (log(p/q) - D) for
// KL(p||q), with q (log(q/p) - D) and p - q for KL(q||p), and with
// (1 - beta) q (log(q/m) - KL(q||m)) and beta p (log(p/m) - KL(p||m)) in between. The sum itself,
// blockwise in f32 with exp2 and log2 to 4 ulp, adds (16 + sqrt(V)) u times the size of its terms:
// the probability in front times (|log p| + |log q| + 1), in between times |log(p/m)| or |log(q/m)|
// as what is formed there is no difference of logarithms.
//
// The slope by u_v is q_v - p_v, off by q_v E_v + p_v F_v, or q_v (l_v - K), l_v = log(q/r) of
// r = p or m, K its mean over q, off by
//   q_v (E_v |l_v - K| + E_v + F_v + dK + 8 u (|log q_v| + |log p_v| + K)).
// In between l_v moves by beta p_v / m_v of E_v + F_v, and is itself what is rounded:
//   q_v (E_v |l_v - K| + beta p_v / m_v (E_v + F_v) + dK + 8 u (|l_v| + K)).

namespace tessera::test {
namespace {

/// softmax(logits / T), its logarithms and how far those may be off.
struct Distribution {
  Distribution(const double* logits, const double* errors, std::int64_t v, double temperature) {
    double max = -INFINITY;
    for (std::int64_t j = 0; j < v; ++j) max = std::max(max, logits[j] / temperature);
    double sum = 0.0;
    for (std::int64_t j = 0; j < v; ++j) sum += std::exp(logits[j] / temperature - max);
    double common = (8.0 + root(v)) * u + 2.0 * u * std::abs(max + std::log(sum));
    for (std::int64_t j = 0; j < v; ++j) {
      const double below = max - logits[j] / temperature;
      log_p.push_back(-below - std::log(sum));
      p.push_back(std::exp(log_p.back()));
      if (p.back() != 0.0) common += p.back() * (errors[j] / temperature + 3.0 * u * below);
      input.push_back(errors[j] / temperature);
      error.push_back(p.back() == 0.0
                          ? 0.0
                          : errors[j] / temperature + 4.0 * u * (below + std::abs(std::log(sum))));
    }
    for (auto& e : error) e += common;
    // What the rounding of the maximum adds is not in the logarithms.
    lse = common + 2.0 * u * std::abs(max);
    if (!std::isfinite(lse)) lse = 0.0;
  }

  std::vector<double> p, log_p;
  std::vector<double> input;  ///< of the logits over T
  std::vector<double> error;  ///< of log p
  double lse = 0.0;           ///< of the log-sum-exp
};

/// KL(a||r), whose log is given; a word of a = 0 adds nothing.
double kl(const Distribution& a, const std::vector<double>& log_r) {
  double sum = 0.0;
  for (std::size_t j = 0; j < a.p.size(); ++j) {
    if (a.p[j] != 0.0) sum += a.p[j] * (a.log_p[j] - log_r[j]);
  }
  return sum;
}

/// |log|, where there is one.
double size_of(double logarithm) { return std::isfinite(logarithm) ? std::abs(logarithm) : 0.0; }

/// A relative error that is not small any more grows as the exponential.
double grown(double relative) { return std::expm1(std::min(40.0, relative)); }

}  // namespace

DivergenceErrors::DivergenceErrors(const oracle::Problem& problem,
                                   const std::vector<double>& logits,
                                   const std::vector<double>& errors)
    : problem_(problem), logits_(logits), errors_(errors) {
  if (!problem.distillation.given) return;
  teacher_ = oracle::teacher_logits(problem);
  // The teacher as a student of its own.
  oracle::Problem teacher;
  teacher.b = problem.b;
  teacher.h = problem.teacher_logits.empty() ? problem.teacher_h : -1;
  teacher.v = problem.v;
  teacher.x = problem.teacher_x;
  teacher.w = problem.teacher_w;
  teacher.bias = problem.teacher_bias;
  teacher.logits = problem.teacher_logits;
  teacher.options.logit_scale = static_cast<float>(problem.distillation.logit_scale);
  teacher.options.logit_soft_cap = static_cast<float>(problem.distillation.logit_soft_cap);
  teacher_errors_ = logit_errors(teacher, teacher_);
}

DivergenceErrors::Row DivergenceErrors::of_row(std::int64_t row) const {
  const oracle::Distillation& d = problem_.distillation;
  const std::int64_t v = problem_.v, first = row * v;
  const Distribution q(logits_.data() + first, errors_.data() + first, v, d.temperature);
  const Distribution p(teacher_.data() + first, teacher_errors_.data() + first, v, d.temperature);
  const bool forward = d.effective() == oracle::Divergence::forward_kl;
  const bool reverse = d.effective() == oracle::Divergence::reverse_kl;
  const double of_p = forward ? 1.0 : reverse ? 0.0 : d.beta;  // shares of the two KLs
  const double of_q = 1.0 - of_p;
  // What p and q are compared with.
  std::vector<double> from_p = q.log_p, from_q = p.log_p;
  const bool mixed = !forward && !reverse;
  std::vector<double> p_share(p.p.size(), 1.0);  // beta p / m in between
  for (std::size_t j = 0; j < p.p.size() && mixed; ++j) {
    const double of_both[] = {std::log(d.beta) + p.log_p[j], std::log1p(-d.beta) + q.log_p[j]};
    const double larger = std::max(of_both[0], of_both[1]);
    if (std::isfinite(larger)) {
      from_p[j] = from_q[j] =
          larger + std::log(std::exp(of_both[0] - larger) + std::exp(of_both[1] - larger));
    }
    p_share[j] = p.p[j] == 0.0 ? 0.0 : std::exp(of_both[0] - from_p[j]);
  }
  const double kl_p = of_p == 0.0 ? 0.0 : kl(p, from_p);
  const double kl_q = of_q == 0.0 ? 0.0 : kl(q, from_q);

  Row r;
  const double sum_error = (16.0 + root(v)) * u;
  double q_error = 0.0;   // of kl_q, as it adds to the divergence
  double relative = 0.0;  // and what is left of it there, since that of kl_p is its opposite
  for (std::size_t j = 0; j < p.p.size(); ++j) {
    const double size = size_of(p.log_p[j]) + size_of(q.log_p[j]) + 1.0;
    if (p.p[j] != 0.0) {
      r.target_entropy += p.p[j] * (p.error[j] * (size_of(p.log_p[j]) + 1.0) +
                                    sum_error * (size_of(p.log_p[j]) + 1.0));
    }
    if (of_p != 0.0 && p.p[j] != 0.0) {
      const double log = p.log_p[j] - from_p[j];
      r.value += of_p * p.p[j] *
                 (p.error[j] * std::abs(log - kl_p) + sum_error * (mixed ? std::abs(log) : size));
      if (forward) r.value += std::abs(q.p[j] - p.p[j]) * q.input[j];
    } else if (forward) {
      r.value += q.p[j] * q.input[j];
    }
    if (of_q != 0.0 && q.p[j] != 0.0) {
      const double log = q.log_p[j] - from_q[j];
      const double moved = q.p[j] * q.error[j] * std::abs(log - kl_q);
      q_error += moved + q.p[j] * sum_error * (mixed ? std::abs(log) : size);
      if (mixed) {
        const double both = q.error[j] + p.error[j];
        relative += q.p[j] * p_share[j] * both;
        // Near equality the first order is 0.
        r.value += 0.5 * of_q * q.p[j] * p_share[j] * both * both;
      }
      if (reverse) q_error += std::abs(q.p[j] - p.p[j]) * p.input[j];
    }
  }
  r.value += of_q * q_error;
  r.student_lse = q.lse;
  r.teacher_lse = p.lse;
  if (!std::isfinite(r.value) || !std::isfinite(kl_p + kl_q)) r.value = 0.0;
  if (!std::isfinite(r.target_entropy)) r.target_entropy = 0.0;
  q_error += relative;
  r.relative = forward || reverse ? r.value : q_error;
  if (!std::isfinite(r.relative) || !std::isfinite(kl_q)) r.relative = 0.0;

  for (std::size_t j = 0; j < p.p.size(); ++j) {
    const double q_off = q.p[j] * grown(q.error[j]);
    if (forward) {
      r.slope.push_back(std::abs(q.p[j] - p.p[j]));
      r.slope_error.push_back(q_off + p.p[j] * grown(p.error[j]));
      continue;
    }
    if (q.p[j] == 0.0) {
      r.slope.push_back(0.0);
      r.slope_error.push_back(0.0);
      continue;
    }
    const double log = q.log_p[j] - from_q[j];
    r.slope.push_back(of_q * q.p[j] * std::abs(log - kl_q));
    const double sizes = mixed ? std::abs(log) : size_of(q.log_p[j]) + size_of(p.log_p[j]);
    const double both = q.error[j] + (p.p[j] == 0.0 ? 0.0 : p.error[j]);
    r.slope_error.push_back(
        of_q * (q_off * std::abs(log - kl_q) +
                q.p[j] * (p_share[j] * both + q_error + 8.0 * u * (sizes + std::abs(kl_q)))));
  }
  return r;
}

}  // namespace tessera::test
