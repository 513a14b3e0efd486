// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/tile/error.hpp"
#include "tessera/tile/layout.hpp"

namespace tessera::tile {

/// How one dimension of a block is indexed.
enum class DimKind {
  blocked,        ///< the index counts blocks
  squeezed,       ///< one element, and no dimension of the ref
  element,        ///< the index is the first element; the array may be padded
  bounded_slice,  ///< the index map gives start and size, size at most `size`
};

/// One dimension of a block; a plain integer is a blocked one.
struct BlockDim {
  DimKind kind = DimKind::blocked;
  std::int64_t size = 1;
  std::int64_t padding_low = 0;   ///< element only: elements before the array
  std::int64_t padding_high = 0;  ///< element only: elements behind it

  BlockDim() = default;
  // Implicit, so that {8, 128} is a block shape as in Pallas.
  BlockDim(std::int64_t blocked) : size(blocked) {}
  BlockDim(DimKind k, std::int64_t n, std::int64_t low = 0, std::int64_t high = 0)
      : kind(k), size(n), padding_low(low), padding_high(high) {}
  friend bool operator==(const BlockDim&, const BlockDim&) = default;
};

/// Pallas' Squeezed(), Element(n, (low, high)) and BoundedSlice(n).
inline BlockDim squeezed() { return {DimKind::squeezed, 1}; }
inline BlockDim element(std::int64_t n, std::int64_t padding_low = 0,
                        std::int64_t padding_high = 0) {
  return {DimKind::element, n, padding_low, padding_high};
}
inline BlockDim bounded_slice(std::int64_t n) { return {DimKind::bounded_slice, n}; }

using BlockDims = std::vector<BlockDim>;

enum class MemorySpace { any, hbm, vmem, smem, semaphore };

/// "any", "hbm", "vmem", "smem" or "semaphore".
TESSERA_API const char* to_string(MemorySpace space) noexcept;

/// Whose blocks they are; the rules differ.
enum class Issuer { call, emit_pipeline };

/// What the shape rules must know of a block specification: everything but where its index map
/// leads.
struct BlockShape {
  std::optional<BlockDims> dims{};  ///< none: the whole array
  MemorySpace space = MemorySpace::vmem;
  int buffer_count = 2;
  bool lookahead = false;
  bool zero_index = false;  ///< the index map gives zeros wherever the grid is
  bool is_output = false;
};

/// True when the block is the whole array and never moves: one copy before the grid, one buffer.
/// For emit_pipeline only plain dimensions count, as in JAX.
TESSERA_API bool is_trivial_window(const Shape& array, const BlockShape& block,
                                   Issuer issuer = Issuer::call);

/// The shape of the ref that the body sees: without squeezed dimensions.
TESSERA_API Shape ref_shape(const Shape& array, const BlockShape& block);

/// Rules R1 to R5 and R14 to R17 for one operand, R17 on chip only; empty when a TPU takes it.
/// `buffer` is the name that messages use.
TESSERA_API std::vector<Violation> check_block(const Chip& chip, const std::string& buffer,
                                               const Shape& array, ElementType type,
                                               const BlockShape& block,
                                               Issuer issuer = Issuer::call);

/// Part of one dimension.
struct Slice {
  std::int64_t start = 0;
  std::int64_t size = 0;
  friend bool operator==(const Slice&, const Slice&) = default;
};

/// Rule R6, and R18 (bounds), for a slice that a kernel's own DMA names: in the last dimension
/// offset and size are multiples of the lanes, in the one before of 32 bytes' worth of rows (8 of
/// f32, 16 of bf16, 32 of int8); the whole dimension is always fine.
TESSERA_API std::vector<Violation> check_dma_slice(const Chip& chip, const std::string& buffer,
                                                   const Shape& array, ElementType type,
                                                   const std::vector<Slice>& slices);

/// One buffer on chip: a window with its copies, or scratch.
struct Allocation {
  std::string buffer{};
  Shape shape{};  ///< as the body sees it
  ElementType type = ElementType::f32;
  int buffers = 1;
};

/// Who holds how much VMEM, in padded tile bytes.
struct VmemUse {
  struct Entry {
    std::string buffer{};
    std::int64_t bytes = 0;  ///< all its buffers together
  };
  std::vector<Entry> entries{};
  std::int64_t declared = 0;  ///< the sum; what R13 compares
  std::int64_t limit = 0;     ///< Chip::scoped_vmem_bytes
};

/// Sum of windows x buffers + scratch, without the compiler's temporaries. A vector's buffers lie
/// end to end; any other window's are a leading dimension.
TESSERA_API VmemUse vmem_use(const Chip& chip, const std::vector<Allocation>& allocations);

/// Rule R13: declared VMEM within the scoped limit. The message lists who holds what, largest
/// first.
TESSERA_API std::vector<Violation> check_vmem(const VmemUse& use);

}  // namespace tessera::tile
