// SPDX-License-Identifier: Apache-2.0
// Element types and copies; a part of kernels_impl.hpp, which says how it is compiled.
#include <cstdint>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "reference/streaming/kernels.hpp"

namespace tessera::streaming {
namespace {

float from_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
std::uint32_t to_bits(float value) { return __builtin_bit_cast(std::uint32_t, value); }

struct F32 {
  using Word = float;
  static float widen(float value) { return value; }
  static float narrow(float value) { return value; }
};

struct Bf16 {
  using Word = std::uint16_t;
  static float widen(std::uint16_t bits) {
    return from_bits(static_cast<std::uint32_t>(bits) << 16);
  }
  /// To nearest even; a NaN stays one.
  static std::uint16_t narrow(float value) {
    const std::uint32_t u = to_bits(value);
    const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const std::uint32_t quiet = (u >> 16) | 0x0040u;
    return static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
};

struct F16 {
  using Word = std::uint16_t;
#if defined(__F16C__)
  static float widen(std::uint16_t bits) { return _cvtsh_ss(bits); }
  static std::uint16_t narrow(float value) {
    return static_cast<std::uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
  }
#else
  static float widen(std::uint16_t bits) {
    const std::uint32_t sign = (bits & 0x8000u) << 16;
    const std::uint32_t magnitude = (bits & 0x7fffu) << 13;
    // Scaling by 2^112 moves the exponent's bias from 15 to 127 and normalises denormals exactly.
    const float scaled = from_bits(magnitude) * 0x1p112f;
    const float value = magnitude >= 0x0f800000u ? from_bits(magnitude | 0x7f800000u) : scaled;
    return from_bits(to_bits(value) | sign);
  }
  static std::uint16_t narrow(float value) {
    const std::uint32_t u = to_bits(value);
    const std::uint32_t sign = (u >> 16) & 0x8000u;
    const std::uint32_t magnitude = u & 0x7fffffffu;
    std::uint32_t half;
    if (magnitude > 0x7f800000u) {
      half = 0x7e00u;
    } else if (magnitude >= 0x477ff000u) {  // rounds to 65536 or more, beyond the largest half
      half = 0x7c00u;
    } else if (magnitude < 0x38800000u) {  // below 2^-14, the smallest normal half
      // Adding 0.5 aligns the half's denormal step 2^-24 with the last bit of the sum's mantissa.
      half = to_bits(from_bits(magnitude) + 0.5f) - 0x3f000000u;
    } else {
      half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    }
    return static_cast<std::uint16_t>(sign | half);
  }
#endif
};

template <class E>
void load_as(const void* source, std::int64_t stride, std::int64_t n, float* target) {
  const auto* words = static_cast<const typename E::Word*>(source);
  if (stride != 1) {
    for (std::int64_t i = 0; i < n; ++i) target[i] = E::widen(words[i * stride]);
    return;
  }
  std::int64_t i = 0;
#if defined(__F16C__)
  if constexpr (sizeof(typename E::Word) == 2 && __is_same(E, F16)) {
    for (; i + 8 <= n; i += 8) {
      const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(words + i));
      _mm256_storeu_ps(target + i, _mm256_cvtph_ps(half));
    }
  }
#endif
  for (; i < n; ++i) target[i] = E::widen(words[i]);
}

template <class E, bool accumulate>
void store_as(const float* source, std::int64_t n, void* target, std::int64_t stride) {
  auto* words = static_cast<typename E::Word*>(target);
  const auto value = [&](std::int64_t i, std::int64_t at) {
    return accumulate ? E::widen(words[at]) + source[i] : source[i];
  };
  if (stride == 1) {
    for (std::int64_t i = 0; i < n; ++i) words[i] = E::narrow(value(i, i));
  } else {
    for (std::int64_t i = 0; i < n; ++i) words[i * stride] = E::narrow(value(i, i * stride));
  }
}

void load(const void* source, Type type, std::int64_t stride, std::int64_t n, float* target) {
  switch (type) {
    case Type::f32:
      return load_as<F32>(source, stride, n, target);
    case Type::bf16:
      return load_as<Bf16>(source, stride, n, target);
    case Type::f16:
      return load_as<F16>(source, stride, n, target);
  }
}

template <class E>
void store_either(const float* source, std::int64_t n, void* target, std::int64_t stride,
                  bool accumulate) {
  accumulate ? store_as<E, true>(source, n, target, stride)
             : store_as<E, false>(source, n, target, stride);
}

void store(const float* source, std::int64_t n, void* target, Type type, std::int64_t stride,
           bool accumulate) {
  switch (type) {
    case Type::f32:
      return store_either<F32>(source, n, target, stride, accumulate);
    case Type::bf16:
      return store_either<Bf16>(source, n, target, stride, accumulate);
    case Type::f16:
      return store_either<F16>(source, n, target, stride, accumulate);
  }
}

/// Bytes from the array's first element to that of `row`.
std::int64_t row_bytes(Type type, std::int64_t row_stride, std::int64_t row) {
  return row * row_stride * (type == Type::f32 ? 4 : 2);
}

void load_block(const ConstArray2& source, std::int64_t rows, std::int64_t columns, float* target,
                std::int64_t ld) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto* from =
        static_cast<const char*>(source.data) + row_bytes(source.type, source.row_stride, r);
    load(from, source.type, source.column_stride, columns, target + r * ld);
  }
}

void store_block(const float* source, std::int64_t ld, std::int64_t rows, std::int64_t columns,
                 const Array2& target, bool accumulate) {
  for (std::int64_t r = 0; r < rows; ++r) {
    auto* to = static_cast<char*>(target.data) + row_bytes(target.type, target.row_stride, r);
    store(source + r * ld, columns, to, target.type, target.column_stride, accumulate);
  }
}

}  // namespace
}  // namespace tessera::streaming
