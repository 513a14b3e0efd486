// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/dtype.hpp"

namespace tessera::tile {

/// Element types of a TPU's memories; more than the views of the library hold.
enum class ElementType {
  f32,
  bf16,
  f16,
  f8e5m2,
  f8e4m3fn,
  f8e4m3b11fnuz,
  i32,
  u32,
  i16,
  u16,
  i8,
  u8,
  i4,
  u4,
  i64
};

/// Bits per element.
constexpr int bits_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::f32:
    case ElementType::i32:
    case ElementType::u32:
      return 32;
    case ElementType::bf16:
    case ElementType::f16:
    case ElementType::i16:
    case ElementType::u16:
      return 16;
    case ElementType::f8e5m2:
    case ElementType::f8e4m3fn:
    case ElementType::f8e4m3b11fnuz:
    case ElementType::i8:
    case ElementType::u8:
      return 8;
    case ElementType::i4:
    case ElementType::u4:
      return 4;
    case ElementType::i64:
      return 64;
  }
  return 0;
}

/// The enumerator's own name.
constexpr const char* to_string(ElementType type) noexcept {
  constexpr const char* names[] = {"f32", "bf16", "f16", "f8e5m2", "f8e4m3fn", "f8e4m3b11fnuz",
                                   "i32", "u32",  "i16", "u16",    "i8",       "u8",
                                   "i4",  "u4",   "i64"};
  return names[static_cast<int>(type)];
}

/// The type of a view's elements.
constexpr ElementType element_type(DType type) noexcept {
  switch (type) {
    case DType::f32:
      return ElementType::f32;
    case DType::bf16:
      return ElementType::bf16;
    case DType::f16:
      return ElementType::f16;
    case DType::i32:
      return ElementType::i32;
    case DType::i64:
      return ElementType::i64;
  }
  return ElementType::f32;
}

}  // namespace tessera::tile
