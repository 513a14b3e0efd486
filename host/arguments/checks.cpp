// SPDX-License-Identifier: Apache-2.0
#include "host/arguments/checks.hpp"

#include <fmt/format.h>

#include <limits>

#include "host/arguments/overlap.hpp"

namespace tessera::arguments {

namespace {

constexpr auto largest = std::numeric_limits<std::int64_t>::max();

/// Blocks travel to kernels as 32-bit integers.
constexpr std::int64_t largest_block = std::numeric_limits<std::int32_t>::max();

const char* describe(ElementTypes types) {
  switch (types) {
    case ElementTypes::floating:
      return "f32, bf16 or f16";
    case ElementTypes::integer:
      return "i32 or i64";
    case ElementTypes::f32:
      return "f32";
    case ElementTypes::any:
      return "any type";
  }
  return "?";
}

std::string pointer_text(const View& view) {
  return view.is_device() ? fmt::format("byte offset {}", view.byte_offset())
                          : fmt::format("address {}", view.host_data());
}

}  // namespace

Source Source::with(const char* more) const {
  Source result = *this;
  result.more_ = more;
  return result;
}

std::string Source::text() const {
  std::string text = owned_ + what_;
  if (name_ != nullptr) text += std::string(name_) + " ";
  if (extents_ != nullptr) text += to_string(*extents_);
  return text + more_;
}

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (int axis = 0; axis < dims.rank(); ++axis) {
    text += (axis > 0 ? ", " : "") + std::to_string(dims[axis]);
  }
  return text + "]";
}

void ViewList::add(const char* name, const View& view, const View& lies, std::int64_t reach) {
  auto& entry = entries_.at(count_++);
  entry.name = name;
  entry.view = view;
  entry.lies = lies;
  entry.begin = lies.is_device() ? static_cast<std::uint64_t>(lies.byte_offset())
                                 : reinterpret_cast<std::uintptr_t>(lies.host_data());
  entry.end = entry.begin + static_cast<std::uint64_t>(reach);
}

void Checks::fail(const std::string& message, ErrorCode code) const {
  throw Error(code, operation_ + ": " + message);
}

void Checks::input(const char* name, const View& view, ElementTypes types) {
  if (!view) return;
  const std::int64_t reach = check_view(name, view, types, false);
  inputs_.add(name, view, underlying(view), reach);
}

void Checks::output(const char* name, const MutableView& view, ElementTypes types, bool is_read) {
  if (!view) return;
  const std::int64_t reach = check_view(name, view, types, true);
  if (is_read && view.is_device() && view.size() > 0) {
    state_->device->check_memory(view, name, false);
  }
  if (!elements_are_apart(view)) {
    fail(std::string(name) + " with extents " + to_string(view.extents()) + " and strides " +
         to_string(view.strides()) +
         " has elements that share memory; an output needs strides that keep them apart");
  }
  outputs_.add(name, view, underlying(view), reach);
}

View Checks::underlying(const View& view) const {
  // Without elements the handle has not been looked at.
  return view.is_device() && view.size() > 0 ? state_->device->underlying(view) : view;
}

void Checks::require(const char* name, const View& view, const char* why) const {
  if (!view) fail(std::string(name) + " is not given; " + why);
}

void Checks::refuse(const char* name, const View& view, const char* why) const {
  if (view) fail(std::string(name) + " is given; " + why);
}

std::int64_t Checks::check_view(const char* name, const View& view, ElementTypes types,
                                bool is_written) const {
  // Messages are put together only where they are thrown: a tiny call is mostly these checks.
  const auto argument = [&] { return std::string(name); };
  if (!accepts(types, view.dtype())) {
    fail(argument() + " has type " + tessera::to_string(view.dtype()) +
         "; supported: " + describe(types));
  }
  for (int axis = 0; axis < view.rank(); ++axis) {
    if (view.extents()[axis] < 0) {
      fail(argument() + " has extents " + to_string(view.extents()) + "; axis " +
           std::to_string(axis) + " is negative, the least is 0");
    }
    if (view.strides()[axis] < 0) {
      fail(argument() + " has strides " + to_string(view.strides()) + "; axis " +
           std::to_string(axis) +
           " is negative, the least is 0; copy the array or reverse the other operands");
    }
  }
  if (product(view.extents(), name, "'s extents") == 0) return 0;
  // The reach in bytes must be a number, so that offsets everywhere below are.
  const auto bytes = static_cast<std::int64_t>(size_of(view.dtype()));
  std::int64_t reach = 1;
  bool fits = true;
  for (int axis = 0; axis < view.rank(); ++axis) {
    std::int64_t step = 0;
    fits = fits && !__builtin_mul_overflow(view.extents()[axis] - 1, view.strides()[axis], &step) &&
           !__builtin_add_overflow(reach, step, &reach);
  }
  fits = fits && !__builtin_mul_overflow(reach, bytes, &reach);
  if (!fits || (view.is_device() && view.byte_offset() > largest - reach)) {
    fail(argument() + " with extents " + to_string(view.extents()) + " and strides " +
         to_string(view.strides()) + " reaches beyond 2^63 bytes; check the strides");
  }
  check_memory(name, view, is_written);
  return reach;
}

