// SPDX-License-Identifier: Apache-2.0
#include "host/dispatch/host_views.hpp"

#include <algorithm>
#include <exception>
#include <memory>

namespace tessera::dispatch {

HostWorkspace::HostWorkspace(ContextState& state, HostViews& views, const MutableView& lent,
                             std::int64_t bytes) {
  if (!lent) {
    lease_.emplace(state.workspaces.lend(bytes));
    data_ = lease_->data();
    return;
  }
  data_ = views.write(lent).host_data();
  std::size_t space = static_cast<std::size_t>(bytes);
  std::align(static_cast<std::size_t>(workspace_slack), 1, data_, space);
}

std::int64_t footprint_bytes(const View& view) {
  if (!view || view.size() == 0) return 0;
  std::int64_t last = 0;
  for (int axis = 0; axis < view.rank(); ++axis) {
    last += (view.extents()[axis] - 1) * view.strides()[axis];
  }
  return (last + 1) * static_cast<std::int64_t>(size_of(view.dtype()));
}

HostViews::~HostViews() {
  try {
    finish();
  } catch (...) {
    // Another error is on its way already, or the results have been handed over by finish().
  }
}

void HostViews::reserve(std::span<const View* const> reads,
                        std::span<const MutableView* const> writes) {
  struct Range {
    cl_mem memory;
    std::int64_t begin;
    std::int64_t end;
    bool write;
  };
  std::vector<Range> ranges;
  const auto add = [&](const View& view, bool write) {
    const auto bytes = footprint_bytes(view);
    if (!view.is_device() || bytes == 0) return;
    Range range{view.device_memory(), view.byte_offset(), view.byte_offset() + bytes, write};
    // Mapping overlapping ranges for writing is undefined in OpenCL: what overlaps becomes one.
    for (bool grown = true; grown;) {
      grown = false;
      for (auto it = ranges.begin(); it != ranges.end(); ++it) {
        if (it->memory != range.memory || it->end <= range.begin || range.end <= it->begin ||
            !(it->write || range.write))
          continue;
        range.begin = std::min(range.begin, it->begin);
        range.end = std::max(range.end, it->end);
        range.write = true;
        ranges.erase(it);
        grown = true;
        break;
      }
    }
    ranges.push_back(range);
  };
  for (const auto* view : writes) add(*view, true);
  for (const auto* view : reads) add(*view, false);
  for (const auto& range : ranges) map(range.memory, range.begin, range.end, range.write);
}

void* HostViews::map(cl_mem memory, std::int64_t begin, std::int64_t end, bool write) {
  for (const auto& mapping : mappings_) {
    if (mapping.memory == memory && mapping.begin <= begin && end <= mapping.end &&
        (mapping.write || !write)) {
      return static_cast<char*>(mapping.pointer) + (begin - mapping.begin);
    }
  }
  if (!state_.device) {
    throw Error(ErrorCode::foreign_context,
                "a view in device memory cannot be read by a context without a device; make the "
                "Context from the cl_context that owns the memory");
  }
  mappings_.reserve(mappings_.size() + 1);  // nothing may throw between mapping and remembering it
  void* pointer = state_.device->map(queue_, memory, begin, end - begin, write);
  mappings_.push_back({memory, pointer, begin, end, write});
  return pointer;
}

View HostViews::read(const View& view) {
  if (!view.is_device()) return view;
  const auto bytes = footprint_bytes(view);
  const void* data =
      bytes == 0 ? nullptr
                 : map(view.device_memory(), view.byte_offset(), view.byte_offset() + bytes, false);
  return View::host(data, view.dtype(), view.extents(), view.strides());
}

MutableView HostViews::write(const MutableView& view) {
  if (!view.is_device()) return view;
  const auto bytes = footprint_bytes(view);
  void* data =
      bytes == 0 ? nullptr
                 : map(view.device_memory(), view.byte_offset(), view.byte_offset() + bytes, true);
  return MutableView::host(data, view.dtype(), view.extents(), view.strides());
}

void HostViews::finish() {
  std::exception_ptr failure;
  // All are unmapped even when one fails: a mapping left behind would outlive the call.
  for (const auto& mapping : mappings_) {
    try {
      state_.device->unmap(mapping.memory, mapping.pointer);
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  mappings_.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tessera::dispatch
