// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/staging.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "host/opencl/errors.hpp"

namespace tessera::opencl {
namespace {

// Strided views travel through a host buffer of this size: large enough that a transfer costs more
// than its start, small beside the arrays themselves.
constexpr std::int64_t bounce_bytes = std::int64_t{4} << 20;

/// Calls run(host_offset, copy_offset, count, host_stride) for stretches of the innermost axis that
/// cover elements [first, first + count) of the dense copy.
template <class Run>
void walk(const StagedLayout& layout, std::int64_t first, std::int64_t count, Run&& run) {
  const int inner = layout.axes - 1;
  if (inner < 0) {  // a single element
    run(std::int64_t{0}, std::int64_t{0}, count, std::int64_t{1});
    return;
  }
  std::array<std::int64_t, Dims::max_rank> index{};
  std::int64_t rest = first;
  std::int64_t host = 0;
  for (int axis = inner; axis >= 0; --axis) {
    const auto a = static_cast<std::size_t>(axis);
    index[a] = rest % layout.extent[a];
    rest /= layout.extent[a];
    host += index[a] * layout.host_stride[a];
  }
  const auto in = static_cast<std::size_t>(inner);
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t length = std::min(layout.extent[in] - index[in], count - done);
    run(host, done, length, layout.host_stride[in]);
    done += length;
    index[in] += length;
    host += length * layout.host_stride[in];
    for (int axis = inner; axis > 0; --axis) {
      const auto a = static_cast<std::size_t>(axis);
      if (index[a] < layout.extent[a]) break;
      host += layout.host_stride[a - 1] - layout.extent[a] * layout.host_stride[a];
      index[a] = 0;
      ++index[a - 1];
    }
  }
}

template <class T>
void gather(const StagedLayout& layout, const void* host, std::int64_t first, std::int64_t count,
            void* out) {
  const auto* from = static_cast<const T*>(host);
  auto* to = static_cast<T*>(out);
  walk(layout, first, count,
       [&](std::int64_t at, std::int64_t offset, std::int64_t length, std::int64_t stride) {
         if (stride == 1) {
           std::memcpy(to + offset, from + at, static_cast<std::size_t>(length) * sizeof(T));
           return;
         }
         for (std::int64_t i = 0; i < length; ++i) to[offset + i] = from[at + i * stride];
       });
}

template <class T>
void scatter(const StagedLayout& layout, void* host, std::int64_t first, std::int64_t count,
             const void* in) {
  auto* to = static_cast<T*>(host);
  const auto* from = static_cast<const T*>(in);
  walk(layout, first, count,
       [&](std::int64_t at, std::int64_t offset, std::int64_t length, std::int64_t stride) {
         if (stride == 1) {
           std::memcpy(to + at, from + offset, static_cast<std::size_t>(length) * sizeof(T));
           return;
         }
         for (std::int64_t i = 0; i < length; ++i) to[at + i * stride] = from[offset + i];
       });
}

template <class F>
void by_size(std::size_t size, F&& f) {
  switch (size) {
    case 2:
      return f(std::uint16_t{});
    case 4:
      return f(std::uint32_t{});
    default:
      return f(std::uint64_t{});
  }
}

// Waits on the event instead of asking for a blocking command: Intel's CPU runtime (2026.22)
// returns from a blocking write that another thread of it has begun before the bytes are there.
void transfer(Flight& flight, cl_mem memory, std::int64_t offset, std::int64_t bytes,
              const void* from, void* to) {
  flight.make_room();
  cl_event event = nullptr;
  const auto at = static_cast<std::size_t>(offset);
  const auto size = static_cast<std::size_t>(bytes);
  if (to == nullptr) {
    check(clEnqueueWriteBuffer(flight.queue(), memory, CL_FALSE, at, size, from,
                               flight.wait_count(), flight.wait_list(), &event),
          "clEnqueueWriteBuffer", flight.device(), "copying host memory to the device");
  } else {
    check(clEnqueueReadBuffer(flight.queue(), memory, CL_FALSE, at, size, to, flight.wait_count(),
                              flight.wait_list(), &event),
          "clEnqueueReadBuffer", flight.device(), "copying results to host memory");
  }
  flight.issued(event, {.name = to == nullptr ? "write" : "read"});
  flight.wait();
}

}  // namespace

