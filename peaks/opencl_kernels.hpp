// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tessera::peaks {

/// OpenCL C of the peak kernels. -D WIDTH: lanes of a vector (1, 2, 4, 8 or 16); -D CONTIGUOUS: a
/// work-item owns a stretch of memory (CPUs), else neighbours read neighbouring vectors (GPUs).
extern const char* const kernel_source;
/// The bf16 dot product instruction of x86; compiles on CPU devices whose compiler has it.
extern const char *const vdpbf16ps_source, *const mma_source;

/// Independent chains of operations in each work-item of a compute kernel: enough to hide the
/// latency of a multiply-add (4 cycles at two per cycle), few enough for sixteen registers.
constexpr int compute_chains = 12;

}  // namespace tessera::peaks
