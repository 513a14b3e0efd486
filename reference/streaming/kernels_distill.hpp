// SPDX-License-Identifier: Apache-2.0
// Rows of a student's and a teacher's logits; a part of kernels_impl.hpp, which says how it is
// compiled. All run over whole lines: `finish` has padded both rows with -Inf, which adds nothing.

namespace tessera::streaming {
namespace {

/// x where the probability is not 0, else 0: a word of probability 0 adds nothing, whatever the
/// factor.
Packet unless_zero(const Packet& x, const Packet& probability) {
  return ei::pandnot(x, ei::pcmp_eq(probability, splat(0.0f)));
}

DistillStretch distill(const float* student, const float* teacher, std::int64_t n,
                       const DistillRow& running, bool reverse) {
  const std::int64_t end = padded(n);
  const float inverse = running.inverse_temperature;
  DistillStretch s = {};
  const float max_u = max_of(student, end) * inverse;
  const float max_v = max_of(teacher, end) * inverse;
  // What is no number spoils what it is in; the teacher's own sums have nothing of the student.
  const bool no_u = !(max_u < infinity);
  if (!(max_v < infinity)) {
    s.base_u = s.base_v = __builtin_nanf("");
    return s;
  }
  s.base_u = no_u || max_u > running.max_u ? max_u : running.max_u;
  s.base_v = max_v > running.max_v ? max_v : running.max_v;
  // Nothing but -Inf so far: every exponential is 0 whatever it is relative to.
  const Packet base_u = splat(s.base_u == -infinity ? 0.0f : s.base_u);
  const Packet base_v = splat(s.base_v == -infinity ? 0.0f : s.base_v);
  const Packet floor = splat(exp_floor);
  Packet sum_u = splat(0.0f), sum_v = sum_u, cross = sum_u, exp_v = sum_u;
  for (std::int64_t i = 0; i < end; i += lanes) {
    const Packet u = ei::psub(ei::pmul(ei::pload<Packet>(student + i), splat(inverse)), base_u);
    const Packet v = ei::psub(ei::pmul(ei::pload<Packet>(teacher + i), splat(inverse)), base_v);
    const Packet u_floored = ei::pmax(u, floor);
    const Packet v_floored = ei::pmax(v, floor);
    const Packet eu = exp_packet(u_floored);
    const Packet ev = exp_packet(v_floored);
    sum_u = ei::padd(sum_u, eu);
    sum_v = ei::padd(sum_v, ev);
    exp_v = ei::pmadd(ev, v_floored, exp_v);
    const Packet far = reverse ? ei::psub(u_floored, v) : ei::psub(v_floored, u);
    const Packet e = reverse ? eu : ev;
    cross = ei::padd(cross, unless_zero(ei::pmul(e, far), e));
  }
  if (no_u) s.base_u = __builtin_nanf("");
  s.sum_u = ei::predux(sum_u);
  s.sum_v = ei::predux(sum_v);
  s.cross = ei::predux(cross);
  s.exp_v = ei::predux(exp_v);
  return s;
}

/// What the terms of a row are made of: probabilities, and log(q / p).
struct Probabilities {
  Packet q, p, log_ratio;
};

Probabilities probabilities_of(const Packet& student, const Packet& teacher,
                               const DistillRow& row) {
  const Packet inverse = splat(row.inverse_temperature);
  const Packet log_q =
      ei::psub(ei::psub(ei::pmul(student, inverse), splat(row.max_u)), splat(row.log_sum_u));
  const Packet log_p =
      ei::psub(ei::psub(ei::pmul(teacher, inverse), splat(row.max_v)), splat(row.log_sum_v));
  const Packet floor = splat(exp_floor);
  return {exp_packet(ei::pmax(log_q, floor)), exp_packet(ei::pmax(log_p, floor)),
          ei::psub(log_q, log_p)};
}

/// Beyond this one of two probabilities is nothing beside the other.
constexpr float most_log_ratio = 80.0f;

/// log(m / p), and the ratio that it is formed from, within its bounds: m = p (beta + (1 - beta)
/// q / p), so that no mixture of two tiny numbers is taken the logarithm of.
Packet log_mixture(const Probabilities& t, float beta, Packet& log_ratio) {
  log_ratio = ei::pmin(ei::pmax(t.log_ratio, splat(-most_log_ratio)), splat(most_log_ratio));
  const Packet ratio = ei::pexp(log_ratio);
  return ei::plog(ei::pmadd(splat(1.0f - beta), ratio, splat(beta)));
}

DistillMix distill_mix(const float* student, const float* teacher, std::int64_t n,
                       const DistillRow& row) {
  Packet from_p = splat(0.0f), from_q = from_p;
  for (std::int64_t i = 0; i < padded(n); i += lanes) {
    const auto t =
        probabilities_of(ei::pload<Packet>(student + i), ei::pload<Packet>(teacher + i), row);
    Packet log_ratio;
    const Packet log_m = log_mixture(t, row.beta, log_ratio);
    from_p = ei::psub(from_p, unless_zero(ei::pmul(t.p, log_m), t.p));
    from_q = ei::padd(from_q, unless_zero(ei::pmul(t.q, ei::psub(log_ratio, log_m)), t.q));
  }
  return {ei::predux(from_p), ei::predux(from_q)};
}

void distill_gradient(const float* student, float* teacher, std::int64_t n, const DistillRow& row,
                      float scale, float cap) {
  const bool capped = cap != 0.0f;
  const float inverse_cap = capped ? 1.0f / cap : 0.0f;
  for (std::int64_t i = 0; i < padded(n); i += lanes) {
    const Packet logit = ei::pload<Packet>(student + i);
    const auto t = probabilities_of(logit, ei::pload<Packet>(teacher + i), row);
    Packet g = ei::psub(t.q, t.p);
    if (row.divergence == Divergence::reverse_kl) {
      g = unless_zero(ei::pmul(t.q, ei::psub(t.log_ratio, splat(row.constant))), t.q);
    } else if (row.divergence == Divergence::jsd) {
      Packet log_ratio;
      const Packet log_m = log_mixture(t, row.beta, log_ratio);
      const Packet far = ei::psub(ei::psub(log_ratio, log_m), splat(row.constant));
      g = unless_zero(ei::pmul(splat(1.0f - row.beta), ei::pmul(t.q, far)), t.q);
    }
    g = ei::pmul(g, splat(row.factor * scale));
    if (capped) {
      const Packet tanh = ei::pmul(logit, splat(inverse_cap));
      // The padding's logit is no tanh.
      const Packet slope = ei::psub(splat(1.0f), ei::pmul(tanh, tanh));
      g = ei::pmul(g, slope);
    }
    ei::pstore(teacher + i, g);
  }
}

}  // namespace
}  // namespace tessera::streaming
