// SPDX-License-Identifier: Apache-2.0
#include "reference/streaming/kernels.hpp"

namespace tessera::streaming {

extern const Kernels kernels_baseline;
#if TESSERA_STREAMING_X86
extern const Kernels kernels_avx2;
extern const Kernels kernels_avx512;
#endif

namespace {

/// Best first. F16C is not asked for on its own: every processor with AVX2 has it.
const Kernels& best() {
#if TESSERA_STREAMING_X86
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("fma")) {
    return kernels_avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return kernels_avx2;
#endif
  return kernels_baseline;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = best();
  return chosen;
}

}  // namespace tessera::streaming
