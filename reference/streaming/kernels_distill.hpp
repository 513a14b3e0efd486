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
  const Packet u = ei::psub(ei::pmul(student, inverse), splat(row.max_u));
  const Packet v = ei::psub(ei::pmul(teacher, inverse), splat(row.max_v));
  const Packet log_q = ei::psub(at_most_0(u), splat(row.log_sum_u));
  const Packet log_p = ei::psub(at_most_0(v), splat(row.log_sum_v));
  const Packet floor = splat(exp_floor);
  return {exp_packet(ei::pmax(log_q, floor)), exp_packet(ei::pmax(log_p, floor)),
          ei::psub(log_q, log_p)};
}

/// Beyond this one of two probabilities is nothing beside the other.
constexpr float most_log_ratio = 80.0f;

/// log(p / m) and log(q / m), where m = beta p + (1 - beta) q is the mixture.
struct Mixture {
  Packet of_p, of_q;
};

/// Each is formed of 1 + c (e^d - 1), where d is a log-ratio of the two: formed as a difference of
/// logarithms, words that both find as likely would lose all their digits.
Mixture mixture_of(const Probabilities& t, float beta) {
  const Packet r = ei::pmin(ei::pmax(t.log_ratio, splat(-most_log_ratio)), splat(most_log_ratio));
  const Packet q_is_larger = ei::pcmp_lt(splat(0.0f), r);
  const Packet down = ei::pnegate(ei::pabs(r));
  const Packet ratio = ei::pexp(down);  // of the smaller to the larger
  const Packet less = ei::pexpm1(down);
  const Packet p_share = splat(beta), q_share = splat(1.0f - beta);
  const Packet of_smaller = ei::pselect(q_is_larger, p_share, q_share);
  const Packet of_larger = ei::pselect(q_is_larger, q_share, p_share);
  // Far from 1 the sum of both shares is accurate; the rounding of 1 - beta would be all that is
  // left of a small beta in the other form.
  const Packet step = ei::pmul(of_smaller, less);
  const Packet log_larger = ei::pselect(ei::pcmp_lt(splat(-0.5f), step), ei::plog1p(step),
                                        ei::plog(ei::pmadd(of_smaller, ratio, of_larger)));
  const Packet log_smaller = ei::plog1p(ei::pnegate(ei::pdiv(ei::pmul(of_larger, less), ratio)));
  return {unless_zero(ei::pnegate(ei::pselect(q_is_larger, log_smaller, log_larger)), t.p),
          unless_zero(ei::pnegate(ei::pselect(q_is_larger, log_larger, log_smaller)), t.q)};
}

DistillMix distill_mix(const float* student, const float* teacher, std::int64_t n,
                       const DistillRow& row) {
  // Word by word the divergence is at least 0, so that its sum loses no digits.
  Packet both = splat(0.0f), from_q = both, sum_q = both;
  for (std::int64_t i = 0; i < padded(n); i += lanes) {
    const auto t =
        probabilities_of(ei::pload<Packet>(student + i), ei::pload<Packet>(teacher + i), row);
    const Mixture m = mixture_of(t, row.beta);
    const Packet of_p = ei::pmul(t.p, m.of_p), of_q = ei::pmul(t.q, m.of_q);
    const Packet share = ei::pmadd(splat(1.0f - row.beta), of_q, ei::pmul(splat(row.beta), of_p));
    both = ei::padd(both, share);
    from_q = ei::padd(from_q, of_q);
    sum_q = ei::padd(sum_q, t.q);
  }
  return {ei::predux(both), ei::predux(from_q), ei::predux(sum_q)};
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
      // A difference within the rounding of both is 0: the gradient of a student that is sure of
      // its word is, and the rounding of a large divergence would stand in its place.
      const Packet far = ei::psub(t.log_ratio, splat(row.constant));
      const Packet rounding = ei::pabs(splat(0x1p-20f * row.constant));
      g = ei::pandnot(ei::pmul(t.q, far), ei::pcmp_le(ei::pabs(far), rounding));
      g = unless_zero(g, t.q);
    } else if (row.divergence == Divergence::jsd) {
      const Packet far = ei::psub(mixture_of(t, row.beta).of_q, splat(row.constant));
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
