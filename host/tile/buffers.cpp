// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

#include "host/tile/buffer.hpp"
#include "host/tile/core.hpp"
#include "host/tile/launch.hpp"
#include "host/tile/machine_state.hpp"
#include "host/tile/rows.hpp"
#include "host/tile/text.hpp"

namespace tessera::tile::detail {
namespace {

/// What one element of uninitialised memory holds, as bytes.
template <class T>
std::vector<std::byte> bytes_of(T value) {
  std::vector<std::byte> bytes(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

std::vector<std::byte> poison_of(ElementType type, Uninitialized how) {
  const std::size_t bytes = static_cast<std::size_t>(bits_of(type)) / 8;
  if (how == Uninitialized::zero) return std::vector<std::byte>(bytes, std::byte{0});
  switch (type) {
    case ElementType::f32:
      return bytes_of(std::numeric_limits<float>::quiet_NaN());
    case ElementType::bf16:
      return bytes_of(bf16(std::numeric_limits<float>::quiet_NaN()));
    case ElementType::f16:
      return bytes_of(f16(std::numeric_limits<float>::quiet_NaN()));
    case ElementType::i32:
      return bytes_of(std::numeric_limits<std::int32_t>::max());
    case ElementType::i16:
      return bytes_of(std::numeric_limits<std::int16_t>::max());
    case ElementType::i8:
      return bytes_of(std::numeric_limits<std::int8_t>::max());
    default:  // the largest of unsigned types, a NaN of the small floating ones
      return std::vector<std::byte>(bytes, std::byte{0xff});
  }
}

}  // namespace

Shape row_major(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

std::shared_ptr<Buffer> make_buffer(MachineState& machine, std::string name, MemorySpace space,
                                    ElementType type, const Shape& extents, int device) {
  // A PiB, far above any machine. Tiles pad it by up to 2^12, which 64 bits hold.
  constexpr std::int64_t most_bytes = std::int64_t{1} << 50;
  std::int64_t left = most_bytes * 8 / bits_of(type);
  for (const auto extent : extents) {
    if (extent < 1) {
      throw TileError(ErrorKind::usage,
                      fmt::format("'{}' {}: every extent is at least 1", name, to_text(extents)));
    }
    left /= extent;
  }
  if (left == 0) {
    throw TileError(ErrorKind::usage, fmt::format("'{}' {} of {} has more than 2^50 bytes", name,
                                                  to_text(extents), to_string(type)));
  }
  auto buffer = std::make_shared<Buffer>();
  buffer->machine = &machine;
  buffer->name = std::move(name);
  buffer->space = space;
  buffer->type = type;
  buffer->shape = extents;
  buffer->strides = row_major(extents);
  buffer->device = device;
  buffer->report = machine.add_to_report(buffer->name, space);
  return buffer;
}

void give_memory(Buffer& buffer, bool poisoned, bool steers) {
  // What steers a kernel is in SMEM, also in a dry run.
  if (buffer.machine->options.dry_run && buffer.space != MemorySpace::smem && !steers) return;
  std::size_t bytes = buffer.element_bytes();
  for (const auto extent : buffer.shape) bytes *= static_cast<std::size_t>(extent);
  try {
    buffer.owned = std::make_unique_for_overwrite<std::byte[]>(bytes);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory,
                fmt::format("'{}' {}: the host has no {} bytes for it; make it smaller, or use a "
                            "dry run",
                            buffer.name, to_text(buffer.shape), bytes));
  }
  buffer.data = buffer.target = buffer.owned.get();
  if (poisoned) poison(whole(buffer));
}

void end(Buffer& buffer, const std::string& with) {
  buffer.ended_with = with;
  buffer.data = nullptr;
  buffer.target = nullptr;
  buffer.owned.reset();
  buffer.siblings = nullptr;
  buffer.log.clear();
}

Region whole(Buffer& buffer) {
  Region region{buffer.shared_from_this(), {}, std::vector<bool>(buffer.shape.size(), false)};
  for (const auto extent : buffer.shape) region.slices.push_back({0, extent});
  return region;
}

namespace {

/// Every element becomes `pattern`, by copies that double.
void fill_row(std::byte* to, std::size_t bytes, const std::vector<std::byte>& pattern) {
  std::size_t filled = std::min(bytes, pattern.size());
  std::memcpy(to, pattern.data(), filled);
  // What was written is read again from the first-level cache, of which 4 KiB are a small part.
  constexpr std::size_t most = 4096;
  while (filled < bytes) {
    const std::size_t more = std::min({filled, bytes - filled, most});
    std::memcpy(to + filled, to, more);
    filled += more;
  }
}

}  // namespace

void poison(const Region& region) {
  const Elements elements = elements_of(region);
  if (elements.target == nullptr) return;
  const Buffer& buffer = *region.buffer;
  const auto pattern = poison_of(buffer.type, buffer.machine->options.uninitialized);
  const std::int64_t count = elements.extents.empty() ? 1 : elements.extents.back();
  const std::int64_t stride = elements.strides.empty() ? 1 : elements.strides.back();
  const auto step = stride * static_cast<std::int64_t>(pattern.size());
  for_each_row(elements.extents, [&](const Shape& row) {
    auto* to = static_cast<std::byte*>(elements.target) +
               offset_of(row, elements.strides) * static_cast<std::int64_t>(pattern.size());
    if (stride == 1) {
      return fill_row(to, static_cast<std::size_t>(count) * pattern.size(), pattern);
    }
    for (std::int64_t i = 0; i < count; ++i, to += step) {
      std::memcpy(to, pattern.data(), pattern.size());
    }
  });
}

Buffer& buffer_of(const Region& region) {
  if (region.buffer != nullptr) return *region.buffer;
  throw TileError(ErrorKind::usage,
                  "a ref that names nothing is used, one made without a value; take refs from the "
                  "machine's arrays or from the kernel's arguments");
}

Shape extents_of(const Region& region) {
  buffer_of(region);  // or there is no shape
  Shape extents;
  extents.reserve(region.slices.size());
  for (std::size_t i = 0; i < region.slices.size(); ++i) {
    if (!region.squeezed[i]) extents.push_back(region.slices[i].size);
  }
  return extents;
}

const std::string& name_of(const Region& region) { return buffer_of(region).name; }

Elements elements_of(const Region& region) {
  const Buffer& buffer = buffer_of(region);
  Elements result;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < region.slices.size(); ++i) {
    first += region.slices[i].start * buffer.strides[i];
    if (region.squeezed[i]) continue;
    result.extents.push_back(region.slices[i].size);
    result.strides.push_back(buffer.strides[i]);
  }
  first *= static_cast<std::int64_t>(buffer.element_bytes());
  if (buffer.data != nullptr) result.data = buffer.data + first;
  if (buffer.target != nullptr) result.target = buffer.target + first;
  return result;
}

namespace {

/// "[8, 24)"; what ends behind all numbers, or before it begins, is "ds(8, -1)".
std::string text_of(const Slice& part) {
  std::int64_t end = 0;
  if (part.size < 0 || __builtin_add_overflow(part.start, part.size, &end)) {
    return fmt::format("ds({}, {})", part.start, part.size);
  }
  return fmt::format("[{}, {})", part.start, end);
}

}  // namespace

Region slice_of(const Region& region, std::span<const Index> indices) {
  const Buffer& buffer = buffer_of(region);
  Region result = region;
  std::size_t next = 0;
  for (std::size_t i = 0; i < region.slices.size() && next < indices.size(); ++i) {
    if (region.squeezed[i]) continue;
    const Index& index = indices[next++];
    if (index.is_all()) continue;
    const Slice part = index.part();
    const Slice whole = region.slices[i];
    // A difference: the sum of two indices need not be one.
    if (part.start < 0 || part.size < 0 || part.start > whole.size ||
        part.size > whole.size - part.start) {
      throw TileError(
          ErrorKind::bounds,
          fmt::format("{}: dimension {} of the ref has elements 0 to {}, {} is outside",
                      located(buffer.name), next - 1, whole.size - 1,
                      index.is_one() ? fmt::format("element {}", part.start) : text_of(part)),
          "R18", buffer.name);
    }
    result.slices[i] = {whole.start + part.start, part.size};
    result.squeezed[i] = index.is_one();
  }
  if (next < indices.size()) {
    throw TileError(ErrorKind::bounds,
                    fmt::format("{} has {} dimensions, {} indices are too many",
                                located(buffer.name), extents_of(region).size(), indices.size()),
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
      fmt::format("race on '{}' of kernel '{}': {} and {}: nothing orders them; wait for the copy, "
                  "or for a signal that comes after the first",
                  buffer.name, buffer.machine->running->name, describe(*collision),
                  describe({stamp, where, writes, copy, place})),
      {}, buffer.name);
}

Elements access(const Region& region, AccessKind kind) {
  CoreState& core = current_core("an access");
  Buffer& buffer = core.own(region);
  if (buffer.space != MemorySpace::vmem && buffer.space != MemorySpace::smem) {
    throw TileError(ErrorKind::space,
                    fmt::format("{} is in {}, which only copies reach: copy it into VMEM or SMEM",
                                located(buffer.name), to_string(buffer.space)),
                    {}, buffer.name);
  }
  record_access(buffer, region.slices, kind == AccessKind::write, false, core.now(), core.clock,
                core.place);
  Elements elements = elements_of(region);
  if (!buffer.unknown || buffer.space != MemorySpace::smem) return elements;
  if (kind == AccessKind::write) {
    buffer.unknown = region.slices != whole(buffer).slices;
  } else if (buffer.type == ElementType::i32 || buffer.type == ElementType::u32) {
    throw TileError(
        ErrorKind::usage,
        located(buffer.name) +
            ": a dry run does not know these integers, which came from memory without values; "
            "steer it by arrays of Machine::array, or new_ref's of 32-bit integers",
        {}, buffer.name);
  } else {
    elements.data = nullptr;
  }
  return elements;
}

}  // namespace tessera::tile::detail
