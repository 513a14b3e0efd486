// SPDX-License-Identifier: Apache-2.0
#include "tessera/tile/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "host/tile/state.hpp"
#include "host/tile/text.hpp"

namespace tessera::tile {
namespace detail {
namespace {

thread_local CoreState* running_core = nullptr;

template <class T>
void fill(Buffer& buffer, T value) {
  const auto count = buffer.owned.size() / sizeof(T);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(buffer.owned.data() + i * sizeof(T), &value, sizeof(T));
  }
}

std::int64_t elements_in(const Shape& shape) {
  std::int64_t count = 1;
  for (const auto extent : shape) count *= extent;
  return count;
}

Shape row_major(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

}  // namespace

void poison(Buffer& buffer, Uninitialized how) {
  if (how == Uninitialized::zero) {
    std::fill(buffer.owned.begin(), buffer.owned.end(), std::byte{0});
    return;
  }
  switch (buffer.type) {
    case ElementType::f32:
      return fill(buffer, std::numeric_limits<float>::quiet_NaN());
    case ElementType::bf16:
      return fill(buffer, bf16(std::numeric_limits<float>::quiet_NaN()));
    case ElementType::f16:
      return fill(buffer, f16(std::numeric_limits<float>::quiet_NaN()));
    case ElementType::i32:
      return fill(buffer, std::numeric_limits<std::int32_t>::max());
    case ElementType::i16:
      return fill(buffer, std::numeric_limits<std::int16_t>::max());
    case ElementType::i8:
      return fill(buffer, std::numeric_limits<std::int8_t>::max());
    default:  // the largest of unsigned types, a NaN of the small floating ones
      std::fill(buffer.owned.begin(), buffer.owned.end(), std::byte{0xff});
  }
}

Shape extents_of(const Region& region) {
  Shape extents;
  for (std::size_t i = 0; i < region.slices.size(); ++i) {
    if (!region.squeezed[i]) extents.push_back(region.slices[i].size);
  }
  return extents;
}

const std::string& name_of(const Region& region) { return region.buffer->name; }

Elements elements_of(const Region& region) {
  const Buffer& buffer = *region.buffer;
  Elements result;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < region.slices.size(); ++i) {
    first += region.slices[i].start * buffer.strides[i];
    if (region.squeezed[i]) continue;
    result.extents.push_back(region.slices[i].size);
    result.strides.push_back(buffer.strides[i]);
  }
  if (buffer.data != nullptr) {
    result.data = buffer.data + first * static_cast<std::int64_t>(buffer.element_bytes());
  }
  return result;
}

Region slice_of(const Region& region, std::span<const Index> indices) {
  Region result = region;
  const Buffer& buffer = *region.buffer;
  std::size_t next = 0;
  for (std::size_t i = 0; i < region.slices.size() && next < indices.size(); ++i) {
    if (region.squeezed[i]) continue;
    const Index& index = indices[next++];
    if (index.is_all()) continue;
    const Slice part = index.part();
    const Slice whole = region.slices[i];
    if (part.start < 0 || part.size < 0 || part.start + part.size > whole.size) {
      const std::string where = running_core != nullptr
                                    ? located(*running_core, "'" + buffer.name + "'")
                                    : "'" + buffer.name + "'";
      throw TileError(
          ErrorKind::bounds,
          fmt::format("{}: dimension {} of the ref has elements 0 to {}, {} is outside", where,
                      next - 1, whole.size - 1,
                      index.is_one() ? fmt::format("element {}", part.start)
                                     : fmt::format("[{}, {})", part.start, part.start + part.size)),
          "R18", buffer.name);
    }
    result.slices[i] = {whole.start + part.start, part.size};
    result.squeezed[i] = index.is_one();
  }
  if (next < indices.size()) {
    throw TileError(ErrorKind::bounds,
                    fmt::format("'{}' has {} dimensions, {} indices are too many", buffer.name,
                                extents_of(region).size(), indices.size()),
                    "R18", buffer.name);
  }
  return result;
}

void record_access(Buffer& buffer, const std::vector<Slice>& where, bool writes, bool copy,
                   const Stamp& stamp, const Clock& known,
                   const std::shared_ptr<const Place>& place) {
  if (!buffer.machine->options.detect_races) return;
  const auto collision = buffer.log.add({stamp, where, writes, copy, place}, known);
  if (!collision) return;
  const auto describe = [&](const AccessLog::Access& access) {
    std::string part;
    for (std::size_t i = 0; i < access.where.size(); ++i) {
      part += fmt::format("{}{}:{}", i > 0 ? ", " : "", access.where[i].start,
                          access.where[i].start + access.where[i].size);
    }
    return fmt::format("{} [{}] by {}{}", access.writes ? "write of" : "read of", part,
                       access.copy ? "a copy that was started by " : "", access.place->text());
  };
  throw TileError(
      ErrorKind::race,
      fmt::format("race on '{}': {} and {}: nothing orders them; wait for the copy, or "
                  "for a signal that comes after the first",
                  buffer.name, describe(*collision), describe({stamp, where, writes, copy, place})),
      {}, buffer.name);
}

Elements access(const Region& region, AccessKind kind) {
  Buffer& buffer = *region.buffer;
  CoreState& core = current_core("an access");
  if (buffer.space != MemorySpace::vmem && buffer.space != MemorySpace::smem) {
    throw TileError(ErrorKind::space,
                    fmt::format("{} is in {}, which only copies reach: copy it into VMEM or SMEM",
                                located(core, "'" + buffer.name + "'"), to_string(buffer.space)),
                    {}, buffer.name);
  }
  record_access(buffer, region.slices, kind != AccessKind::read, false, core.tick(), core.clock,
                core.place);
  return elements_of(region);
}

CoreState& current_core(const char* what) {
  if (running_core == nullptr) {
    throw TileError(ErrorKind::usage, fmt::format("{} is for the body of a kernel", what));
  }
  return *running_core;
}

Running::Running(CoreState& core) { running_core = &core; }
Running::~Running() { running_core = nullptr; }

std::string located(const CoreState& core, const std::string& buffer) {
  return fmt::format("{} of kernel '{}', {}", buffer, core.launch->name, core.place->text());
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
  state_->scheduler = std::make_unique<Scheduler>(options.seed);
  state_->options = std::move(options);
}

Machine::~Machine() = default;
Machine::Machine(Machine&&) noexcept = default;
Machine& Machine::operator=(Machine&&) noexcept = default;

const MachineOptions& Machine::options() const noexcept { return state_->options; }
const Report& Machine::report() const { return state_->report; }

void Machine::reset_report() {
  auto buffers = std::move(state_->report.buffers);
  for (auto& buffer : buffers) buffer = {buffer.name, buffer.space};
  state_->report = {};
  state_->report.buffers = std::move(buffers);
}

namespace {

/// An array without memory.
detail::Region make_array(detail::MachineState& machine, std::string name, ElementType type,
                          const Shape& extents, int device) {
  if (device < 0 || device >= machine.options.devices) {
    throw TileError(ErrorKind::usage, fmt::format("'{}': device {} is none of {}", name, device,
                                                  machine.options.devices));
  }
  for (const auto extent : extents) {
    if (extent < 1) {
      throw TileError(ErrorKind::usage,
                      fmt::format("'{}' {}: every extent is at least 1", name, to_text(extents)));
    }
  }
  auto buffer = std::make_unique<detail::Buffer>();
  buffer->machine = &machine;
  buffer->name = std::move(name);
  buffer->type = type;
  buffer->shape = extents;
  buffer->strides = detail::row_major(extents);
  buffer->device = device;
  buffer->report = machine.add_to_report(buffer->name, MemorySpace::hbm);
  ++machine.report.hbm_allocations;
  detail::Region region{buffer.get(), {}, std::vector<bool>(extents.size(), false)};
  for (const auto extent : extents) region.slices.push_back({0, extent});
  machine.arrays.push_back(std::move(buffer));
  return region;
}

}  // namespace

detail::Region Machine::allocate(std::string name, ElementType type, const Shape& extents,
                                 int device) {
  const auto region = make_array(*state_, std::move(name), type, extents, device);
  if (state_->options.dry_run) return region;
  auto& buffer = *region.buffer;
  buffer.owned.resize(static_cast<std::size_t>(detail::elements_in(extents)) *
                      buffer.element_bytes());
  buffer.data = buffer.owned.data();
  detail::poison(buffer, state_->options.uninitialized);
  return region;
}

detail::Region Machine::borrow(std::string name, ElementType type, const View& view, bool writable,
                               int device) {
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
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] > 1 && strides[i] != detail::row_major(extents)[i]) {
      throw TileError(ErrorKind::usage,
                      fmt::format("'{}' {} has strides {}; the machine's arrays are row-major",
                                  name, to_text(extents), to_text(strides)));
    }
  }
  const auto region = make_array(*state_, std::move(name), type, extents, device);
  region.buffer->writable = writable;
  if (!state_->options.dry_run)
    region.buffer->data = static_cast<std::byte*>(const_cast<void*>(view.host_data()));
  return region;
}

detail::Elements Machine::contents(const detail::Region& region) const {
  return detail::elements_of(region);
}

detail::Elements Machine::freeze(const detail::Region& region) {
  if (region.buffer->frozen) {
    throw TileError(ErrorKind::usage,
                    fmt::format("'{}' has been frozen before", region.buffer->name));
  }
  region.buffer->frozen = true;
  return detail::elements_of(region);
}

}  // namespace tessera::tile
