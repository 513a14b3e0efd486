// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "host/opencl/call.hpp"
#include "tessera/dtype.hpp"

/// Options and sizes that are written the same way for every kernel.
namespace tessera::opencl {

/// `-DNAME=<type>` for a kernel.
std::string type_option(const char* name, DType type);

/// Work sizes of a kernel with one work-item per element: groups of 64, rounded up (kernels check).
Range per_element(std::int64_t count, std::int64_t second = 1);

/// Groups along the second and the third axis of a launch that CUDA's devices take.
constexpr std::int64_t max_second_groups = 65535;

/// The same range with so many groups along its second axis, of one work-item each: SECOND_INDEX of
/// cl_kernels/common/types.cl.
Range with_second(Range range, std::int64_t second);

/// Words that scratch regions are rounded up to: 64 bytes.
std::int64_t region_words(std::int64_t words);

}  // namespace tessera::opencl
