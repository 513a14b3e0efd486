// SPDX-License-Identifier: Apache-2.0
// Loads, stores and copies of 16 bytes.
#include <algorithm>

#include "builder.hpp"
#include "layouts.hpp"

namespace tessera_ptx {
namespace {

enum Space : std::int64_t { generic, in_global, in_shared, in_local, in_parameters };

Space take_space(Builder& b) {
  if (b.take("global") || b.take("const")) return in_global;
  if (b.take("shared") || b.take("shared::cta")) return in_shared;
  if (b.take("local")) return in_local;
  if (b.take("param")) return in_parameters;
  return generic;
}

std::byte* locate(Machine& m, Warp& w, int lane, std::int64_t space, std::uint64_t address,
                  std::size_t bytes) {
  switch (space) {
    case in_shared:
      return m.shared(w, address, bytes);
    case in_local:
      return m.local(w, lane, address, bytes);
    case in_parameters:
      return const_cast<std::byte*>(m.parameter(address, bytes));
    case generic:
      if (address >= local_mark) return m.local(w, lane, address - local_mark, bytes);
      if (address >= shared_mark) return m.shared(w, address - shared_mark, bytes);
      break;
    default:
      break;
  }
  return m.global(address, bytes);
}

/// number: bytes and offset of the address, space, elements, bytes of one, of a register, is
/// signed.
struct Access {
  std::int64_t space;
  std::size_t count, bytes, register_bytes;
  bool is_signed;
  explicit Access(const Op& op)
      : space(op.number[2]),
        count(static_cast<std::size_t>(op.number[3])),
        bytes(static_cast<std::size_t>(op.number[4])),
        register_bytes(static_cast<std::size_t>(op.number[5])),
        is_signed(op.number[6] != 0) {}
};

void load(Machine& m, Warp& w, const Op& op, Lanes lanes) {
  const Access a(op);
  for_lanes(lanes, [&](int l) {
    const auto address = address_of(w, op, a.count, 0, l);
    const std::byte* from = locate(m, w, l, a.space, address, a.count * a.bytes);
    for (std::size_t i = 0; i < a.count; ++i) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, from + i * a.bytes, a.bytes);
      if (a.is_signed) {
        const int shift = 64 - 8 * static_cast<int>(a.bytes);
        bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(bits << shift) >> shift);
      }
      w.set_value(op.at[i], a.register_bytes, l, bits);
    }
  });
}

void store(Machine& m, Warp& w, const Op& op, Lanes lanes) {
  const Access a(op);
  m.progress();
  for_lanes(lanes, [&](int l) {
    const auto address = address_of(w, op, a.count, 0, l);
    std::byte* to = locate(m, w, l, a.space, address, a.count * a.bytes);
    for (std::size_t i = 0; i < a.count; ++i) {
      const auto bits = w.value(op.at[i], a.register_bytes, l);
      std::memcpy(to + i * a.bytes, &bits, a.bytes);
    }
    const bool is_generic_shared =
        a.space == generic && address >= shared_mark && address < local_mark;
    if (a.space == in_shared) m.stored(w, address, a.count * a.bytes);
    if (is_generic_shared) m.stored(w, address - shared_mark, a.count * a.bytes);
  });
}

void build_access(Builder& b) {
  const bool is_load = b.head() == "ld";
  b.take("volatile");
  if (b.take("relaxed") || b.take("acquire") || b.take("release")) {
    if (!b.take("cta") && !b.take("gpu") && !b.take("sys")) b.unknown();
  }
  const Space space = take_space(b);
  // Hints for the caches.
  for (const std::string_view hint : {"nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt"}) b.take(hint);
  const std::size_t count = b.take("v2") ? 2 : b.take("v4") ? 4 : 1;
  const Type type = b.type();
  b.end_of_words();
  const Operand& value = b.operand(is_load ? 0 : 1);
  const bool is_list = value.kind == Operand::Kind::list;
  if (is_list ? value.list.size() != count : count != 1) b.unknown();
  std::size_t register_bytes = size_of(type);
  for (std::size_t i = 0; i < count; ++i) {
    const Operand& one = is_list ? value.list[i] : value;
    if (one.kind == Operand::Kind::reg) register_bytes = one.bytes;
    if (register_bytes < size_of(type)) b.unknown();
    if (is_load)
      b.output(one, register_bytes);
    else
      b.input(one, register_bytes);
  }
  b.address(is_load ? 1 : 0);
  const bool is_signed = type == Type::s8 || type == Type::s16 || type == Type::s32;
  for (const auto number :
       {static_cast<std::int64_t>(space), static_cast<std::int64_t>(count),
        static_cast<std::int64_t>(size_of(type)), static_cast<std::int64_t>(register_bytes),
        static_cast<std::int64_t>(is_signed)}) {
    b.op.number.push_back(number);
  }
  if (!is_load && space == in_parameters) b.unknown();
  b.op.run = is_load ? load : store;
}

