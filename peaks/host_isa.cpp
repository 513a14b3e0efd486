// SPDX-License-Identifier: Apache-2.0
#include "peaks/host_isa.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "peaks/host_loops.hpp"

// One function per loop and instruction set; the loops are inlined into them.
#define TESSERA_PEAK_LOOPS(suffix, vector, attribute)                               \
  attribute float multiply_add_##suffix(std::int64_t rounds, float a, float b) {    \
    return multiply_add<vector>(rounds, a, b);                                      \
  }                                                                                 \
  attribute float exponential_##suffix(std::int64_t rounds) {                       \
    return exponential<vector>(rounds);                                             \
  }                                                                                 \
  attribute float read_##suffix(const float* data, std::int64_t floats) {           \
    return read_all<vector>(data, floats);                                          \
  }                                                                                 \
  attribute void write_##suffix(float* data, std::int64_t floats, float value) {    \
    write_all<vector>(data, floats, value);                                         \
  }                                                                                 \
  attribute void copy_##suffix(float* to, const float* from, std::int64_t floats) { \
    copy_all<vector>(to, from, floats);                                             \
  }                                                                                 \
  attribute void update_##suffix(float* data, std::int64_t floats) {                \
    update_all<vector>(data, floats);                                               \
  }

namespace tessera::peaks {
namespace {

TESSERA_PEAK_LOOPS(baseline, Float4, )
#if defined(__x86_64__)
TESSERA_PEAK_LOOPS(avx2, Float8, [[gnu::target("avx2,fma")]])
TESSERA_PEAK_LOOPS(avx512, Float16, [[gnu::target("avx512f,avx512dq")]])

// Stores that pass the caches by: sixteen bytes each, which the processor joins into whole lines.
void stream_x86(float* data, std::int64_t floats, float value) {
  const __m128 v = _mm_set1_ps(value);
  for (std::int64_t i = 0; i + 16 <= floats; i += 16, data += 16) {
    _mm_stream_ps(data, v), _mm_stream_ps(data + 4, v);
    _mm_stream_ps(data + 8, v), _mm_stream_ps(data + 12, v);
  }
  _mm_sfence();
}

[[gnu::target("avx512f,avx512bf16")]] float dot_bf16_avx512(std::int64_t rounds) {
  // 0x3f00 is 0.5 and 0x3e80 is 0.25 in bf16.
  const __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f00), b = (__m512bh)_mm512_set1_epi16(0x3e80);
  __m512 s[chains];
  for (int i = 0; i < chains; ++i) s[i] = _mm512_set1_ps(static_cast<float>(i));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < chains; ++i) s[i] = _mm512_dpbf16_ps(s[i], a, b);
  }
  __m512 sum = s[0];
  for (int i = 1; i < chains; ++i) sum = _mm512_add_ps(sum, s[i]);
  float lanes[16];
  _mm512_storeu_ps(lanes, sum);
  float total = 0.0f;
  for (const float lane : lanes) total += lane;
  return total;
}
#endif

}  // namespace

bool processor_has_bf16_dot_product() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

#define TESSERA_PEAK_ISA(suffix)                                                       \
  multiply_add_##suffix, exponential_##suffix, read_##suffix, write_##suffix, nullptr, \
      copy_##suffix, update_##suffix, nullptr

Isa best_isa() {
  Isa isa{"baseline", 4, TESSERA_PEAK_ISA(baseline)};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
    isa = {"avx512f", 16, TESSERA_PEAK_ISA(avx512)};
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    isa = {"avx2 and fma", 8, TESSERA_PEAK_ISA(avx2)};
  }
  isa.stream_all = stream_x86;
  if (processor_has_bf16_dot_product()) isa.dot_bf16 = dot_bf16_avx512;
#endif
  return isa;
}

}  // namespace tessera::peaks
