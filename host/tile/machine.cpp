// SPDX-License-Identifier: Apache-2.0
#include "tessera/tile/machine.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "host/tile/buffer.hpp"
#include "host/tile/machine_state.hpp"
#include "host/tile/text.hpp"

namespace tessera::tile {
namespace detail {

MachineState::~MachineState() {
  for (const auto& array : arrays) array->machine = nullptr;
}

std::size_t MachineState::add_to_report(const std::string& name, MemorySpace space) {
  for (std::size_t i = 0; i < report.buffers.size(); ++i) {
    // Scratch of the same name is the same line of every kernel that has it.
    if (report.buffers[i].name == name && report.buffers[i].space == space) return i;
  }
  report.buffers.push_back({name, space});
  return report.buffers.size() - 1;
}

}  // namespace detail

Machine::Machine(MachineOptions options) : state_(std::make_unique<detail::MachineState>()) {
  if (options.devices < 1) {
    throw TileError(ErrorKind::usage, fmt::format("devices: {} is less than 1", options.devices));
  }
  if (options.trace && !options.model_time) {
    throw TileError(ErrorKind::usage, "trace needs model_time");
  }
  if (options.model_time) {
    state_->rates = rates_of(options.chip, options.time.value_or(time_parameters(options.chip)));
  }
  if (options.threads < 0) {
    throw TileError(ErrorKind::usage, fmt::format("threads: {} is less than 0", options.threads));
  }
  state_->scheduler = std::make_unique<Scheduler>(options.seed);
  state_->compute = std::make_unique<Compute>(options.threads);
  state_->options = std::move(options);
}

Machine::~Machine() = default;
Machine::Machine(Machine&&) noexcept = default;
Machine& Machine::operator=(Machine&&) noexcept = default;

const BufferReport& Report::buffer(const std::string& name) const {
  for (const BufferReport& one : buffers) {
    if (one.name == name) return one;
  }
  throw TileError(ErrorKind::usage, fmt::format("the report has no buffer '{}'", name));
}

detail::MachineState& Machine::state() {
  if (state_ != nullptr) return *state_;
  throw TileError(ErrorKind::usage,
                  "the machine has been moved from; use the one that it was moved to");
}
const detail::MachineState& Machine::state() const { return const_cast<Machine*>(this)->state(); }

const MachineOptions& Machine::options() const { return state().options; }
const Report& Machine::report() const { return state().report; }

void Machine::reset_report() {
  auto& machine = state();
  auto buffers = std::move(machine.report.buffers);
  for (auto& buffer : buffers) buffer = {buffer.name, buffer.space};
  machine.report = {};
  machine.report.buffers = std::move(buffers);
  machine.waits = {};
  machine.timelines.clear();
}

namespace {

/// An array without memory.
detail::Region make_array(detail::MachineState& machine, std::string name, ElementType type,
                          const Shape& extents, int device) {
  if (device < 0 || device >= machine.options.devices) {
    throw TileError(ErrorKind::usage, fmt::format("'{}': device {} is none of {}", name, device,
                                                  machine.options.devices));
  }
  auto buffer =
      detail::make_buffer(machine, std::move(name), MemorySpace::hbm, type, extents, device);
  ++machine.report.hbm_allocations;
  const detail::Region region = detail::whole(*buffer);
  machine.arrays.push_back(std::move(buffer));
  return region;
}

/// The extents of a view that an array of `type` can be, or be copied from.
Shape checked_extents(const std::string& name, ElementType type, const View& view) {
  if (view.is_device()) {
    throw TileError(ErrorKind::usage,
                    fmt::format("'{}' is in an OpenCL device's memory; the machine takes host "
                                "memory",
                                name));
  }
  if (element_type(view.dtype()) != type) {
    throw TileError(ErrorKind::usage, fmt::format("'{}' holds {}, not {}", name,
                                                  to_string(view.dtype()), to_string(type)));
  }
  Shape extents(view.extents().begin(), view.extents().end());
  const Shape strides(view.strides().begin(), view.strides().end());
  const Shape dense = detail::row_major(extents);
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] > 1 && strides[i] != dense[i]) {
      throw TileError(ErrorKind::usage,
                      fmt::format("'{}' {} has strides {}; the machine's arrays are row-major",
                                  name, to_text(extents), to_text(strides)));
    }
  }
  return extents;
}

/// A dry run reads nothing, and takes views without memory.
void check_memory(const detail::MachineState& machine, const std::string& name, const View& view) {
  if (machine.options.dry_run || view.size() == 0 || view.host_data() != nullptr) return;
  throw TileError(
      ErrorKind::usage,
      fmt::format("'{}' has {} elements but a null pointer; give host memory", name, view.size()));
}

}  // namespace

detail::Region Machine::allocate(std::string name, ElementType type, const Shape& extents,
                                 int device) {
  const auto region = make_array(state(), std::move(name), type, extents, device);
  detail::give_memory(*region.buffer);
  return region;
}

detail::Region Machine::borrow(std::string name, ElementType type, const View& view, int device) {
  const Shape extents = checked_extents(name, type, view);
  check_memory(state(), name, view);
  const auto region = make_array(state(), std::move(name), type, extents, device);
  region.buffer->writable = false;
  region.buffer->data = static_cast<const std::byte*>(view.host_data());
  return region;
}

detail::Region Machine::borrow(std::string name, ElementType type, const MutableView& view,
                               int device) {
  const auto region = borrow(std::move(name), type, View(view), device);
  region.buffer->writable = true;
  region.buffer->target = static_cast<std::byte*>(view.host_data());
  return region;
}

detail::Region Machine::copy_of(std::string name, ElementType type, const View& view, int device) {
  const Shape extents = checked_extents(name, type, view);
  check_memory(state(), name, view);
  const auto region = make_array(state(), std::move(name), type, extents, device);
  auto& copy = *region.buffer;
  // Indices steer a kernel, also in a dry run.
  detail::give_memory(copy, true, type == ElementType::i32 || type == ElementType::u32);
  if (copy.data != nullptr && view.host_data() != nullptr) {
    std::size_t bytes = copy.element_bytes();
    for (const auto extent : extents) bytes *= static_cast<std::size_t>(extent);
    std::memcpy(copy.target, view.host_data(), bytes);
  }
  return region;
}

namespace {

detail::Buffer& own_array(const detail::MachineState& machine, const detail::Region& region) {
  detail::Buffer& buffer = detail::buffer_of(region);
  if (buffer.machine == &machine) return buffer;
  throw TileError(ErrorKind::usage,
                  fmt::format("'{}' belongs to another machine; ask that one", buffer.name), {},
                  buffer.name);
}

}  // namespace

detail::Elements Machine::contents(const detail::Region& region) const {
  own_array(state(), region);
  return options().dry_run ? detail::Elements{} : detail::elements_of(region);
}

detail::Elements Machine::freeze(const detail::Region& region) {
  detail::Buffer& buffer = own_array(state(), region);
  if (buffer.frozen) {
    throw TileError(ErrorKind::usage, fmt::format("'{}' has been frozen before", buffer.name));
  }
  buffer.frozen = true;
  return detail::elements_of(region);
}

}  // namespace tessera::tile
