// SPDX-License-Identifier: Apache-2.0
#include "host/engines/segments.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "host/arguments/offsets.hpp"
#include "host/engines/engine.hpp"

namespace tessera::engines {

opencl::Geometry geometry_of(const opencl::Binding& binding, int axes) {
  const arguments::RowOffsets offsets(
      View::host(nullptr, binding.dtype, binding.extents, binding.strides), axes);
  opencl::Geometry geometry{};
  for (int axis = 0; axis < Dims::max_rank; ++axis) {
    const bool used = axis < offsets.rank();
    geometry.extent[axis] = used ? offsets.extent(axis) : 1;
    geometry.stride[axis] = used ? offsets.stride(axis) : 0;
  }
  return geometry;
}

MutableView writable(const View& view) {
  if (view.is_device()) {
    return MutableView::device(view.device_memory(), view.byte_offset(), view.dtype(),
                               view.extents(), view.strides());
  }
  return MutableView::host(const_cast<void*>(view.host_data()), view.dtype(), view.extents(),
                           view.strides());
}

std::vector<Segment> bind_segments(opencl::Call& call, const View& view, std::int64_t rows,
                                   const char* name, Access access) {
  // Leading axes merged where they are dense with respect to each other, outermost first, so that a
  // cut along the outermost is a range of rows.
  const arguments::RowOffsets offsets(view, view.rank() - 1);
  Dims extents;
  Dims strides;
  for (int axis = 0; axis < offsets.rank(); ++axis) {
    extents.push_back(offsets.extent(axis));
    strides.push_back(offsets.stride(axis));
  }
  const bool cut = !extents.empty();
  const std::int64_t outer = cut ? std::max<std::int64_t>(extents[0], 1) : 1;
  const std::int64_t rows_each = cut ? std::max<std::int64_t>(rows, 1) / outer : 1;
  extents.push_back(view.extents().back());
  strides.push_back(view.strides().back());

  const auto part_of = [&](std::int64_t begin, std::int64_t count) {
    if (!cut) return view.reshaped(extents, strides);
    Dims part = extents;
    part[0] = std::min(count, extents[0]);
    const auto bytes = begin * strides[0] * static_cast<std::int64_t>(size_of(view.dtype()));
    if (view.is_device()) {
      return View::device(view.device_memory(), view.byte_offset() + bytes, view.dtype(), part,
                          strides);
    }
    return View::host(static_cast<const char*>(view.host_data()) + bytes, view.dtype(), part,
                      strides);
  };
  std::int64_t count = outer;
  while (count > 1 && !view.is_device() && !call.fits(part_of(0, count))) {
    count = ceil_div(count, 2);
  }

  std::vector<Segment> list;
  for (std::int64_t begin = 0; begin < outer; begin += count) {
    const std::int64_t here = std::min(count, outer - begin);
    const View part = part_of(begin, here);
    Segment segment;
    segment.begin = begin * rows_each;
    segment.end = std::min(rows, (begin + here) * rows_each);
    segment.bound = access == Access::read
                        ? call.read(part, name)
                        : call.write(writable(part), name, access == Access::update);
    segment.geometry = geometry_of(segment.bound, segment.bound.extents.rank() - 1);
    segment.stride = segment.bound.strides.back();
    list.push_back(segment);
  }
  return list;
}

}  // namespace tessera::engines
