// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "host/engines/engine.hpp"
#include "host/engines/gates.hpp"

/// The cpu engine, for what is particular to it: its instruction, and tests of its shapes.
namespace tessera::engines {

/// How products of two bf16 operands are formed; cl_kernels/engines/cpu/dot_bf16.cl.
enum class DotBf16 {
  none = 0,         ///< widened to f32, like any other 16-bit operand
  instruction = 1,  ///< by pairs, with the processor's instruction
  emulated = 2,     ///< by pairs, with its arithmetic in portable code: for tests
};

/// What the device is to use of them, and why not the instruction (vdpbf16ps) where it is not that.
struct DotBf16Verdict {
  DotBf16 dot = DotBf16::none;
  std::string reason{};
};
DotBf16Verdict dot_bf16_of(opencl::Runtime& runtime, Gates& gates);

/// Columns in a tile: four vectors of 16 lanes, one of 8 or two of 4.
constexpr std::int64_t cpu_widest_tile = 64, cpu_narrowest_tile = 8;
/// Lanes of the vectors that the compiler makes the most of: the processor's own.
std::int64_t cpu_lanes(const opencl::DeviceFacts& facts);
constexpr std::int64_t cpu_micro_m = 6;  ///< MICRO_M of cl_kernels/engines/cpu
/// `n`: columns that count; the engine may be shaped for few of them. `dot`: for visited products
/// of bf16. `most_columns`: of a tile; narrower ones take less scratch, down to fewer lanes than
/// the device has.
std::unique_ptr<Engine> make_cpu_engine(const opencl::DeviceFacts& facts,
                                        std::int64_t n = std::int64_t{1} << 31,
                                        DotBf16 dot = DotBf16::none,
                                        std::int64_t most_columns = cpu_widest_tile);
/// The engine in all its shapes.
EngineShapes make_cpu_shapes(const opencl::DeviceFacts& facts, std::int64_t n, DotBf16 dot);

}  // namespace tessera::engines
