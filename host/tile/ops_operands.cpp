// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "host/tile/buffer.hpp"
#include "host/tile/core.hpp"
#include "host/tile/machine_state.hpp"
#include "host/tile/ops.hpp"
#include "host/tile/rows.hpp"
#include "host/tile/text.hpp"
#include "reference/streaming/kernels.hpp"

namespace tessera::tile::detail {

MachineState& machine_of_core(const char* what) { return *current_core(what).machine; }

Elements vector_access(const Region& region, AccessKind kind) {
  if (buffer_of(region).space == MemorySpace::smem) {
    throw TileError(
        ErrorKind::space,
        fmt::format("{} is in SMEM, which gives scalars: load them", located(region.buffer->name)),
        {}, region.buffer->name);
  }
  return access(region, kind);
}

ElementType type_of(const Region& region) { return buffer_of(region).type; }

bool overlap(const Region& a, const Region& b) {
  if (a.buffer != b.buffer) return false;
  for (std::size_t i = 0; i < a.slices.size(); ++i) {
    const Slice &x = a.slices[i], &y = b.slices[i];
    if (x.start + x.size <= y.start || y.start + y.size <= x.start) return false;
  }
  return true;
}

bool same(const Region& a, const Region& b) {
  return a.buffer == b.buffer && a.slices == b.slices && a.squeezed == b.squeezed;
}

Shape extents_of(const Operand& operand) {
  Shape extents = extents_of(*operand.region);
  if (operand.column) extents.push_back(1);
  return extents;
}

std::string described(const Region& region) {
  return fmt::format("'{}' {} {}", region.buffer->name, to_text(extents_of(region)),
                     to_string(region.buffer->type));
}

void refuse(const char* what, const std::string& why, const Region& about) {
  throw TileError(ErrorKind::usage,
                  fmt::format("{}: {} ({})", what, why, located(about.buffer->name)), {},
                  about.buffer->name);
}

double padded_elements(const Chip& chip, const Shape& extents) {
  // A vector's elements fill registers one after the other, as XLA's T(1024) layout has them.
  const std::int64_t whole_register = static_cast<std::int64_t>(chip.lanes) * chip.sublanes;
  if (extents.empty()) return static_cast<double>(whole_register);
  if (extents.size() == 1) return static_cast<double>(align_to(extents[0], whole_register));
  double count = 1;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const std::size_t behind = extents.size() - 1 - i;
    count *= static_cast<double>(behind == 0   ? align_to(extents[i], chip.lanes)
                                 : behind == 1 ? align_to(extents[i], chip.sublanes)
                                               : extents[i]);
  }
  return count;
}

namespace {

streaming::Type streaming_type(ElementType type) {
  return type == ElementType::bf16  ? streaming::Type::bf16
         : type == ElementType::f16 ? streaming::Type::f16
                                    : streaming::Type::f32;
}

template <class Word, class T>
void load_as(const void* source, std::int64_t stride, std::int64_t count, void* words) {
  const auto* from = static_cast<const T*>(source);
  auto* to = static_cast<Word*>(words);
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<Word>(from[i * stride]);
}

/// To an integer: towards zero, at the type's limits, NaN to 0, as XLA does.
template <class T, class Word>
T converted(Word value) {
  if constexpr (std::is_same_v<Word, float>) {
    using Limits = std::numeric_limits<T>;
    if (!(value > static_cast<float>(Limits::min()))) {
      return std::isnan(value) ? T{0} : Limits::min();
    }
    // The float above the largest 32-bit integer, since that one itself is none.
    if (value >= static_cast<float>(Limits::max())) return Limits::max();
  }
  return static_cast<T>(value);
}

template <class T, class Word>
void store_integers(const void* words, std::int64_t count, void* target, std::int64_t stride) {
  const auto* from = static_cast<const Word*>(words);
  auto* to = static_cast<T*>(target);
  for (std::int64_t i = 0; i < count; ++i) to[i * stride] = converted<T>(from[i]);
}

template <class Word>
void store_any(const void* words, std::int64_t count, void* target, ElementType type,
               std::int64_t stride) {
  switch (type) {
    case ElementType::i32:
      return store_integers<std::int32_t, Word>(words, count, target, stride);
    case ElementType::u32:
      return store_integers<std::uint32_t, Word>(words, count, target, stride);
    case ElementType::i8:
      return store_integers<std::int8_t, Word>(words, count, target, stride);
    case ElementType::u8:
      return store_integers<std::uint8_t, Word>(words, count, target, stride);
    default:
      break;
  }
  const auto store = streaming::kernels().store;
  const std::int64_t size = bits_of(type) / 8;
  if constexpr (std::is_same_v<Word, float>) {
    store(static_cast<const float*>(words), count, target, streaming_type(type), stride, false);
  } else {
    float floats[chunk_elements];
    for (std::int64_t i = 0; i < count; i += chunk_elements) {
      const std::int64_t n = std::min<std::int64_t>(count - i, chunk_elements);
      load_as<float, Word>(static_cast<const Word*>(words) + i, 1, n, floats);
      store(floats, n, static_cast<std::byte*>(target) + i * stride * size, streaming_type(type),
            stride, false);
    }
  }
}

}  // namespace

void load_words(const void* source, ElementType type, std::int64_t stride, std::int64_t count,
                void* words) {
  switch (type) {
    case ElementType::f32:
    case ElementType::i32:
    case ElementType::u32:
      return load_as<std::uint32_t, std::uint32_t>(source, stride, count, words);
    case ElementType::bf16:
    case ElementType::f16:
      return streaming::kernels().load(source, streaming_type(type), stride, count,
                                       static_cast<float*>(words));
    case ElementType::i8:
      return load_as<std::int32_t, std::int8_t>(source, stride, count, words);
    case ElementType::u8:
      return load_as<std::uint32_t, std::uint8_t>(source, stride, count, words);
    default:
      throw TileError(ErrorKind::usage,
                      fmt::format("no operation computes with {}", to_string(type)));
  }
}

