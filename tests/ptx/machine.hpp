// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "program.hpp"

namespace tessera_ptx {

using Lanes = std::uint32_t;  ///< a bit for each lane of a warp
constexpr Lanes all_lanes = ~Lanes{0};

class Machine;
struct Warp;

/// An instruction, made ready to run.
struct Op {
  using Run = void (*)(Machine&, Warp&, const Op&, Lanes);
  Run run = nullptr;
  std::vector<std::uint32_t> at;  ///< places of its registers, those that it writes first
  std::size_t outputs = 0;        ///< how many of them
  std::vector<std::int64_t> number;
  std::int64_t guard = -1;  ///< the place of a predicate
  bool guard_is_not = false;
  std::size_t target = 0, meet = 0;  ///< of a branch: where it goes, where its sides meet again
  /// Registers that a wgmma adds to, by index: others' that it touches, the written ones first, and
  /// its own.
  std::vector<std::uint32_t> sums, own_sums;
  std::size_t sums_written = 0;
  const Statement* statement = nullptr;
};

/// A kernel with its instructions made ready.
struct Code {
  Entry entry;
  std::vector<Op> ops;
  std::map<std::uint32_t, std::uint32_t> sums;  ///< wgmma's: index by place
};
/// Throws Fault where an instruction is not known.
Code prepare(Entry entry);

/// 16 bytes or fewer on their way from global to shared memory.
struct Copy {
  std::uint32_t to = 0;
  std::uint64_t from = 0;
  std::uint32_t size = 0, bytes = 0;  ///< of the place; of what is read, zeros follow
};

/// A wgmma that a warp has begun.
struct Product {
  const Op* op = nullptr;
  std::uint64_t a = 0, b = 0;  ///< descriptors
  bool adds = false;
};

/// The hardware's barrier object in shared memory.
struct Mbarrier {
  std::int64_t count = 0, pending = 0, bytes = 0;
  std::uint64_t phase = 0;
  bool is_published = false;  ///< by fence.mbarrier_init: copies see it
};

struct Barrier {
  std::uint32_t arrived = 0, expected = 0;  ///< work-items; expected 0: all
  std::uint64_t phase = 0;
};

struct Group {
  std::array<std::uint32_t, 3> id{};
  std::vector<std::byte> shared;
  /// [byte of shared memory]: index + 1 of the warp that wrote it by an ordinary store after its
  /// last proxy fence; 0: none.
  std::vector<std::uint8_t> ordinary;
  std::map<std::uint32_t, Mbarrier> mbarriers;
  std::array<Barrier, 16> barriers{};
  std::vector<std::unique_ptr<Warp>> warps;
  std::map<std::pair<unsigned, std::size_t>, Product> products;  ///< by warpgroup and number
  std::size_t items = 0;
};

struct Warp {
  struct Frame {
    std::size_t at, meet;  ///< the next instruction; where these lanes wait for others
    Lanes lanes;
  };
  Group* group = nullptr;
  unsigned index = 0;
  Lanes live = 0;
  std::vector<Frame> stack;
  std::vector<std::byte> registers;
  std::vector<std::byte> local;  ///< [lane][byte]
  int waits_at = -1;             ///< a barrier's number
  std::uint64_t waits_for = 0;   ///< its phase
  bool gives_way = false;        ///< it looked for what has not come
  std::vector<Copy> copies;
  std::deque<std::vector<Copy>> copy_groups;
  std::vector<Product> products;
  std::deque<std::vector<Product>> product_groups;
  std::size_t product_count = 0;
  std::vector<std::uint8_t> in_flight, touched;  ///< by index of a sum
  std::set<std::uint64_t> acquired;              ///< tensor maps
  std::int64_t most_registers = 0;               ///< setmaxnreg; 0: not said

  template <class T>
  T* at(std::uint32_t place) {
    return reinterpret_cast<T*>(registers.data() + place);
  }
  Lanes& predicate(std::uint32_t place) { return *at<Lanes>(place); }
  std::uint64_t value(std::uint32_t place, std::size_t bytes, int lane) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, registers.data() + place + static_cast<std::size_t>(lane) * bytes, bytes);
    return bits;
  }
  void set_value(std::uint32_t place, std::size_t bytes, int lane, std::uint64_t bits) {
    std::memcpy(registers.data() + place + static_cast<std::size_t>(lane) * bytes, &bits, bytes);
  }
};

/// A box of a matrix on its way to shared memory.
struct Flight {
  int turns = 0;
  Group* group = nullptr;
  std::uint32_t to = 0, mbarrier = 0;
  std::array<std::int32_t, 2> at{};
  std::uint64_t map = 0;
};

/// One launch.
class Machine {
 public:
  Machine(const Code& code, const Launch& launch, const std::vector<std::byte>& constants);
  std::uint64_t run();

  // For instructions.
  std::byte* global(std::uint64_t address, std::size_t bytes);
  /// By a tensor map.
  const std::byte* mapped(std::uint64_t address, std::size_t bytes);
  std::byte* shared(Warp& warp, std::uint64_t address, std::size_t bytes);
  std::byte* local(Warp& warp, int lane, std::uint64_t address, std::size_t bytes);
  const std::byte* parameter(std::uint64_t address, std::size_t bytes) const;
  /// An ordinary store to shared memory.
  void stored(Warp& warp, std::uint64_t address, std::size_t bytes);
  /// All lanes that have not left must be there.
  static void require_all(const Warp& warp, Lanes lanes);
  bool is_early() { return pace_ == 0 || (pace_ == 1 && (random_() & 1) != 0); }
  std::uint32_t random() { return static_cast<std::uint32_t>(random_()); }
  void progress() { has_progress_ = true; }
  void arrive_at(Warp& warp, unsigned number, std::uint32_t expected, bool waits);
  void fly(Flight flight);
  /// Lets all but the last `left` groups of copies, or of products, arrive.
  void finish_copies(Warp& warp, std::size_t left);
  void finish_products(Warp& warp, std::size_t left);
  static Mbarrier& mbarrier(Group& group, std::uint32_t address);
  void settle(Mbarrier& barrier);

  const Code& code;

 private:
  void start_group();
  void turn(Warp& warp);
  void step(Warp& warp, const Op& op);
  void leave(Warp& warp, Lanes lanes);
  void end(Group& group);
  void settle(Group& group, unsigned number);
  void deliver();
  void check_sums(Warp& warp, const Op& op) const;

  const Launch& launch_;
  std::vector<Span> memory_;  // by address
  std::size_t last_span_ = 0;
  std::vector<std::byte> parameters_;
  std::map<std::size_t, std::uint32_t> local_arguments_;
  std::size_t shared_bytes_ = 0;
  std::minstd_rand random_;
  unsigned pace_ = 0;  // copies arrive early, at random, or late
  std::uint64_t next_group_ = 0, groups_ = 0, instructions_ = 0;
  std::vector<std::unique_ptr<Group>> running_;
  std::vector<Flight> flights_;
  bool has_progress_ = false;
};

}  // namespace tessera_ptx