/// atom.shared.or.b32 old, [address], value: lanes one after the other.
template <class T>
void exchange(Machine& m, Warp& w, const Op& op, Lanes lanes) {
  m.progress();
  for_lanes(lanes, [&](int l) {
    const auto address = address_of(w, op, 1, 0, l);
    std::byte* const place = locate(m, w, l, op.number[2], address, sizeof(T));
    T old{};
    std::memcpy(&old, place, sizeof(T));
    const T value = w.at<T>(op.at[2])[l];
    const T results[] = {static_cast<T>(old + value), std::min(old, value),
                         std::max(old, value),        static_cast<T>(old & value),
                         static_cast<T>(old | value), value};
    std::memcpy(place, &results[op.number[3]], sizeof(T));
    if (op.number[2] == in_shared) m.stored(w, address, sizeof(T));
    w.at<T>(op.at[0])[l] = old;
  });
}

void build_atom(Builder& b) {
  const Space space = take_space(b);
  if (space != in_global && space != in_shared) b.unknown();
  static constexpr std::string_view names[] = {"add", "min", "max", "and", "or", "exch"};
  const auto name = b.word();
  const auto* const found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) b.unknown();
  const Type type = b.type();
  b.end_of_words();
  b.output(0, type);
  b.address(1);
  b.input(2, type);
  b.op.number.push_back(space);
  b.op.number.push_back(found - std::begin(names));
  if (type == Type::u32 || type == Type::b32) b.op.run = exchange<std::uint32_t>;
  if (type == Type::s32) b.op.run = exchange<std::int32_t>;
  if (type == Type::u64 || type == Type::b64) b.op.run = exchange<std::uint64_t>;
}

/// The source is read, and the copy seen, no sooner than this.
void arrive(Machine& m, Warp& w, const Copy& copy) {
  std::byte* to = m.shared(w, copy.to, copy.size);
  std::memset(to, 0, copy.size);
  if (copy.bytes > 0) std::memcpy(to, reinterpret_cast<const void*>(copy.from), copy.bytes);
}

void copy_words(Machine& m, Warp& w, const Op& op, Lanes lanes) {
  const auto size = static_cast<std::uint32_t>(op.number[4]);
  const bool has_bytes = op.at.size() > 2;
  m.progress();
  for_lanes(lanes, [&](int l) {
    const auto to = address_of(w, op, 0, 0, l), from = address_of(w, op, 1, 2, l);
    std::uint32_t bytes = has_bytes ? static_cast<std::uint32_t>(w.value(op.at[2], 4, l)) : size;
    if (bytes > size) throw Fault("cp.async of more bytes than its size");
    if (from % size != 0) throw Fault("misaligned in global memory");
    if (bytes > 0) {
      m.global(from, 1);
      m.global(from + bytes - 1, 1);
    }
    std::byte* place = m.shared(w, to, size);
    m.stored(w, to, size);
    const Copy copy{static_cast<std::uint32_t>(to), from, size, bytes};
    if (m.is_early()) {
      arrive(m, w, copy);
    } else {
      std::memset(place, 0xFF, size);
      w.copies.push_back(copy);
    }
  });
}

void build_copy(Builder& b) {
  b.expect("async");
  if (b.take("commit_group")) {
    b.op.run = [](Machine&, Warp& w, const Op&, Lanes lanes) {
      Machine::require_all(w, lanes);
      w.copy_groups.push_back(std::move(w.copies));
      w.copies.clear();
    };
    return;
  }
  if (b.take("wait_group") || b.take("wait_all")) {
    b.op.number = {b.operands() > 0 ? b.literal(0) : 0};
    b.op.run = [](Machine& m, Warp& w, const Op& op, Lanes lanes) {
      Machine::require_all(w, lanes);
      m.finish_copies(w, static_cast<std::size_t>(op.number[0]));
    };
    return;
  }
  if (!b.take("ca")) b.expect("cg");
  b.expect("shared");
  b.expect("global");
  b.end_of_words();
  b.address(0);
  b.address(1);
  const auto size = b.literal(2);
  if (size != 4 && size != 8 && size != 16) b.unknown();
  if (b.operands() > 3) b.input(3, Type::u32);
  b.op.number.push_back(size);
  b.op.run = copy_words;
}

}  // namespace

void Machine::finish_copies(Warp& warp, std::size_t left) {
  while (warp.copy_groups.size() > left) {
    for (const auto& copy : warp.copy_groups.front()) arrive(*this, warp, copy);
    warp.copy_groups.pop_front();
  }
}

bool build_memory(Builder& b) {
  if (b.head() == "ld" || b.head() == "st") {
    build_access(b);
  } else if (b.head() == "atom") {
    build_atom(b);
  } else if (b.head() == "cp" && !b.has("bulk")) {
    build_copy(b);
  } else {
    return false;
  }
  return true;
}

}  // namespace tessera_ptx
