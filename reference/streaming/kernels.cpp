// SPDX-License-Identifier: Apache-2.0
#include "reference/streaming/kernels.hpp"

#include <cstring>

namespace tessera::streaming {

extern const Kernels kernels_baseline;
#if TESSERA_STREAMING_X86
extern const Kernels kernels_avx2;
extern const Kernels kernels_avx512;
#endif

namespace {

struct Row {
  const Kernels* kernels;
  bool runs;
};

/// Best first. F16C is not asked for on its own: every processor with AVX2 has it.
const Row* rows() {
  static const Row table[] = {
#if TESSERA_STREAMING_X86
    {&kernels_avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma")},
    {&kernels_avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
#endif
    {&kernels_baseline, true},
    {nullptr, false},
  };
  return table;
}

}  // namespace

const Kernels& kernels() {
  const Row* row = rows();
  while (!row->runs) ++row;
  return *row->kernels;
}

const Kernels* kernels_named(const char* name) {
  for (const Row* row = rows(); row->kernels != nullptr; ++row) {
    if (row->runs && std::strcmp(row->kernels->name, name) == 0) return row->kernels;
  }
  return nullptr;
}

}  // namespace tessera::streaming
