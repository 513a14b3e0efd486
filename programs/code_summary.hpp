// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "programs/report.hpp"

/// What the code of a kernel says about its speed, read from a disassembly.
namespace tessera::programs {

/// Instructions of a loop by what they are for.
struct InstructionMix {
  std::int64_t all = 0;
  std::int64_t multiplications = 0;  ///< of floating elements: fma, dot products, products
  std::int64_t loads = 0;            ///< that do nothing else
  std::int64_t broadcasts = 0;  ///< of an element to a whole register, also by a multiplication
  std::int64_t shuffles = 0;
  std::int64_t stores = 0;
  std::int64_t other = 0;
  std::int64_t reads = 0;  ///< those of any kind with an operand in memory
  /// Moves of vectors to and from the stack (PTX: to and from local memory).
  std::int64_t spill_stores = 0, spill_loads = 0;
  int vector_bits = 0;  ///< of the widest register, or access of PTX; 0: scalars alone
};

/// The code of a kernel.
struct KernelCode {
  std::string name{};       ///< of the kernel; of code in files, before the first '.' of its name
  std::string file{};       ///< "forward.1-1-1-goffs0-smallgrid.so"; empty: PTX
  std::int64_t bytes = 0;   ///< of code; 0: PTX, whose instructions have none
  std::int64_t loops = 0;   ///< innermost ones
  InstructionMix loop{};    ///< the innermost loop that multiplies most, else the longest
  InstructionMix others{};  ///< all other innermost loops together
  bool is_known = true;     ///< false: of a machine whose instructions are not known here
};

/// Of what `objdump -d --no-show-raw-insn` or llvm-objdump prints of some files: a kernel for each.
std::vector<KernelCode> read_disassembly(std::string_view text);
/// Of PTX: a kernel for each entry.
std::vector<KernelCode> read_ptx(std::string_view text);

/// For summary.json.
Json to_json(const KernelCode& code);

}  // namespace tessera::programs
