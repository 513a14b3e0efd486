// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "tessera/version.hpp"

namespace tessera {

/// Element types of views.
enum class DType { f32, bf16, f16, i32, i64 };

/// Bytes per element.
constexpr std::size_t size_of(DType type) noexcept {
  switch (type) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::i64:
      return 8;
  }
  return 0;
}

/// "f32", "bf16", "f16", "i32" or "i64".
constexpr const char* to_string(DType type) noexcept {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
  }
  return "?";
}

/// True for f32, bf16 and f16.
constexpr bool is_floating(DType type) noexcept {
  return type == DType::f32 || type == DType::bf16 || type == DType::f16;
}

/// bfloat16: the upper half of an IEEE binary32. Converts from float to nearest even; a NaN stays
/// a (quiet) NaN.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  explicit bf16(float value) noexcept {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    // Adding 0x7fff plus the lowest kept bit carries exactly when rounding to nearest even goes up.
    bits = static_cast<std::uint16_t>(nan ? (u >> 16) | 0x0040u
                                          : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  static bf16 from_bits(std::uint16_t b) noexcept {
    bf16 r;
    r.bits = b;
    return r;
  }
};

/// IEEE binary16. Converts from float to nearest even, with denormals, infinities and NaN.
struct f16 {
  std::uint16_t bits = 0;

  f16() = default;
  explicit f16(float value) noexcept {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 16) & 0x8000u;
    const std::uint32_t mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) {
      bits = static_cast<std::uint16_t>(sign | 0x7e00u);
    } else if (mag >= 0x477ff000u) {  // rounds to 65536 or more: beyond the largest half, 65504
      bits = static_cast<std::uint16_t>(sign | 0x7c00u);
    } else if (mag < 0x38800000u) {  // below 2^-14, the smallest normal half
      // Adding 0.5 aligns the half's denormal step 2^-24 with the last bit of the sum's mantissa,
      // so the addition itself rounds to nearest even.
      const float shifted = std::bit_cast<float>(mag) + 0.5f;
      bits =
          static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
    } else {
      const std::uint32_t odd = (mag >> 13) & 1u;
      bits = static_cast<std::uint16_t>(sign | ((mag - 0x38000000u + 0xfffu + odd) >> 13));
    }
  }
  explicit operator float() const noexcept {
    const std::uint32_t sign = (bits & 0x8000u) << 16;
    const std::uint32_t mag = bits & 0x7fffu;
    if (mag >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((mag & 0x3ffu) << 13));
    if (mag < 0x0400u) {
      const float v = static_cast<float>(mag) * 0x1p-24f;
      return sign ? -v : v;
    }
    return std::bit_cast<float>(sign | ((mag << 13) + 0x38000000u));
  }
  static f16 from_bits(std::uint16_t b) noexcept {
    f16 r;
    r.bits = b;
    return r;
  }
};

/// The DType of a C++ element type; declared only for the five that views hold.
template <class T>
struct dtype_of;
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<f16> {
  static constexpr DType value = DType::f16;
};
template <>
struct dtype_of<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct dtype_of<std::int64_t> {
  static constexpr DType value = DType::i64;
};

}  // namespace tessera
