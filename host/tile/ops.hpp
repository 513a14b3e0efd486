// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "host/tile/compute.hpp"
#include "tessera/tile/ops.hpp"

// What the operations on refs share.
namespace tessera::tile::detail {

struct MachineState;

/// Of the running core. Throws TileError (usage) outside of a kernel.
MachineState& machine_of_core(const char* what);

/// `access` for an operation of the vector unit: SMEM, which gives scalars, is refused as well.
Elements vector_access(const Region& region, AccessKind kind);
ElementType type_of(const Region& region);
bool overlap(const Region& a, const Region& b);
/// The very same elements in the same order.
bool same(const Region& a, const Region& b);
/// Of an operand that is a ref.
Shape extents_of(const Operand& operand);
/// "'x' [8, 128] bf16"
std::string described(const Region& region);
[[noreturn]] void refuse(const char* what, const std::string& why, const Region& about);

/// Elements that the vector unit works on: whole (sublanes, lanes) registers.
double padded_elements(const Chip& chip, const Shape& extents);

/// words[i] = source[i * stride] as 32-bit words.
void load_words(const void* source, ElementType type, std::int64_t stride, std::int64_t count,
                void* words);
/// target[i * stride] = words[i], rounded, cut off or wrapped around.
void store_words(const void* words, ElementType word, std::int64_t count, void* target,
                 ElementType type, std::int64_t stride);

/// Loops over a domain: for each operand, and for the result behind them, a stride per dimension.
struct Loops {
  Shape extents{};
  std::vector<Shape> strides{};
  /// Leaves out dimensions of one element; `joined` makes one of two that lie behind each other for
  /// everybody.
  void simplify(bool joined);
  /// Where the `index`th element of the first `dimensions` dimensions lies, for everybody.
  void locate(std::int64_t index, std::size_t dimensions, std::int64_t* offsets) const;
};

/// An operand as loops read it.
struct Source {
  const std::byte* data = nullptr;  ///< null: `value`
  ElementType type = ElementType::f32;
  ElementType word = ElementType::f32;
  std::uint32_t value = 0;
  std::vector<std::byte> copy{};  ///< of an operand that overlaps the result
};

/// The accesses of an operation, and its loops over `domain`, to which operands are broadcast; the
/// result's strides are the caller's to add. `in_place`: an operand that is the result itself is
/// read where it is.
struct Plan {
  Loops loops{};
  std::vector<Source> sources{};
  Elements out{};
  bool dry = false;  ///< nothing to compute
};
Plan plan(const char* what, const Shape& domain, Operands operands, const Region& out,
          bool in_place);

/// What functions give for stretches of one row, at most chunk_elements at a time. Cheap to make;
/// one per thread.
class Chunks {
 public:
  Chunks(const std::vector<Source>& sources, const Function& function)
      : sources_(sources), function_(function) {}
  /// Of elements that begin `offsets` elements into each operand, `strides` apart.
  const void* values(const std::int64_t* offsets, const std::int64_t* strides, int count);

 private:
  const std::vector<Source>& sources_;
  const Function& function_;
  struct Filled {
    const void* from = nullptr;
    int count = 0;
  };
  Filled filled_[max_operands] = {};
  const void* in_[max_operands] = {};
  alignas(64) std::uint32_t words_[max_operands][chunk_elements];
  alignas(64) std::uint32_t result_[chunk_elements];
};

}  // namespace tessera::tile::detail
