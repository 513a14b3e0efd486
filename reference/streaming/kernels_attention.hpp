// SPDX-License-Identifier: Apache-2.0
// Rows of attention's logits; a part of kernels_impl.hpp, which says how it is compiled.

namespace tessera::streaming {
namespace {

using IntegerPacket = ei::unpacket_traits<Packet>::integer_packet;

/// exp of d <= 0, a NaN's is one: half the time of Eigen's, which scales by powers of 2 beyond the
/// range of normal floats. The polynomial is Cephes', as there.
Packet exp_of_negative(const Packet& d) {
  // The power of 2 at this floor comes out as 0, so that -Inf gives exactly 0. pmax keeps a NaN
  // that comes first.
  const Packet x = ei::pmax(d, splat(-88.0f));
  // Adding it rounds to an integer, which the sum's last bits hold.
  const Packet shift = splat(0x1.8p23f);
  const Packet t = ei::pmadd(x, splat(1.44269504088896341f), shift);
  const Packet m = ei::psub(t, shift);
  // ln 2 in two parts; m times the first is exact.
  Packet r = ei::pmadd(m, splat(-0.693359375f), x);
  r = ei::pmadd(m, splat(2.12194440e-4f), r);
  Packet y = ei::pmadd(splat(1.9875691500e-4f), r, splat(1.3981999507e-3f));
  y = ei::pmadd(y, r, splat(8.3334519073e-3f));
  y = ei::pmadd(y, r, splat(4.1665795894e-2f));
  y = ei::pmadd(y, r, splat(1.6666665459e-1f));
  y = ei::pmadd(y, r, splat(5.0000001201e-1f));
  y = ei::padd(ei::pmadd(y, ei::pmul(r, r), r), splat(1.0f));
  const auto exponent = ei::plogical_shift_left<23>(ei::preinterpret<IntegerPacket>(t));
  const auto one = ei::preinterpret<IntegerPacket>(splat(1.0f));
  return ei::pmul(y, ei::preinterpret<Packet>(ei::padd(exponent, one)));
}

/// Cap, bias and slope of a packet of products.
struct LogitTerms {
  bool capped;
  Packet cap, inverse_cap, slope, place;

  explicit LogitTerms(const AttentionRow& t)
      : capped(t.cap != 0.0f),
        cap(splat(t.cap)),
        inverse_cap(splat(capped ? 1.0f / t.cap : 0.0f)),
        slope(splat(t.slope)),
        place(splat(t.place)) {}

  /// `key` is that of the first lane.
  Packet apply(Packet z, const float* bias, std::int64_t key, bool sloped) const {
    if (capped) z = ei::pmul(cap, ei::ptanh(ei::pmul(z, inverse_cap)));
    if (sloped) {
      const Packet keys = ei::plset<Packet>(static_cast<float>(key));
      z = ei::psub(z, ei::pmul(slope, ei::pabs(ei::psub(place, keys))));
    }
    if (bias != nullptr) {
      const Packet b = ei::ploadu<Packet>(bias);
      // A bias of -Inf masks: whatever else the logit is made of.
      z = ei::pselect(ei::pcmp_eq(b, splat(-infinity)), b, ei::padd(z, b));
    }
    return z;
  }
};

void finish_attention(float* row, const AttentionRow& t, std::int64_t first, std::int64_t end) {
  const LogitTerms terms(t);
  const bool sloped = t.slope != 0.0f;
  for (std::int64_t i = first; i < end; i += lanes) {
    const float* bias = t.bias != nullptr ? t.bias + i : nullptr;
    float some_bias[lane_quantum] = {};
    if (bias != nullptr && (i < t.first || i + lanes > t.end)) {
      const std::int64_t from = i < t.first ? t.first : i;
      const std::int64_t to = i + lanes < t.end ? i + lanes : t.end;
      std::memcpy(some_bias + (from - i), t.bias + from,
                  static_cast<std::size_t>(to - from) * sizeof(float));
      bias = some_bias;
    }
    ei::pstore(row + i, terms.apply(ei::pload<Packet>(row + i), bias, i, sloped));
  }
}

AttentionStep attend(float* row, const AttentionRow& t) {
  const std::int64_t width = padded(t.n);
  if (t.first >= t.end) {
    std::memset(row, 0, static_cast<std::size_t>(width) * sizeof(float));
    return {t.max, 0.0f};
  }
  const std::int64_t first = t.first / lane_quantum * lane_quantum;
  const std::int64_t end = padded(t.end);
  if (t.cap != 0.0f || t.slope != 0.0f || t.bias != nullptr) {
    // Packets of which the row sees nothing are left alone: the bias is not read there.
    finish_attention(row, t, t.first / lanes * lanes, (t.end + lanes - 1) / lanes * lanes);
  }
  for (std::int64_t i = first; i < t.first; ++i) row[i] = -infinity;
  for (std::int64_t i = t.end; i < end; ++i) row[i] = -infinity;

  Packet max[2] = {splat(t.max), splat(t.max)};
  for (std::int64_t i = first; i < end; i += lane_quantum) {
    for (std::int64_t j = 0; j < lane_quantum; j += lanes) {
      Packet& lane = max[(j / lanes) % 2];
      lane = ei::pmax(lane, ei::pload<Packet>(row + i + j));
    }
  }
  // A NaN may have hidden in the maximum; the sum has it all the same.
  AttentionStep step = {ei::predux_max(ei::pmax(max[0], max[1])), 0.0f};
  // All -Inf so far: every exponential is 0 whatever it is relative to.
  const Packet base = splat(step.max == -infinity ? 0.0f : step.max);
  Packet sum[2] = {splat(0.0f), splat(0.0f)};
  for (std::int64_t i = first; i < end; i += lane_quantum) {
    for (std::int64_t j = 0; j < lane_quantum; j += lanes) {
      const Packet e = exp_of_negative(ei::psub(ei::pload<Packet>(row + i + j), base));
      ei::pstore(row + i + j, e);
      Packet& lane = sum[(j / lanes) % 2];
      lane = ei::padd(lane, e);
    }
  }
  step.sum = ei::predux(ei::padd(sum[0], sum[1]));
  // Most rows see all: calls for nothing would cost a part of their time.
  if (first > 0) std::memset(row, 0, static_cast<std::size_t>(first) * sizeof(float));
  if (end < width) {
    std::memset(row + end, 0, static_cast<std::size_t>(width - end) * sizeof(float));
  }
  if (!(step.sum < infinity) || !(step.max < infinity)) step.max = __builtin_nanf("");
  return step;
}

void scale(float* target, std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; ++i) target[i] *= factor;
}

void add_scaled(const float* source, std::int64_t n, float factor, float* target) {
  for (std::int64_t i = 0; i < n; ++i) target[i] += factor * source[i];
}

bool all_finite(const float* source, std::int64_t n) {
  // x - x is 0 for what is finite, else NaN.
  Packet far = splat(0.0f);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const Packet x = ei::ploadu<Packet>(source + i);
    far = ei::padd(far, ei::psub(x, x));
  }
  float rest = ei::predux(far);
  for (; i < n; ++i) rest += source[i] - source[i];
  return rest == 0.0f;
}

}  // namespace
}  // namespace tessera::streaming