void Checks::check_memory(const char* name, const View& view, bool is_written) const {
  const auto argument = [&] { return std::string(name); };
  const auto alignment = size_of(view.dtype());
  if (view.is_device()) {
    if (view.byte_offset() < 0) {
      fail(argument() + " has byte offset " + std::to_string(view.byte_offset()) +
           "; the least is 0");
    }
    if (static_cast<std::size_t>(view.byte_offset()) % alignment != 0) {
      fail(argument() + " has " + pointer_text(view) + ", which is not a multiple of " +
           std::to_string(alignment) + ", the size of " + tessera::to_string(view.dtype()));
    }
    if (state_ == nullptr) {
      fail(argument() + " is device memory; this call runs on the host, copy it there first");
    }
    if (!state_->device) {
      fail(argument() +
               " is device memory, but this context has no device; make the Context from "
               "the cl_context that owns the memory",
           ErrorCode::foreign_context);
    }
    state_->device->check_memory(view, name, is_written);
    return;
  }
  if (view.host_data() == nullptr) {
    if (form_ == Form::question) return;
    fail(argument() + " has " + std::to_string(view.size()) +
         " elements but a null pointer; give host memory or a cl_mem");
  }
  if (reinterpret_cast<std::uintptr_t>(view.host_data()) % alignment != 0) {
    fail(argument() + " has " + pointer_text(view) + ", which is not aligned to " +
         std::to_string(alignment) + " bytes, the size of " + tessera::to_string(view.dtype()));
  }
}

void Checks::wrong_shape(const char* name, const View& view, const Dims& expected,
                         const Source& source) const {
  fail(std::string(name) + " has shape " + to_string(view.extents()) + ", expected " +
       to_string(expected) + ": " + source.text());
}

std::int64_t Checks::product(std::int64_t a, std::int64_t b, const char* what) const {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) {
    fail(std::string(what) + " is " + std::to_string(a) + " * " + std::to_string(b) +
         ", which exceeds 2^63 - 1; split the call");
  }
  return result;
}

std::int64_t Checks::product(const Dims& extents, const char* name, const char* what) const {
  // An empty axis makes an empty array, however large the others are.
  for (auto extent : extents) {
    if (extent == 0) return 0;
  }
  std::int64_t result = 1;
  for (auto extent : extents) {
    if (__builtin_mul_overflow(result, extent, &result)) {
      fail("the product of " + std::string(name) + what + " " + to_string(extents) +
           " exceeds 2^63 - 1; split the call");
    }
  }
  return result;
}

void Checks::overlaps(const char* in_place, const char* in_place_of) const {
  const auto known = [](const View& view) { return view.is_device() || view.host_data(); };
  // Most arrays are apart as a whole; only where they are not does it matter how they interleave.
  const auto touch = [&](const ViewList::Entry& a, const ViewList::Entry& b) {
    return a.begin < b.end && b.begin < a.end && known(b.view) && overlap(a.lies, b.lies);
  };
  const auto same = [](const View& a, const View& b) {
    return a.is_device() == b.is_device() && a.host_data() == b.host_data() &&
           a.device_memory() == b.device_memory() && a.byte_offset() == b.byte_offset() &&
           a.dtype() == b.dtype() && a.extents() == b.extents() && a.strides() == b.strides();
  };
  for (const auto& out : outputs_) {
    if (!known(out.view)) continue;
    for (const auto* other = &out + 1; other != outputs_.end(); ++other) {
      if (touch(out, *other)) {
        fail(std::string(out.name) + " and " + other->name +
             " overlap in memory; outputs must be apart from each other");
      }
    }
    for (const auto& in : inputs_) {
      if (!touch(out, in)) continue;
      const bool pair = in_place != nullptr && std::string(in_place) == out.name &&
                        std::string(in_place_of) == in.name;
      if (pair && same(out.view, in.view)) continue;
      fail(std::string(out.name) + " overlaps the input " + in.name + " in memory; " +
           (pair ? "in place it must be the very same view, else they must be apart"
                 : "outputs must be apart from inputs"));
    }
  }
}

void Checks::positive_block(const char* name, std::int64_t value) const {
  if (value < 1 || value > largest_block) {
    fail(std::string(name) + " is " + std::to_string(value) + "; block sizes are 1 to " +
         std::to_string(largest_block));
  }
}

void Checks::handles(cl_command_queue queue, const std::vector<cl_event>& wait_for,
                     const MutableView& workspace) {
  for (std::size_t i = 0; i < wait_for.size(); ++i) {
    if (wait_for[i] == nullptr) {
      fail("wait_for[" + std::to_string(i) + "] is null; give events that exist");
    }
  }
  const bool has_device = state_ != nullptr && state_->device;
  if (!has_device && (queue != nullptr || !wait_for.empty())) {
    fail(std::string(queue != nullptr ? "queue" : "wait_for") +
             " is given, but this context has no device; leave it empty or make the Context from "
             "its cl_context",
         ErrorCode::foreign_context);
  }
  if (queue != nullptr) state_->device->check_queue(queue);
  if (!wait_for.empty()) state_->device->check_events(wait_for);
  if (!workspace) return;
  output("workspace", workspace, ElementTypes::any, true);
  // Scratch is carved from it by bytes, so that it must not have holes.
  std::int64_t last = 0;
  for (int axis = 0; axis < workspace.rank(); ++axis) {
    last += (workspace.extents()[axis] - 1) * workspace.strides()[axis];
  }
  if (workspace.size() > 0 && last + 1 != workspace.size()) {
    fail("workspace with extents " + to_string(workspace.extents()) + " and strides " +
         to_string(workspace.strides()) + " has gaps; lend one contiguous block");
  }
}

bool same_memory(const View& a, const View& b) noexcept {
  return a.host_data() == b.host_data() && a.device_memory() == b.device_memory() &&
         a.byte_offset() == b.byte_offset() && (a.host_data() != nullptr || a.is_device());
}

std::string describe_row(std::int64_t row, const Dims& leading) {
  std::string text = std::to_string(row);
  if (leading.rank() < 2) return text;
  Dims index = leading;
  for (int axis = leading.rank() - 1; axis >= 0; --axis) {
    index[axis] = row % leading[axis];
    row /= leading[axis];
  }
  return text + " (index " + to_string(index) + ")";
}

}  // namespace tessera::arguments
