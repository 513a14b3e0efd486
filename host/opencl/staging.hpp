// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "host/opencl/completion.hpp"
#include "tessera/view.hpp"

namespace tessera::opencl {

/// Bytes from element 0 to the end of the last element a view reaches; 0 without elements.
std::int64_t reach_bytes(const View& view);

/// How the elements of a host view lie in its copy on the device.
struct StagedLayout {
  /// The copy is the host range as it is: one transfer, same strides. Otherwise it is dense, with
  /// the axes in the order of the host's strides, so that a transposed matrix stays transposed.
  bool verbatim = false;
  std::int64_t elements = 0;  ///< in the copy; repeated elements (stride 0) are stored once
  Dims strides{};             ///< of the copy, in the view's order of axes

  /// Axes that are stored, outermost first.
  int axes = 0;
  std::array<std::int64_t, Dims::max_rank> extent{};
  std::array<std::int64_t, Dims::max_rank> host_stride{};
};

StagedLayout staged_layout(const View& view);

/// Host view -> `memory`, from its start. Returns when the host memory has been read.
void copy_to_device(Flight& flight, const View& view, const StagedLayout& layout, cl_mem memory);
/// `memory` -> host view; gaps between strided elements are not written. Returns when done.
void copy_to_host(Flight& flight, const MutableView& view, const StagedLayout& layout,
                  cl_mem memory);

}  // namespace tessera::opencl
