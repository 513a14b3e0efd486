// SPDX-License-Identifier: Apache-2.0
#include "host/arguments/offsets.hpp"

namespace tessera::arguments {

RowOffsets::RowOffsets(const View& view, int axes) {
  // Outermost first; an axis merges into the one before it when stepping over its end continues it.
  for (int axis = 0; axis < axes; ++axis) {
    const std::int64_t extent = view.extents()[axis];
    const std::int64_t stride = view.strides()[axis];
    if (extent == 1) continue;
    const int last = extents_.rank() - 1;
    if (last >= 0 && strides_[last] == extent * stride) {
      extents_[last] *= extent;
      strides_[last] = stride;
    } else {
      extents_.push_back(extent);
      strides_.push_back(stride);
    }
  }
}

float load_f32(const void* data, DType type, std::int64_t offset) {
  switch (type) {
    case DType::bf16:
      return static_cast<float>(static_cast<const bf16*>(data)[offset]);
    case DType::f16:
      return static_cast<float>(static_cast<const f16*>(data)[offset]);
    default:
      return static_cast<const float*>(data)[offset];
  }
}

void store_f32(void* data, DType type, std::int64_t offset, float value) {
  switch (type) {
    case DType::bf16:
      static_cast<bf16*>(data)[offset] = bf16(value);
      break;
    case DType::f16:
      static_cast<f16*>(data)[offset] = f16(value);
      break;
    default:
      static_cast<float*>(data)[offset] = value;
  }
}

std::int64_t load_int(const void* data, DType type, std::int64_t offset) {
  return type == DType::i64 ? static_cast<const std::int64_t*>(data)[offset]
                            : static_cast<const std::int32_t*>(data)[offset];
}

void store_int(void* data, DType type, std::int64_t offset, std::int64_t value) {
  if (type == DType::i64) {
    static_cast<std::int64_t*>(data)[offset] = value;
  } else {
    static_cast<std::int32_t*>(data)[offset] = static_cast<std::int32_t>(value);
  }
}

}  // namespace tessera::arguments
