// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

// For the functions of map and of reductions: without branches and calls, so that compilers turn a
// loop over them into vector instructions (std::exp of a block of logits would take longer than the
// products that made it). The polynomials are minimax fits whose own error is below a tenth of the
// last place. Round to nearest is assumed, and no -ffast-math.
namespace tessera::tile {

/// `condition ? a : b` by bits: GCC makes no vector instructions of some conditional expressions,
/// and of several after each other hardly ever.
inline float where(bool condition, float a, float b) noexcept {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(a) & mask) |
                              (std::bit_cast<std::uint32_t>(b) & ~mask));
}
/// The larger one; NaN when either is NaN, as jnp.maximum has it and std::max has not.
inline float maximum(float a, float b) noexcept { return where(a != a, a, where(!(b <= a), b, a)); }
/// The smaller one; NaN when either is NaN.
inline float minimum(float a, float b) noexcept { return where(a != a, a, where(!(b >= a), b, a)); }

namespace detail {
// ln 2 in two parts; products of the first with the exponent of a float are exact.
inline constexpr float ln2_high = 0x1.62e4p-1f;
inline constexpr float ln2_low = 1.42860682e-6f;

/// 2^n for n in [-126, 127]
inline float power_of_two(std::int32_t n) noexcept {
  return std::bit_cast<float>((static_cast<std::uint32_t>(n) + 127u) << 23);
}
}  // namespace detail

/// e^x within 1 unit in the last place: denormal results too, exp(-inf) = 0, infinity from 88.73
/// on, NaN for NaN.
inline float exp(float x) noexcept {
  // Beyond these the result is infinity or 0 anyhow; a NaN passes both comparisons.
  const float c = where(x > 89.0f, 89.0f, where(x < -104.0f, -104.0f, x));
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
  const float shifted = c * 1.44269504f + 0x1.8p23f;
  const float n = shifted - 0x1.8p23f;
  const auto k = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) - 0x4b400000u);
  const float r = (c - n * detail::ln2_high) - n * detail::ln2_low;
  float p = 0.0013814467f;
  p = p * r + 0.0083687808f;
  p = p * r + 0.041668393f;
  p = p * r + 0.16666520f;
  p = p * r + 0.49999994f;
  p = 1.0f + (r + r * r * p);
  // In two factors, since 2^128 and denormals are no single one.
  const std::int32_t half = k >> 1;
  return p * detail::power_of_two(half) * detail::power_of_two(k - half);
}

/// The natural logarithm within 1 unit in the last place: log(0) = -inf, NaN below 0.
inline float log(float x) noexcept {
  constexpr std::uint32_t root_half = 0x3f3504f3u;  // the bits of sqrt(1/2)
  const bool denormal = x < 0x1p-126f;
  const float y = where(denormal, x * 0x1p23f, x);
  // y = 2^e * m with m in [sqrt(1/2), sqrt(2))
  const std::uint32_t shifted = std::bit_cast<std::uint32_t>(y) - root_half;
  const float m = std::bit_cast<float>((shifted & 0x007fffffu) + root_half);
  const float e =
      static_cast<float>(static_cast<std::int32_t>(shifted) >> 23) - where(denormal, 23.0f, 0.0f);
  const float t = m - 1.0f;
  float p = -0.076344967f;
  p = p * t + 0.12761576f;
  p = p * t - 0.13160183f;
  p = p * t + 0.14201757f;
  p = p * t - 0.16623357f;
  p = p * t + 0.20001227f;
  p = p * t - 0.25000820f;
  p = p * t + 0.33333331f;
  const float z = t * t;
  float r = z * (t * p) + e * detail::ln2_low;
  r = t + (r - 0.5f * z);
  r = r + e * detail::ln2_high;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  r = where(x < infinity, r, x);  // infinity, NaN
  r = where(x == 0.0f, -infinity, r);
  return where(x < 0.0f, std::numeric_limits<float>::quiet_NaN(), r);
}

/// Within 2 units in the last place.
inline float tanh(float x) noexcept {
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(x) & 0x80000000u;
  const float a = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7fffffffu);
  const float z = a * a;
  float p = -0.0057049869f;
  p = p * z + 0.020639086f;
  p = p * z - 0.053739715f;
  p = p * z + 0.13331442f;
  p = p * z - 0.33333281f;
  const float small = a + a * z * p;
  const float large = 1.0f - 2.0f / (exp(2.0f * a) + 1.0f);  // NaN for NaN
  const float r = where(a < 0.625f, small, large);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(r) | sign);
}

}  // namespace tessera::tile
