// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// The loops that host peaks consist of, over vectors of one width. Always inlined, so that each
/// takes the instruction set of the function it is called from.
namespace tessera::peaks {

using Float4 = float __attribute__((vector_size(16)));
using Float8 = float __attribute__((vector_size(32)));
using Float16 = float __attribute__((vector_size(64)));
using Int4 = std::int32_t __attribute__((vector_size(16)));
using Int8 = std::int32_t __attribute__((vector_size(32)));
using Int16 = std::int32_t __attribute__((vector_size(64)));
template <class Float>
struct IntOf;
template <>
struct IntOf<Float4> {
  using Type = Int4;
};
template <>
struct IntOf<Float8> {
  using Type = Int8;
};
template <>
struct IntOf<Float16> {
  using Type = Int16;
};

/// 12 chains hide the latency of a multiply-add (4 cycles, two per cycle) and leave registers for
/// the two factors among sixteen.
constexpr int chains = 12;

/// Keeps a loop over memory from becoming a call of memset or memcpy, whose ways differ by libc.
[[gnu::always_inline]] inline void as_written() { asm volatile("" ::: "memory"); }

template <class V>
[[gnu::always_inline]] inline float sum_of_lanes(const V& vector) {
  float total = 0.0f;
  for (unsigned lane = 0; lane < sizeof(V) / 4; ++lane) total += vector[lane];
  return total;
}

/// Applies `step` to each of the chains, `rounds` times.
template <class V, class Step>
[[gnu::always_inline]] inline float run_chains(std::int64_t rounds, float first, Step step) {
  V s0 = V{} + first, s1 = s0 - 0.01f, s2 = s1 - 0.01f, s3 = s2 - 0.01f, s4 = s3 - 0.01f,
    s5 = s4 - 0.01f, s6 = s5 - 0.01f, s7 = s6 - 0.01f, s8 = s7 - 0.01f, s9 = s8 - 0.01f,
    s10 = s9 - 0.01f, s11 = s10 - 0.01f;
  for (std::int64_t i = 0; i < rounds; ++i) {
    step(s0), step(s1), step(s2), step(s3), step(s4), step(s5);
    step(s6), step(s7), step(s8), step(s9), step(s10), step(s11);
  }
  return sum_of_lanes<V>(((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)) +
                         ((s8 + s9) + (s10 + s11)));
}

template <class V>
[[gnu::always_inline]] inline float multiply_add(std::int64_t rounds, float a, float b) {
  const V va = V{} + a, vb = V{} + b;
  return run_chains<V>(
      rounds, 0.5f, [&](V & s) __attribute__((always_inline)) { s = s * va + vb; });
}

/// The chain s = -2^s, which stays between -1 and -1/2: round to the nearest integer by adding
/// 1.5 * 2^23, a minimax polynomial of degree 6 on [-1/2, 1/2] (relative error below 1e-7), and the
/// integer added to the exponent.
template <class V>
[[gnu::always_inline]] inline float exponential(std::int64_t rounds) {
  using I = typename IntOf<V>::Type;
  return run_chains<V>(
      rounds, -0.5f, [](V & s) __attribute__((always_inline)) {
        const V t = s + 12582912.0f;
        const V f = s - (t - 12582912.0f);
        V p = f * 0.000153458124f + 0.00133999309f;
        p = p * f + 0.00961848907f;
        p = p * f + 0.0555032864f;
        p = p * f + 0.240226462f;
        p = p * f + 0.693147182f;
        p = p * f + 1.0f;
        s = -(V)((I)p + ((I)t << 23));
      });
}

template <class V>
[[gnu::always_inline]] inline float read_all(const float* data, std::int64_t floats) {
  V s0{}, s1{}, s2{}, s3{};
  constexpr std::int64_t lanes = sizeof(V) / 4;
  const V* p = reinterpret_cast<const V*>(data);
  for (std::int64_t i = 0; i + 4 * lanes <= floats; i += 4 * lanes, p += 4) {
    s0 += p[0], s1 += p[1], s2 += p[2], s3 += p[3];
  }
  return sum_of_lanes<V>((s0 + s1) + (s2 + s3));
}

template <class V>
[[gnu::always_inline]] inline void write_all(float* data, std::int64_t floats, float value) {
  constexpr std::int64_t lanes = sizeof(V) / 4;
  const V v = V{} + value;
  V* p = reinterpret_cast<V*>(data);
  for (std::int64_t i = 0; i + 4 * lanes <= floats; i += 4 * lanes, p += 4) {
    p[0] = v, p[1] = v, p[2] = v, p[3] = v;
    as_written();
  }
}

template <class V>
[[gnu::always_inline]] inline void copy_all(float* to, const float* from, std::int64_t floats) {
  constexpr std::int64_t lanes = sizeof(V) / 4;
  const V* in = reinterpret_cast<const V*>(from);
  V* out = reinterpret_cast<V*>(to);
  for (std::int64_t i = 0; i + 4 * lanes <= floats; i += 4 * lanes, in += 4, out += 4) {
    const V a = in[0], b = in[1], c = in[2], d = in[3];
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
    as_written();
  }
}

/// The factor keeps values from growing or becoming denormal over any number of updates.
template <class V>
[[gnu::always_inline]] inline void update_all(float* data, std::int64_t floats) {
  constexpr std::int64_t lanes = sizeof(V) / 4;
  V* p = reinterpret_cast<V*>(data);
  for (std::int64_t i = 0; i + 4 * lanes <= floats; i += 4 * lanes, p += 4) {
    p[0] = p[0] * 0.5f + 1e-3f, p[1] = p[1] * 0.5f + 1e-3f;
    p[2] = p[2] * 0.5f + 1e-3f, p[3] = p[3] * 0.5f + 1e-3f;
    as_written();
  }
}

}  // namespace tessera::peaks
