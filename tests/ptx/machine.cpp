// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <algorithm>
#include <string>

namespace tessera_ptx {
namespace {

std::string place_of(const Warp& warp) {
  const auto& id = warp.group->id;
  return " (group " + std::to_string(id[0]) + ", " + std::to_string(id[1]) + ", " +
         std::to_string(id[2]) + ", warp " + std::to_string(warp.index) + ")";
}

/// Kernels of tests have at most some millions.
constexpr std::uint64_t most_instructions = 4'000'000'000;
/// Turns in which no warp stored, arrived, met others or left.
constexpr int most_idle_turns = 4000;
constexpr std::size_t groups_at_once = 2;
constexpr std::size_t most_shared = 232448;  // of a group on sm_90

}  // namespace

Machine::Machine(const Code& ready, const Launch& launch, const std::vector<std::byte>& constants)
    : code(ready), launch_(launch), memory_(launch.memory), random_(launch.seed * 2 + 1) {
  pace_ = random() / 7 % 3;
  if (!constants.empty()) {
    memory_.push_back({const_cast<std::byte*>(constants.data()), constants.size()});
  }
  std::sort(memory_.begin(), memory_.end(),
            [](const Span& a, const Span& b) { return a.data < b.data; });
  const auto& entry = code.entry;
  const auto& signature = entry.signature;
  if (launch.arguments.size() != signature.parameters.size()) {
    throw Fault(signature.name + " has " + std::to_string(signature.parameters.size()) +
                " parameters, and " + std::to_string(launch.arguments.size()) + " arguments came");
  }
  for (int axis = 0; axis < 3; ++axis) {
    const auto items = signature.required_items[axis];
    if (items != 0 && items != launch.items[axis]) {
      throw Fault(signature.name + " was launched with another work-group than .reqntid says");
    }
  }
  shared_bytes_ = first_shared + signature.shared_bytes;
  parameters_.resize(entry.parameter_bytes);
  for (std::size_t i = 0; i < launch.arguments.size(); ++i) {
    std::byte* to = parameters_.data() + entry.parameter_at[i];
    const auto& argument = launch.arguments[i];
    if (signature.parameters[i].kind == Parameter::Kind::local) {
      shared_bytes_ = (shared_bytes_ + 15) / 16 * 16;
      const std::uint64_t address = shared_bytes_;
      std::memcpy(to, &address, 8);
      shared_bytes_ += argument.local_bytes;
    } else {
      if (argument.value.size() != signature.parameters[i].bytes) {
        throw Fault(signature.name + ": argument " + std::to_string(i) + " has " +
                    std::to_string(argument.value.size()) + " bytes, not " +
                    std::to_string(signature.parameters[i].bytes));
      }
      std::memcpy(to, argument.value.data(), argument.value.size());
    }
  }
  if (shared_bytes_ > first_shared + most_shared) {
    throw Fault(signature.name + " needs more shared memory than a group has");
  }
  groups_ = launch.groups[0] * launch.groups[1] * launch.groups[2];
}

std::byte* Machine::global(std::uint64_t address, std::size_t bytes) {
  auto* const at = reinterpret_cast<std::byte*>(address);
  const auto holds = [&](const Span& span) {
    return at >= span.data && at + bytes <= span.data + span.bytes;
  };
  if (memory_.empty() || !holds(memory_[last_span_])) {
    const auto next = std::upper_bound(memory_.begin(), memory_.end(), at,
                                       [](auto* a, const Span& span) { return a < span.data; });
    if (next == memory_.begin() || !holds(*(next - 1))) {
      throw Fault("global memory outside buffers");
    }
    last_span_ = static_cast<std::size_t>(next - 1 - memory_.begin());
  }
  if (address % bytes != 0) throw Fault("misaligned in global memory");
  return at;
}

const std::byte* Machine::mapped(std::uint64_t address, std::size_t bytes) {
  const auto* const at = reinterpret_cast<const std::byte*>(address);
  for (const auto& span : launch_.mapped) {
    if (at >= span.data && at + bytes <= span.data + span.bytes) return at;
  }
  return global(address, bytes);
}

std::byte* Machine::shared(Warp& warp, std::uint64_t address, std::size_t bytes) {
  if (address < first_shared || address + bytes > warp.group->shared.size()) {
    throw Fault("shared memory outside that of the group");
  }
  if (address % bytes != 0) throw Fault("misaligned in shared memory");
  return warp.group->shared.data() + address;
}

std::byte* Machine::local(Warp& warp, int lane, std::uint64_t address, std::size_t bytes) {
  const auto size = code.entry.local_bytes;
  if (address + bytes > size) throw Fault("local memory outside that of the work-item");
  if (address % bytes != 0) throw Fault("misaligned in local memory");
  return warp.local.data() + static_cast<std::size_t>(lane) * size + address;
}

const std::byte* Machine::parameter(std::uint64_t address, std::size_t bytes) const {
  if (address + bytes > parameters_.size()) throw Fault("outside the parameters");
  return parameters_.data() + address;
}

void Machine::stored(Warp& warp, std::uint64_t address, std::size_t bytes) {
  std::memset(warp.group->ordinary.data() + address, static_cast<int>(warp.index + 1), bytes);
}

void Machine::require_all(const Warp& warp, Lanes lanes) {
  if (lanes != warp.live) throw Fault("the warp's lanes are not together");
}

void Machine::start_group() {
  auto group = std::make_unique<Group>();
  const auto number = next_group_++;
  const auto& sizes = launch_.groups;
  group->id = {static_cast<std::uint32_t>(number % sizes[0]),
               static_cast<std::uint32_t>(number / sizes[0] % sizes[1]),
               static_cast<std::uint32_t>(number / sizes[0] / sizes[1])};
  group->shared.assign(shared_bytes_, std::byte{0xFF});
  group->ordinary.assign(shared_bytes_, 0);
  const auto& items = launch_.items;
  group->items = items[0] * items[1] * items[2];
  const auto& entry = code.entry;
  for (unsigned w = 0; w * warp_size < group->items; ++w) {
    auto warp = std::make_unique<Warp>();
    warp->group = group.get();
    warp->index = w;
    const auto here = std::min<std::size_t>(warp_size, group->items - w * warp_size);
    warp->live = here == warp_size ? all_lanes : (Lanes{1} << here) - 1;
    warp->stack.push_back({0, code.ops.size(), warp->live});
    warp->registers = entry.image;
    warp->local.assign(entry.local_bytes * warp_size, std::byte{0xFF});
    warp->in_flight.assign(code.sums.size(), 0);
    warp->touched.assign(code.sums.size(), 1);
    for (unsigned lane = 0; lane < warp_size; ++lane) {
      const auto item = w * warp_size + lane;
      const auto set = [&](Special special, int axis, std::size_t value) {
        warp->set_value(entry.special_at[static_cast<int>(special) + axis], 4,
                        static_cast<int>(lane), value);
      };
      const std::size_t id[3] = {item % items[0], item / items[0] % items[1],
                                 item / items[0] / items[1]};
      for (int axis = 0; axis < 3; ++axis) {
        set(Special::tid, axis, id[axis]);
        set(Special::ntid, axis, items[axis]);
        set(Special::ctaid, axis, group->id[axis]);
        set(Special::nctaid, axis, sizes[axis]);
      }
      set(Special::laneid, 0, lane);
      set(Special::warpid, 0, w);
    }
    group->warps.push_back(std::move(warp));
  }
  running_.push_back(std::move(group));
}

std::uint64_t Machine::run() {
  int idle = 0;
  std::vector<Warp*> ready;
  while (next_group_ < groups_ || !running_.empty()) {
    while (next_group_ < groups_ && running_.size() < groups_at_once) start_group();
    ready.clear();
    for (const auto& group : running_) {
      for (const auto& warp : group->warps) {
        if (warp->live != 0 && warp->waits_at < 0) ready.push_back(warp.get());
      }
    }
    has_progress_ = false;
    if (!ready.empty()) {
      turn(*ready[random() / 3 % ready.size()]);
    }
    if (!flights_.empty()) deliver();
    for (std::size_t i = 0; i < running_.size();) {
      Group& group = *running_[i];
      const bool is_done = std::all_of(group.warps.begin(), group.warps.end(),
                                       [](const auto& warp) { return warp->live == 0; });
      if (!is_done) {
        ++i;
        continue;
      }
      end(group);
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      has_progress_ = true;
    }
    idle = has_progress_ ? 0 : idle + 1;
    if (idle > most_idle_turns || (ready.empty() && !has_progress_ && flights_.empty())) {
      throw Fault(code.entry.signature.name + ": all wait for each other: a deadlock");
    }
    if (instructions_ > most_instructions) {
      throw Fault(code.entry.signature.name + " does not end");
    }
  }
  return instructions_;
}

void Machine::turn(Warp& warp) {
  warp.gives_way = false;
  // Some turns are long, so that a warp runs far ahead of others.
  const auto length = random() / 5 % 8 == 0 ? 4096 : 1 + random() / 5 % 256;
  for (std::size_t i = 0; i < length && warp.live != 0; ++i) {
    while (warp.stack.back().lanes == 0 || warp.stack.back().at == warp.stack.back().meet) {
      warp.stack.pop_back();
      if (warp.stack.empty()) {
        leave(warp, warp.live);
        return;
      }
    }
    auto& frame = warp.stack.back();
    if (frame.at >= code.ops.size()) {
      leave(warp, frame.lanes);
      continue;
    }
    const Op& op = code.ops[frame.at];
    try {
      step(warp, op);
    } catch (const Fault& fault) {
      throw Fault(code.entry.signature.name + ", \"" + op.statement->text + "\" (line " +
                  std::to_string(op.statement->line) + "): " + fault.what() + place_of(warp));
    }
    if (warp.waits_at >= 0 || warp.gives_way) return;
  }
}

void Machine::step(Warp& warp, const Op& op) {
  ++instructions_;
  auto& frame = warp.stack.back();
  const Lanes here = frame.lanes;
  Lanes lanes = here;
  if (op.guard >= 0) {
    const Lanes guard = warp.predicate(static_cast<std::uint32_t>(op.guard));
    lanes &= op.guard_is_not ? ~guard : guard;
  }
  ++frame.at;
  if (op.run != nullptr) {
    if (lanes == 0) return;
    if (!op.sums.empty()) check_sums(warp, op);
    op.run(*this, warp, op, lanes);
    return;
  }
  // A branch, or the end.
  if (op.statement->words.front() != "bra") {
    if (lanes != 0) leave(warp, lanes);
    return;
  }
  if (lanes == here) {
    frame.at = op.target;
  } else if (lanes != 0) {
    // Lanes meet again behind both sides, of which either may come first.
    Warp::Frame taken{op.target, op.meet, lanes}, other{frame.at, op.meet, here & ~lanes};
    frame.at = op.meet;
    if ((random() & 64) != 0) std::swap(taken, other);
    warp.stack.push_back(taken);
    warp.stack.push_back(other);
  }
}

void Machine::check_sums(Warp& warp, const Op& op) const {
  for (std::size_t i = 0; i < op.sums.size(); ++i) {
    const auto sum = op.sums[i];
    if (warp.in_flight[sum] != 0) throw Fault("a register of a wgmma that has not been waited for");
    if (i < op.sums_written) warp.touched[sum] = 1;
  }
}

void Machine::leave(Warp& warp, Lanes lanes) {
  has_progress_ = true;
  warp.live &= ~lanes;
  for (auto& frame : warp.stack) frame.lanes &= ~lanes;
  if (warp.live != 0) return;
  if (!warp.products.empty() || !warp.product_groups.empty()) {
    throw Fault(code.entry.signature.name + ": a warp left with a wgmma in flight" +
                place_of(warp));
  }
  // Groups whose copies arrived early are empty.
  const bool has_copies = std::any_of(warp.copy_groups.begin(), warp.copy_groups.end(),
                                      [](const auto& group) { return !group.empty(); });
  if (!warp.copies.empty() || has_copies) {
    throw Fault(code.entry.signature.name + ": a warp left with copies that it did not wait for" +
                place_of(warp));
  }
  for (unsigned i = 0; i < warp.group->barriers.size(); ++i) settle(*warp.group, i);
}

void Machine::end(Group& group) {
  for (const auto& [address, barrier] : group.mbarriers) {
    if (barrier.bytes != 0) {
      throw Fault(code.entry.signature.name + ": a group ended while bytes were on their way");
    }
  }
  for (const auto& flight : flights_) {
    if (flight.group == &group) {
      throw Fault(code.entry.signature.name + ": a group ended with a copy in flight");
    }
  }
  for (const auto& barrier : group.barriers) {
    if (barrier.arrived != 0) {
      throw Fault(code.entry.signature.name + ": a group ended with a barrier half full");
    }
  }
  std::int64_t registers = 0;
  for (const auto& warp : group.warps) registers += warp->most_registers * warp_size;
  if (registers > 65536) {
    throw Fault(code.entry.signature.name + ": setmaxnreg asks for more registers than there are");
  }
}

void Machine::arrive_at(Warp& warp, unsigned number, std::uint32_t expected, bool waits) {
  Group& group = *warp.group;
  if (number >= group.barriers.size()) throw Fault("there are 16 barriers");
  Barrier& barrier = group.barriers[number];
  if (expected % warp_size != 0) throw Fault("a barrier for a part of a warp");
  if (barrier.arrived != 0 && barrier.expected != expected) {
    throw Fault("warps expect different numbers at a barrier");
  }
  barrier.expected = expected;
  barrier.arrived += warp_size;
  if (waits) {
    warp.waits_at = static_cast<int>(number);
    warp.waits_for = barrier.phase + 1;
  }
  settle(group, number);
}

void Machine::settle(Group& group, unsigned number) {
  Barrier& barrier = group.barriers[number];
  if (barrier.arrived == 0) return;
  std::uint32_t live = 0;
  for (const auto& warp : group.warps) live += warp->live != 0 ? warp_size : 0;
  const auto expected = barrier.expected != 0 ? barrier.expected : live;
  if (barrier.arrived < expected) return;
  barrier.arrived = 0;
  ++barrier.phase;
  has_progress_ = true;
  for (const auto& warp : group.warps) {
    if (warp->waits_at == static_cast<int>(number) && warp->waits_for <= barrier.phase) {
      warp->waits_at = -1;
    }
  }
}

}  // namespace tessera_ptx
