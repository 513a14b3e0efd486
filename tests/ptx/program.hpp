// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interpreter.hpp"

namespace tessera_ptx {

constexpr int warp_size = 32;

enum class Type { u8, s8, b8, u16, s16, b16, u32, s32, b32, u64, s64, b64, f32, f64, pred };
/// "u32"; nothing for other words.
bool read_type(std::string_view word, Type& type);
std::size_t size_of(Type type);

/// A register, a literal, an address, a label, or several in braces.
struct Operand {
  enum class Kind { reg, literal, address, list, label, sink };
  Kind kind = Kind::sink;
  std::uint32_t place = 0;  ///< of a register, or of an address's base: bytes into Entry::image
  std::uint8_t bytes = 0;   ///< of such a register for each lane; 0: a predicate
  std::uint64_t bits = 0;   ///< of a literal, or an address's offset
  bool is_float = false;    ///< a literal like 0f3F800000, of `bytes`
  bool is_not = false;      ///< !%p
  bool has_base = false;    ///< of an address
  std::vector<Operand> list{};
  std::string text{};
};

struct Statement {
  std::string text;  ///< "add.s32 %r1, %r2, 4"
  int line = 0;
  std::vector<std::string> words;  ///< of the instruction: "add", "s32"
  std::vector<Operand> operands;
  bool has_guard = false;
  Operand guard;
  std::size_t target = 0;  ///< of a branch: index of a statement
};

/// Registers of the hardware that each warp is given when it begins; of 4 bytes.
enum class Special { tid, ntid = 3, ctaid = 6, nctaid = 9, laneid = 12, warpid };
constexpr int special_count = 14;

/// Addresses in shared memory begin here: none is null, and none is aligned by chance.
constexpr std::size_t first_shared = 1040;

struct Entry {
  Signature signature;
  std::vector<std::size_t> parameter_at;  ///< bytes into the parameters
  std::size_t parameter_bytes = 0;
  std::size_t local_bytes = 0;    ///< of a lane
  bool limits_registers = false;  ///< setmaxnreg has an effect
  std::vector<Statement> statements;
  /// A warp's registers as it begins: a predicate has a word, others 32 values side by side. The
  /// program's own are poison; literals have their values.
  std::vector<std::byte> image;
  std::uint32_t special_at[special_count] = {};
  std::map<std::pair<std::size_t, std::uint64_t>, std::uint32_t> literals;  ///< by size and bits

  /// The place of a literal of so many bytes.
  std::uint32_t literal(std::size_t bytes, std::uint64_t bits);
  std::uint32_t add_register(std::size_t bytes);
};

struct Program {
  std::string target;
  std::vector<Entry> entries;
  std::vector<std::byte> constants;  ///< of .global and .const at the top of the text
};

/// Throws Fault.
Program parse(std::string_view text);

}  // namespace tessera_ptx
