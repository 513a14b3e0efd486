// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "host/opencl/call.hpp"

namespace tessera::engines {

/// Rows [begin, end) of an array [leading, n] that one binding reaches.
struct Segment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  opencl::Binding bound{};
  opencl::Geometry geometry{};  ///< of the leading axes; row `begin` is its row 0
  std::int64_t stride = 1;      ///< of the last axis
};

/// How kernels use the array.
enum class Access { read, write, update };

/// Binds an array of `rows` rows, cut along its outermost axis where it is larger than one
/// allocation. A single row that is too large is Error out_of_memory.
std::vector<Segment> bind_segments(opencl::Call& call, const View& view, std::int64_t rows,
                                   const char* name, Access access);

/// Extents and strides of leading axes as a kernel argument (cl_kernels/common/rows.cl).
opencl::Geometry geometry_of(const opencl::Binding& binding, int axes);

/// The view as one that may be written; for views that came in as MutableView.
MutableView writable(const View& view);

}  // namespace tessera::engines