void store_words(const void* words, ElementType word, std::int64_t count, void* target,
                 ElementType type, std::int64_t stride) {
  if (word == type && stride == 1) {
    // An operand may be the target itself.
    std::memmove(target, words, static_cast<std::size_t>(count) * sizeof(std::uint32_t));
    return;
  }
  switch (word) {
    case ElementType::i32:
      return store_any<std::int32_t>(words, count, target, type, stride);
    case ElementType::u32:
      return store_any<std::uint32_t>(words, count, target, type, stride);
    default:
      return store_any<float>(words, count, target, type, stride);
  }
}

void Loops::simplify(bool joined) {
  std::size_t rank = 0;
  for (std::size_t d = 0; d < extents.size(); ++d) {
    if (extents[d] == 1) continue;
    const bool behind = joined && rank > 0 && std::ranges::all_of(strides, [&](const Shape& s) {
                          return s[rank - 1] == s[d] * extents[d];
                        });
    const std::size_t to = behind ? rank - 1 : rank;
    extents[to] = behind ? extents[to] * extents[d] : extents[d];
    for (Shape& s : strides) s[to] = s[d];
    if (!behind) ++rank;
  }
  extents.resize(rank);
  for (Shape& s : strides) s.resize(rank);
}

void Loops::locate(std::int64_t index, std::size_t dimensions, std::int64_t* offsets) const {
  std::fill_n(offsets, strides.size(), 0);
  for (std::size_t d = dimensions; d-- > 0;) {
    const std::int64_t at = index % extents[d];
    index /= extents[d];
    for (std::size_t i = 0; i < strides.size(); ++i) offsets[i] += at * strides[i][d];
  }
}

namespace {

/// A dense copy of what an operation reads and overwrites.
void copy_elements(Elements& elements, ElementType type, std::vector<std::byte>& copy) {
  const Shape dense = row_major(elements.extents);
  const auto size = static_cast<std::int64_t>(bits_of(type)) / 8;
  std::int64_t count = 1;
  for (const auto extent : elements.extents) count *= extent;
  copy.resize(static_cast<std::size_t>(count * size));
  const auto* from = static_cast<const std::byte*>(elements.data);
  const std::int64_t columns = elements.extents.empty() ? 1 : elements.extents.back();
  const std::int64_t step = elements.strides.empty() ? 1 : elements.strides.back();
  for_each_row(elements.extents, [&](const Shape& row) {
    const std::byte* source = from + offset_of(row, elements.strides) * size;
    std::byte* target = copy.data() + offset_of(row, dense) * size;
    for (std::int64_t i = 0; i < columns; ++i) {
      std::memcpy(target + i * size, source + i * step * size, static_cast<std::size_t>(size));
    }
  });
  elements.data = copy.data();
  elements.strides = dense;
}

}  // namespace

Plan plan(const char* what, const Shape& domain, Operands operands, const Region& out,
          bool in_place) {
  Plan result;
  result.loops.extents = domain;
  for (const Operand& operand : operands) {
    Source source{nullptr, operand.word, operand.word, operand.value};
    Shape strides(domain.size(), 0);
    if (operand.region != nullptr) {
      const Region& region = *operand.region;
      Elements elements = vector_access(region, AccessKind::read);
      if (operand.column) {
        elements.extents.push_back(1);
        elements.strides.push_back(1);
      }
      const std::size_t missing = domain.size() - std::min(domain.size(), elements.extents.size());
      bool fits = elements.extents.size() <= domain.size();
      source.type = type_of(region);
      const bool in_its_place = in_place && same(region, out) && !operand.column;
      if (elements.data != nullptr && overlap(region, out) && !in_its_place) {
        copy_elements(elements, source.type, source.copy);
      }
      for (std::size_t d = 0; fits && d < elements.extents.size(); ++d) {
        const std::int64_t extent = elements.extents[d];
        fits = extent == domain[missing + d] || extent == 1;
        if (extent != 1) strides[missing + d] = elements.strides[d];
      }
      if (!fits) {
        refuse(what,
               fmt::format("{} does not broadcast to {} of {}", described(region), to_text(domain),
                           described(out)),
               region);
      }
      source.data = static_cast<const std::byte*>(elements.data);
      result.dry = result.dry || elements.data == nullptr;
    }
    result.sources.push_back(std::move(source));
    result.loops.strides.push_back(std::move(strides));
  }
  result.out = vector_access(out, AccessKind::write);
  result.dry = result.dry || result.out.target == nullptr;
  return result;
}

const void* Chunks::values(const std::int64_t* offsets, const std::int64_t* strides, int count) {
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    const bool is_value = source.data == nullptr;
    const void* from = is_value ? static_cast<const void*>(&source.value)
                                : source.data + offsets[i] * bits_of(source.type) / 8;
    in_[i] = words_[i];
    if (is_value || strides[i] == 0) {
      // One element for the whole stretch, and often for the next ones too.
      if (filled_[i].from == from && filled_[i].count >= count) continue;
      std::uint32_t word;
      load_words(from, is_value ? source.word : source.type, 1, 1, &word);
      std::fill_n(words_[i], count, word);
      filled_[i] = {from, count};
    } else if (source.type == source.word && strides[i] == 1) {
      in_[i] = from;
    } else {
      load_words(from, source.type, strides[i], count, words_[i]);
      filled_[i] = {};
    }
  }
  if (function_.run == nullptr) return in_[0];
  function_.run(function_.object, in_, result_, count);
  return result_;
}

}  // namespace tessera::tile::detail