std::int64_t reach_bytes(const View& view) {
  if (view.size() == 0) return 0;
  std::int64_t last = 0;
  for (int axis = 0; axis < view.rank(); ++axis) {
    last += (view.extents()[axis] - 1) * view.strides()[axis];
  }
  return (last + 1) * static_cast<std::int64_t>(size_of(view.dtype()));
}

StagedLayout staged_layout(const View& view) {
  StagedLayout layout;
  layout.strides = view.strides();
  std::array<int, Dims::max_rank> order{};
  for (int axis = 0; axis < view.rank(); ++axis) {
    if (view.extents()[axis] > 1 && view.strides()[axis] > 0) {
      order[static_cast<std::size_t>(layout.axes++)] = axis;
    }
  }
  std::stable_sort(order.begin(), order.begin() + layout.axes,
                   [&](int a, int b) { return view.strides()[a] > view.strides()[b]; });
  std::int64_t dense = 1;
  for (int i = layout.axes - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    layout.extent[at] = view.extents()[order[at]];
    layout.host_stride[at] = view.strides()[order[at]];
    dense *= layout.extent[at];
  }
  const std::int64_t reach = reach_bytes(view) / static_cast<std::int64_t>(size_of(view.dtype()));
  layout.verbatim = reach <= dense;
  layout.elements = layout.verbatim ? reach : dense;
  if (layout.verbatim) return layout;
  std::int64_t step = 1;
  for (int i = layout.axes - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    layout.strides[order[at]] = step;
    step *= layout.extent[at];
  }
  return layout;
}

void copy_to_device(Flight& flight, const View& view, const StagedLayout& layout, cl_mem memory) {
  const dispatch::Timed timed(dispatch::current_call(), ProfileKind::copy, "stage to the device");
  const auto size = static_cast<std::int64_t>(size_of(view.dtype()));
  if (layout.verbatim) {
    transfer(flight, memory, 0, layout.elements * size, view.host_data(), nullptr);
    return;
  }
  const std::int64_t piece = bounce_bytes / size;
  std::vector<std::byte> bounce(static_cast<std::size_t>(std::min(piece, layout.elements) * size));
  for (std::int64_t first = 0; first < layout.elements; first += piece) {
    const std::int64_t count = std::min(piece, layout.elements - first);
    by_size(size_of(view.dtype()), [&](auto word) {
      gather<decltype(word)>(layout, view.host_data(), first, count, bounce.data());
    });
    transfer(flight, memory, first * size, count * size, bounce.data(), nullptr);
  }
}

void copy_to_host(Flight& flight, const MutableView& view, const StagedLayout& layout,
                  cl_mem memory) {
  const dispatch::Timed timed(dispatch::current_call(), ProfileKind::copy, "stage to the host");
  const auto size = static_cast<std::int64_t>(size_of(view.dtype()));
  if (layout.verbatim) {
    transfer(flight, memory, 0, layout.elements * size, nullptr, view.host_data());
    return;
  }
  const std::int64_t piece = bounce_bytes / size;
  std::vector<std::byte> bounce(static_cast<std::size_t>(std::min(piece, layout.elements) * size));
  for (std::int64_t first = 0; first < layout.elements; first += piece) {
    const std::int64_t count = std::min(piece, layout.elements - first);
    transfer(flight, memory, first * size, count * size, nullptr, bounce.data());
    by_size(size_of(view.dtype()), [&](auto word) {
      scatter<decltype(word)>(layout, view.host_data(), first, count, bounce.data());
    });
  }
}

}  // namespace tessera::opencl
