// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tessera::peaks {

/// The host's loops for one instruction set. A null member: the processor has no such instruction.
struct Isa {
  const char* name = "";
  int lanes = 0;
  float (*multiply_add)(std::int64_t rounds, float a, float b) = nullptr;
  float (*exponential)(std::int64_t rounds) = nullptr;
  float (*read_all)(const float* data, std::int64_t floats) = nullptr;
  void (*write_all)(float* data, std::int64_t floats, float value) = nullptr;
  void (*stream_all)(float* data, std::int64_t floats, float value) = nullptr;
  void (*copy_all)(float* to, const float* from, std::int64_t floats) = nullptr;
  void (*update_all)(float* data, std::int64_t floats) = nullptr;
  float (*dot_bf16)(std::int64_t rounds) = nullptr;  ///< 64 FLOP for each chain and round
};

/// The widest that this processor runs.
Isa best_isa();
/// The processor multiplies pairs of bf16 and sums them in f32 in one instruction.
bool processor_has_bf16_dot_product();

}  // namespace tessera::peaks
