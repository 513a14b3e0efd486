// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>
#include <unordered_map>

#include "host/tile/buffer.hpp"
#include "host/tile/launch.hpp"
#include "host/tile/machine_state.hpp"
#include "host/tile/rows.hpp"
#include "host/tile/transfer.hpp"

namespace tessera::tile::detail {
namespace {

/// Adds element by element, as wide as the type is.
template <class T>
void add_row(std::byte* to, const std::byte* from, std::int64_t count, std::int64_t to_stride,
             std::int64_t from_stride) {
  auto* out = reinterpret_cast<T*>(to);
  const auto* in = reinterpret_cast<const T*>(from);
  for (std::int64_t i = 0; i < count; ++i) {
    T& value = out[i * to_stride];
    if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, f16>) {
      value = T(static_cast<float>(value) + static_cast<float>(in[i * from_stride]));
    } else {
      value = static_cast<T>(value + in[i * from_stride]);
    }
  }
}

using AddRow = decltype(&add_row<float>);

AddRow add_row_of(const Transfer& transfer) {
  switch (transfer.from.buffer->type) {
    case ElementType::f32:
      return add_row<float>;
    case ElementType::bf16:
      return add_row<bf16>;
    case ElementType::f16:
      return add_row<f16>;
    case ElementType::i32:
      return add_row<std::int32_t>;
    case ElementType::u32:
      return add_row<std::uint32_t>;
    case ElementType::i8:
      return add_row<std::int8_t>;
    default:
      throw TileError(ErrorKind::usage,
                      fmt::format("{}: add is for f32, bf16, f16, i32, u32 and i8, not {}",
                                  title(transfer), to_string(transfer.from.buffer->type)));
  }
}

}  // namespace

std::string title(const Transfer& transfer) {
  return fmt::format("copy '{}' -> '{}'", transfer.from.buffer->name, transfer.to.buffer->name);
}

void for_each_part(const Transfer& transfer,
                   const std::function<void(const Region& from, const Region& to)>& body) {
  if (transfer.indices.buffer == nullptr) return body(transfer.from, transfer.to);
  const Elements indices = elements_of(transfer.indices);
  if (indices.data == nullptr) return;
  const bool gather = transfer.side == Indexed::from;
  const Region& rows = gather ? transfer.from : transfer.to;
  const auto row_of = [](const Region& region, std::int64_t row) {
    const Index index(ds(row, 1));
    return slice_of(region, std::span<const Index>(&index, 1));
  };
  const std::int64_t count = extents_of(rows)[0];
  // Which index writes a row; not asked where all of them count.
  std::unordered_map<std::int64_t, std::int64_t> written;
  for (std::int64_t i = 0; i < indices.extents[0]; ++i) {
    const std::int64_t row = static_cast<const std::int32_t*>(indices.data)[i * indices.strides[0]];
    if (row < 0 || row >= count) {
      throw TileError(
          ErrorKind::bounds,
          fmt::format("{} of kernel '{}', started by {}: index {} is {}, '{}' has rows 0 to {}",
                      title(transfer), rows.buffer->machine->running->name, transfer.place->text(),
                      i, row, rows.buffer->name, count - 1),
          "R18", rows.buffer->name);
    }
    if (!gather && !transfer.options.add) {
      if (const auto [first, fresh] = written.emplace(row, i); !fresh) {
        throw TileError(
            ErrorKind::race,
            fmt::format("{} of kernel '{}', started by {}: indices {} and {} are both {}, and no "
                        "order of a copy's rows is promised; scatter to different rows, or add",
                        title(transfer), rows.buffer->machine->running->name,
                        transfer.place->text(), first->second, i, row),
            {}, rows.buffer->name);
      }
    }
    body(gather ? row_of(transfer.from, row) : row_of(transfer.from, i),
         gather ? row_of(transfer.to, i) : row_of(transfer.to, row));
  }
}

namespace {

void move_part(const Transfer& transfer, AddRow add, const Region& source, const Region& target) {
  const Elements from = elements_of(source);
  const Elements to = elements_of(target);
  if (from.data == nullptr || to.target == nullptr) return;
  const auto bytes = static_cast<std::int64_t>(transfer.from.buffer->element_bytes());
  const bool scalar = from.extents.empty();
  const std::int64_t count = scalar ? 1 : from.extents.back();
  const std::int64_t from_stride = scalar ? 1 : from.strides.back();
  const std::int64_t to_stride = scalar ? 1 : to.strides.back();
  const auto size = static_cast<std::size_t>(bytes);
  for_each_row(from.extents, [&](const Shape& row) {
    auto* out = static_cast<std::byte*>(to.target) + offset_of(row, to.strides) * bytes;
    const auto* in =
        static_cast<const std::byte*>(from.data) + offset_of(row, from.strides) * bytes;
    if (add != nullptr) {
      add(out, in, count, to_stride, from_stride);
    } else if (to_stride == 1 && from_stride == 1) {
      std::memcpy(out, in, static_cast<std::size_t>(count) * size);
    } else {
      for (std::int64_t i = 0; i < count; ++i) {
        std::memcpy(out + i * to_stride * bytes, in + i * from_stride * bytes, size);
      }
    }
  });
}

}  // namespace

void note_unknown(const Transfer& transfer) {
  Buffer& to = *transfer.to.buffer;
  if (!to.machine->options.dry_run) return;
  const auto known = [](const Region& region) {
    return region.buffer->data != nullptr && !region.buffer->unknown;
  };
  if (!known(transfer.from) || (transfer.indices.buffer != nullptr && !known(transfer.indices))) {
    to.unknown = true;
  } else if (!transfer.options.add && transfer.indices.buffer == nullptr &&
             transfer.to.slices == whole(to).slices) {
    to.unknown = false;
  }
}

void move_elements(const Transfer& transfer) {
  const AddRow add = transfer.options.add ? add_row_of(transfer) : nullptr;
  for_each_part(transfer,
                [&](const Region& from, const Region& to) { move_part(transfer, add, from, to); });
}

}  // namespace tessera::tile::detail
