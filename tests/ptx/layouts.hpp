// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

/// The places of elements of tiles in registers and in shared memory: PTX ISA, "Matrix fragments
/// for mma.m16n8k16", "Register fragments and shared memory matrix layouts" of wgmma, "ldmatrix",
/// "Swizzling modes" of tensors.
namespace tessera_ptx {

struct Place {
  int row, column;
};

/// mma.m16n8k16 of 16-bit operands: the first of the two elements in register i of a lane.
constexpr Place mma_a(int i, int lane) {  // [m][k]
  return {lane / 4 + 8 * (i % 2), lane % 4 * 2 + 8 * (i / 2)};
}
constexpr Place mma_b(int i, int lane) {  // [n][k]
  return {lane / 4, lane % 4 * 2 + 8 * i};
}
/// Its sums of 32 bits, one in a register: [m][n].
constexpr Place mma_c(int i, int lane) { return {lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2}; }
/// Sums of wgmma.m64nNk16, of the 16 rows of a warp.
constexpr Place wgmma_c(int i, int lane) {
  return {lane / 4 + 8 * (i / 2 % 2), i / 4 * 8 + lane % 4 * 2 + i % 2};
}

/// The swizzle of 128 bytes: which 16 bytes of a line of 128, by the line.
constexpr std::uint32_t swizzled(std::uint32_t address) {
  return address ^ (((address >> 7) & 7) << 4);
}

/// A descriptor of an operand of wgmma in shared memory.
struct Descriptor {
  std::uint32_t start, leading, stride;  ///< bytes
  unsigned base, mode;
  explicit constexpr Descriptor(std::uint64_t bits)
      : start((bits & 0x3FFF) << 4),
        leading((bits >> 16 & 0x3FFF) << 4),
        stride((bits >> 32 & 0x3FFF) << 4),
        base(bits >> 49 & 7),
        mode(static_cast<unsigned>(bits >> 62)) {}
  /// The address of element (mn, k) of 16 bits. Along k: 8 rows of 128 bytes together. By mn: lines
  /// of 64 of m or n, for 8 of k together.
  constexpr std::uint32_t at(int mn, int k, bool is_by_mn) const {
    const auto m = static_cast<std::uint32_t>(mn), n = static_cast<std::uint32_t>(k);
    if (is_by_mn) {
      return swizzled(start + m / 64 * leading + m % 64 * 2 + n / 8 * stride + n % 8 * 128);
    }
    return swizzled(start + m / 8 * stride + m % 8 * 128 + n * 2);
  }
};

inline float from_bf16(std::uint16_t bits) {
  const std::uint32_t word = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}
/// To the nearest, ties to even.
inline std::uint16_t to_bf16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  if (value != value) return 0x7FFF;
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// Generic addresses: those of the host are below both.
constexpr std::uint64_t shared_mark = std::uint64_t{1} << 60, local_mark = std::uint64_t{1} << 61;

}  // namespace tessera_ptx
