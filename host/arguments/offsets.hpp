// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/view.hpp"

namespace tessera::arguments {

/// Element offsets of flat rows over leading axes with any strides.
///
/// Axes that are contiguous with respect to each other are merged, so `rank()` is 1 for a dense
/// array and 2 for `x[:, :-1]`. At most 8 axes.
class RowOffsets {
 public:
  RowOffsets() = default;
  /// `axes` leading axes of `view`.
  RowOffsets(const View& view, int axes);

  int rank() const noexcept { return extents_.rank(); }
  std::int64_t extent(int axis) const noexcept { return extents_[axis]; }
  std::int64_t stride(int axis) const noexcept { return strides_[axis]; }

  /// Offset in elements of flat row `row`.
  std::int64_t operator()(std::int64_t row) const noexcept {
    std::int64_t offset = 0;
    for (int axis = extents_.rank() - 1; axis > 0; --axis) {
      offset += row % extents_[axis] * strides_[axis];
      row /= extents_[axis];
    }
    return extents_.rank() > 0 ? offset + row * strides_[0] : 0;
  }

 private:
  Dims extents_;
  Dims strides_;
};

/// Reads element `offset` of a host array as f32 (f32, bf16 or f16).
float load_f32(const void* data, DType type, std::int64_t offset);
/// Writes `value`, rounded once, as element `offset` of a host array (f32, bf16 or f16).
void store_f32(void* data, DType type, std::int64_t offset, float value);
/// Reads element `offset` of a host array of i32 or i64.
std::int64_t load_int(const void* data, DType type, std::int64_t offset);
/// Writes element `offset` of a host array of i32 or i64, whose type holds `value`.
void store_int(void* data, DType type, std::int64_t offset, std::int64_t value);

}  // namespace tessera::arguments
