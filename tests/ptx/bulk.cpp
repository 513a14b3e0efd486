// SPDX-License-Identifier: Apache-2.0
// Barrier objects in shared memory, and copies of boxes of matrices by tensor maps.
#include <algorithm>

#include "builder.hpp"
#include "layouts.hpp"

namespace tessera_ptx {
namespace {

constexpr std::int64_t most_bytes = (1 << 20) - 1;  // that a barrier object can expect

// ---- barrier objects ----

/// mbarrier.init.shared::cta.b64 [address], count and its like. `number` ends with which it is.
enum Act : std::int64_t { init, invalidate, arrive, arrive_expecting, expecting };

void act(Machine& m, Warp& w, const Op& op, Lanes lanes) {
  const auto what = static_cast<Act>(op.number[2]);
  const std::size_t base = op.outputs;
  for_lanes(lanes, [&](int l) {
    const auto address = static_cast<std::uint32_t>(address_of(w, op, base, 0, l));
    std::byte* place = m.shared(w, address, 8);
    const std::int64_t value =
        op.at.size() > base + 1 ? w.at<std::uint32_t>(op.at[base + 1])[l] : 1;
    if (what == init) {
      if (value < 1 || value > most_bytes) throw Fault("a count from 1 to 2^20 - 1 is expected");
      std::memset(place, 0xFF, 8);
      w.group->mbarriers[address] = {value, value, 0, 0};
      return;
    }
    Mbarrier& barrier = Machine::mbarrier(*w.group, address);
    if (what == invalidate) {
      w.group->mbarriers.erase(address);
      return;
    }
    if (what != arrive) {
      barrier.bytes += value;
      if (barrier.bytes > most_bytes) throw Fault("a barrier object expects too many bytes");
    }
    if (what == expecting) return;
    if (op.outputs > 0) w.set_value(op.at[0], 8, l, barrier.phase);
    const std::int64_t arrivals = what == arrive ? value : 1;
    if (barrier.pending < arrivals) throw Fault("more arrivals than the barrier object expects");
    barrier.pending -= arrivals;
    m.settle(barrier);
  });
}

/// try_wait.parity.shared::cta.b64 p, [address], parity.
void look(Machine& m, Warp& w, const Op& op, Lanes lanes) {
  Lanes done = 0;
  for_lanes(lanes, [&](int l) {
    const auto address = static_cast<std::uint32_t>(address_of(w, op, 1, 0, l));
    m.shared(w, address, 8);
    const Mbarrier& barrier = Machine::mbarrier(*w.group, address);
    const auto parity = w.at<std::uint32_t>(op.at[2])[l];
    if (parity > 1) throw Fault("a parity is 0 or 1");
    done |= Lanes{barrier.phase % 2 != parity} << l;
  });
  Lanes& to = w.predicate(op.at[0]);
  to = (to & ~lanes) | done;
  w.gives_way = done != lanes;
}

void take_scope(Builder& b) {
  if (b.take("release") || b.take("acquire") || b.take("relaxed")) {
    if (!b.take("cta")) b.expect("cluster");
  }
  if (!b.take("shared::cta")) b.expect("shared");
  b.expect("b64");
  b.end_of_words();
}

void build_mbarrier(Builder& b) {
  if (b.take("try_wait") || b.take("test_wait")) {
    b.expect("parity");
    take_scope(b);
    b.output(b.operand(0), 0);
    b.address(1);
    b.input(2, Type::u32);
    // A fourth operand says how long the hardware may look.
    b.op.run = look;
    return;
  }
  Act what = init;
  if (b.take("inval")) {
    what = invalidate;
  } else if (b.take("arrive")) {
    what = b.take("expect_tx") ? arrive_expecting : arrive;
  } else if (b.take("expect_tx")) {
    what = expecting;
  } else {
    b.expect("init");
  }
  take_scope(b);
  std::size_t next = 0;
  if (what == arrive || what == arrive_expecting) {
    if (b.operand(0).kind == Operand::Kind::reg) b.output(0, Type::b64);
    ++next;
  }
  b.address(next++);
  if (b.operands() > next)
    b.input(next, Type::u32);
  else if (what != invalidate && what != arrive)
    b.unknown();
  b.op.number.push_back(what);
  b.op.run = act;
}

// ---- tensor maps ----

/// A tensor map as it lies in memory here: 128 bytes, of which NVIDIA says the fields alone.
struct TensorMap {
  std::uint64_t global_address;
  std::uint64_t global_stride[1];  ///< bytes from row to row
  std::uint32_t global_dim[2], box_dim[2], element_stride[2];
  std::uint32_t rank, elemtype, interleave_layout, swizzle_mode, fill_mode;
  std::uint32_t rest[17];  ///< 0
};
static_assert(sizeof(TensorMap) == 128);

struct Field {
  std::string_view name;
  std::size_t at, size;
  int count;  ///< of which the instruction names one; 0: it has no index
};
constexpr Field fields[] = {
    {"global_address", offsetof(TensorMap, global_address), 8, 0},
    {"rank", offsetof(TensorMap, rank), 4, 0},
    {"box_dim", offsetof(TensorMap, box_dim), 4, 2},
    {"global_dim", offsetof(TensorMap, global_dim), 4, 2},
    {"global_stride", offsetof(TensorMap, global_stride), 8, 1},
    {"element_stride", offsetof(TensorMap, element_stride), 4, 2},
    {"elemtype", offsetof(TensorMap, elemtype), 4, 0},
    {"interleave_layout", offsetof(TensorMap, interleave_layout), 4, 0},
    {"swizzle_mode", offsetof(TensorMap, swizzle_mode), 4, 0},
    {"fill_mode", offsetof(TensorMap, fill_mode), 4, 0},
};

/// tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [address], 0, value.
void build_replace(Builder& b) {
  b.expect("tile");
  const auto name = b.word();
  const auto* field = std::find_if(std::begin(fields), std::end(fields),
                                   [&](const Field& one) { return one.name == name; });
  if (field == std::end(fields)) b.unknown();
  b.expect("shared::cta");
  b.expect("b1024");
  b.expect(field->size == 8 ? "b64" : "b32");
  b.end_of_words();
  std::int64_t index = 0;
  if (field->count > 0) {
    index = b.literal(1);
    if (index < 0 || index >= field->count) b.unknown();  // of more dimensions
  }
  b.address(0);
  b.input(b.operand(field->count > 0 ? 2 : 1), field->size);
  b.op.number.push_back(static_cast<std::int64_t>(field->at) +
                        index * static_cast<std::int64_t>(field->size));
  b.op.number.push_back(static_cast<std::int64_t>(field->size));
  b.op.run = [](Machine& m, Warp& w, const Op& op, Lanes lanes) {
    for_lanes(lanes, [&](int l) {
      std::byte* map = m.shared(w, address_of(w, op, 0, 0, l), 128);
      const auto size = static_cast<std::size_t>(op.number[3]);
      const auto value = w.value(op.at[1], size, l);
      std::memcpy(map + op.number[2], &value, size);
    });
  };
}

/// tensormap.cp_fenceproxy...: from shared to global memory, for copies by it.
void build_publish(Builder& b) {
  for (const auto* word : {"cp_fenceproxy", "global", "shared::cta", "tensormap::generic",
                           "release", "gpu", "sync", "aligned"}) {
    b.expect(word);
  }
  b.end_of_words();
  b.address(0);
  b.address(1);
  if (b.literal(2) != 128) b.unknown();
  b.op.run = [](Machine& m, Warp& w, const Op& op, Lanes lanes) {
    Machine::require_all(w, lanes);
    const int lane = first_lane(lanes);
    std::memcpy(m.global(address_of(w, op, 0, 0, lane), 128),
                m.shared(w, address_of(w, op, 1, 2, lane), 128), 128);
  };
}

TensorMap map_at(Machine& m, std::uint64_t address) {
  TensorMap map;
  std::memcpy(&map, m.global(address, 128), sizeof(map));
  const auto check = [](bool is_right, const char* what) {
    if (!is_right) throw Fault(std::string("a tensor map: ") + what);
  };
  check(std::all_of(std::begin(map.rest), std::end(map.rest), [](auto word) { return word == 0; }),
        "it was not cleared before its fields were set");
  check(map.rank == 1, "two dimensions are expected, which is rank 1");
  check(map.elemtype == 1 || map.elemtype == 6 || map.elemtype == 10,
        "elements of 16 bits are expected (elemtype 1, 6 or 10)");
  check(map.interleave_layout == 0 && map.fill_mode == 0, "an interleave or a fill that is not 0");
  check(map.swizzle_mode == 3, "the swizzle of 128 bytes is expected (swizzle_mode 3)");
  check(map.element_stride[0] == 1 && map.element_stride[1] == 1,
        "an element stride that is not 1");
  check(map.global_address % 16 == 0, "the matrix is not aligned at 16 bytes");
  check(map.global_stride[0] % 16 == 0 && map.global_stride[0] < std::uint64_t{1} << 40,
        "a stride of rows that is no multiple of 16 bytes");
  check(map.box_dim[0] == 64, "a box of 64 elements, 128 bytes, is expected");
  check(map.box_dim[1] >= 1 && map.box_dim[1] <= 256, "a box has 1 to 256 rows");
  check(map.global_dim[0] >= 1 && map.global_dim[1] >= 1, "a matrix without elements");
  return map;
}

std::size_t bytes_of(const TensorMap& map) { return std::size_t{128} * map.box_dim[1]; }

/// cp.async.bulk.tensor.2d.shared::cluster.global{.tile}.mbarrier::complete_tx::bytes [to],
/// [map, {column, row}], [barrier].
void build_tensor_copy(Builder& b) {
  for (const auto* word : {"async", "bulk", "tensor", "2d"}) b.expect(word);
  if (!b.take("shared::cta")) b.expect("shared::cluster");
  b.expect("global");
  b.take("tile");
  b.expect("mbarrier::complete_tx::bytes");
  b.end_of_words();
  const auto& from = b.operand(1);
  if (from.list.size() != 2 || b.operands() != 3) b.unknown();
  b.address(0);
  b.address(1);
  b.address(2);
  for (const auto& one : from.list) b.input(one, 4);
  b.op.run = [](Machine& m, Warp& w, const Op& op, Lanes lanes) {
    for_lanes(lanes, [&](int l) {
      Flight flight;
      flight.group = w.group;
      flight.to = static_cast<std::uint32_t>(address_of(w, op, 0, 0, l));
      flight.map = address_of(w, op, 1, 2, l);
      flight.mbarrier = static_cast<std::uint32_t>(address_of(w, op, 2, 4, l));
      flight.at = {w.at<std::int32_t>(op.at[3])[l], w.at<std::int32_t>(op.at[4])[l]};
      if (w.acquired.count(flight.map) == 0) {
        throw Fault("a tensor map that the device made, without fence.proxy.tensormap before it");
      }
      const TensorMap map = map_at(m, flight.map);
      if (flight.to % 1024 != 0) throw Fault("a swizzled box that does not begin at 1024 bytes");
      m.shared(w, flight.to, 1024);
      m.shared(w, flight.to + bytes_of(map) - 1, 1);
      if (!Machine::mbarrier(*w.group, flight.mbarrier).is_published) {
        throw Fault("a barrier object that copies do not see: no fence.mbarrier_init");
      }
      m.fly(flight);
    });
  };
}

}  // namespace

Mbarrier& Machine::mbarrier(Group& group, std::uint32_t address) {
  const auto found = group.mbarriers.find(address);
  if (found == group.mbarriers.end()) throw Fault("a barrier object that was not initialised");
  return found->second;
}

void Machine::settle(Mbarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.pending = barrier.count;
  has_progress_ = true;
}

void Machine::fly(Flight flight) {
  const auto bytes = bytes_of(map_at(*this, flight.map));
  auto& group = *flight.group;
  const auto first = group.ordinary.begin() + flight.to;
  if (std::any_of(first, first + static_cast<std::ptrdiff_t>(bytes),
                  [](auto who) { return who != 0; })) {
    throw Fault("a box goes where an ordinary store wrote, without fence.proxy.async");
  }
  std::memset(group.shared.data() + flight.to, 0xFF, bytes);
  flight.turns = is_early() ? 0 : static_cast<int>(random() / 3 % 40);
  flights_.push_back(flight);
}

void Machine::deliver() {
  std::vector<Flight> later;
  std::vector<Flight> now;
  for (auto& flight : flights_) (flight.turns-- > 0 ? later : now).push_back(flight);
  flights_ = std::move(later);
  for (const auto& flight : now) {
    const TensorMap map = map_at(*this, flight.map);
    Group& group = *flight.group;
    for (std::uint32_t row = 0; row < map.box_dim[1]; ++row) {
      std::uint16_t line[64] = {};  // zeros outside the matrix
      const std::int64_t y = std::int64_t{flight.at[1]} + row;
      if (y >= 0 && y < map.global_dim[1]) {
        for (int i = 0; i < 64; ++i) {
          const std::int64_t x = std::int64_t{flight.at[0]} + i;
          if (x < 0 || x >= map.global_dim[0]) continue;
          const auto address = map.global_address +
                               static_cast<std::uint64_t>(y) * map.global_stride[0] +
                               2 * static_cast<std::uint64_t>(x);
          std::memcpy(&line[i], mapped(address, 2), 2);
        }
      }
      for (std::uint32_t i = 0; i < 8; ++i) {
        const auto to = swizzled(flight.to + row * 128 + i * 16);
        std::memcpy(group.shared.data() + to, reinterpret_cast<const std::byte*>(line) + i * 16,
                    16);
      }
    }
    Mbarrier& barrier = mbarrier(group, flight.mbarrier);
    barrier.bytes -= static_cast<std::int64_t>(bytes_of(map));
    if (barrier.bytes < 0 && barrier.pending == 0) {
      throw Fault(code.entry.signature.name + ": more bytes came than a barrier object expects");
    }
    settle(barrier);
    has_progress_ = true;
  }
}

bool build_bulk(Builder& b) {
  const auto head = b.head();
  if (head == "mbarrier") {
    build_mbarrier(b);
  } else if (head == "tensormap") {
    if (b.take("replace"))
      build_replace(b);
    else
      build_publish(b);
  } else if (head == "cp" && b.has("tensor")) {
    build_tensor_copy(b);
  } else if (head == "cp" && (b.has("commit_group") || b.has("wait_group"))) {
    // They wait for bulk stores, and the interpreter knows no bulk store.
    b.op.run = [](Machine&, Warp&, const Op&, Lanes) {};
  } else {
    return false;
  }
  return true;
}

}  // namespace tessera_ptx
