// SPDX-License-Identifier: Apache-2.0
// Barriers, fences, and what lanes tell each other.
#include "builder.hpp"
#include "layouts.hpp"

namespace tessera_ptx {
namespace {

void nothing(Machine&, Warp&, const Op&, Lanes) {}

/// bar.sync number, items; bar.arrive; bar.warp.sync lanes.
void build_barrier(Builder& b) {
  b.take("cta");
  if (b.take("warp")) {
    b.expect("sync");
    b.end_of_words();
    b.input(0, Type::b32);
    b.op.run = [](Machine&, Warp& w, const Op& op, Lanes lanes) {
      const Lanes wanted = w.at<Lanes>(op.at[0])[first_lane(lanes)] & w.live;
      if (lanes != wanted) throw Fault("the warp's lanes are not together");
    };
    return;
  }
  const bool waits = b.take("sync");
  if (!waits) b.expect("arrive");
  b.take("aligned");
  b.end_of_words();
  b.input(0, Type::u32);
  if (b.operands() > 1)
    b.input(1, Type::u32);
  else if (!waits)
    b.unknown();
  b.op.number = {waits};
  b.op.run = [](Machine& m, Warp& w, const Op& op, Lanes lanes) {
    Machine::require_all(w, lanes);
    const int lane = first_lane(lanes);
    const auto items = op.at.size() > 1 ? w.at<std::uint32_t>(op.at[1])[lane] : 0;
    m.arrive_at(w, w.at<std::uint32_t>(op.at[0])[lane], items, op.number[0] != 0);
  };
}

/// Memory is one for all here; of fences those between ordinary and bulk accesses count.
void build_fence(Builder& b) {
  if (b.head() == "membar") {
    if (!b.take("cta") && !b.take("gl")) b.expect("sys");
    b.end_of_words();
    b.op.run = nothing;
    return;
  }
  if (b.take("proxy")) {
    if (b.take("async")) {
      if (!b.take("shared::cta")) b.take("global");
      b.end_of_words();
      b.op.run = [](Machine&, Warp& w, const Op&, Lanes) {
        for (auto& who : w.group->ordinary) {
          if (who == w.index + 1) who = 0;
        }
      };
      return;
    }
    b.expect("tensormap::generic");
    b.expect("acquire");
    b.expect("gpu");
    b.end_of_words();
    b.address(0);
    if (b.literal(1) != 128) b.unknown();
    b.op.run = [](Machine&, Warp& w, const Op& op, Lanes lanes) {
      for_lanes(lanes, [&](int l) { w.acquired.insert(address_of(w, op, 0, 0, l)); });
    };
    return;
  }
  if (b.take("mbarrier_init")) {
    b.expect("release");
    b.expect("cluster");
    b.end_of_words();
    b.op.run = [](Machine&, Warp& w, const Op&, Lanes) {
      for (auto& [address, barrier] : w.group->mbarriers) barrier.is_published = true;
    };
    return;
  } else {
    if (!b.take("acq_rel")) b.expect("sc");
    if (!b.take("cta") && !b.take("cluster") && !b.take("gpu")) b.expect("sys");
  }
  b.end_of_words();
  b.op.run = nothing;
}

/// shfl.sync.bfly.b32 to|inside, from, by, clamp, lanes.
void build_shuffle(Builder& b) {
  b.expect("sync");
  const auto how = b.word();
  static constexpr std::string_view hows[] = {"up", "down", "bfly", "idx"};
  std::int64_t code = 0;
  while (hows[code] != how) {
    if (++code == 4) b.unknown();
  }
  b.expect("b32");
  b.end_of_words();
  const Operand& to = b.operand(0);
  const bool is_list = to.kind == Operand::Kind::list;
  b.output(is_list ? to.list.at(0) : to, 4);
  if (is_list) b.output(to.list.at(1), 0);
  for (std::size_t i = 1; i < 5; ++i) b.input(i, Type::b32);
  b.op.number = {code};
  b.op.run = [](Machine&, Warp& w, const Op& op, Lanes lanes) {
    const auto* input = op.at.data() + op.outputs;
    const auto from = [&](int i, int lane) { return w.at<std::uint32_t>(input[i])[lane]; };
    if (lanes != (from(3, first_lane(lanes)) & w.live)) {
      throw Fault("the warp's lanes are not together");
    }
    std::uint32_t result[warp_size];
    Lanes inside = 0;
    for_lanes(lanes, [&](int l) {
      const int by = static_cast<int>(from(1, l) & 31), clamp = static_cast<int>(from(2, l) & 31);
      const int segment = static_cast<int>(from(2, l) >> 8 & 31);
      const int least = l & segment, most = least | (clamp & ~segment);
      int source = l;
      bool is_inside = false;
      switch (op.number[0]) {
        case 0:
          source = l - by;
          is_inside = source >= most;
          break;
        case 1:
          source = l + by;
          is_inside = source <= most;
          break;
        case 2:
          source = l ^ by;
          is_inside = source <= most;
          break;
        default:
          source = least | (by & ~segment);
          is_inside = source <= most;
      }
      if (!is_inside) source = l;
      if ((lanes >> source & 1) == 0) throw Fault("a shuffle from a lane that is not there");
      result[l] = from(0, source);
      inside |= Lanes{is_inside} << l;
    });
    for_lanes(lanes, [&](int l) { w.at<std::uint32_t>(op.at[0])[l] = result[l]; });
    if (op.outputs < 2) return;
    Lanes& p = w.predicate(op.at[1]);
    p = (p & ~lanes) | inside;
  };
}

/// vote.sync.any.pred p, q, lanes; vote.sync.ballot.b32 d, q, lanes.
void build_vote(Builder& b) {
  b.expect("sync");
  const std::int64_t how = b.take("any") ? 0 : b.take("all") ? 1 : 2;
  if (how == 2) b.expect("ballot");
  const Type type = b.type();
  b.end_of_words();
  if ((type == Type::pred) != (how != 2)) b.unknown();
  b.output(0, type);
  b.input(b.operand(1), 0);
  b.input(2, Type::b32);
  b.op.number = {how, b.operand(1).is_not};
  b.op.run = [](Machine&, Warp& w, const Op& op, Lanes lanes) {
    if (lanes != (w.at<Lanes>(op.at[2])[first_lane(lanes)] & w.live)) {
      throw Fault("the warp's lanes are not together");
    }
    const Lanes p = w.predicate(op.at[1]);
    const Lanes votes = (op.number[1] != 0 ? ~p : p) & lanes;
    if (op.number[0] == 2) {
      for_lanes(lanes, [&](int l) { w.at<Lanes>(op.at[0])[l] = votes; });
      return;
    }
    const bool result = op.number[0] == 0 ? votes != 0 : votes == lanes;
    Lanes& to = w.predicate(op.at[0]);
    to = (to & ~lanes) | (result ? lanes : 0);
  };
}

/// setmaxnreg.inc.sync.aligned.u32 232.
void build_registers(Builder& b, const Entry& entry) {
  if (!b.take("inc")) b.expect("dec");
  b.expect("sync");
  b.expect("aligned");
  b.expect("u32");
  b.end_of_words();
  const auto count = b.literal(0);
  if (count < 24 || count > 256 || count % 8 != 0) {
    throw Fault("setmaxnreg takes a multiple of 8 from 24 to 256, not " + std::to_string(count));
  }
  if (!entry.limits_registers) {
    throw Fault("setmaxnreg has no effect without .reqntid and .minnctapersm or .maxnreg");
  }
  b.op.number = {count};
  b.op.run = [](Machine&, Warp& w, const Op& op, Lanes lanes) {
    Machine::require_all(w, lanes);
    w.most_registers = op.number[0];
  };
}

}  // namespace

bool build_order(Builder& b, const Entry& entry) {
  const auto head = b.head();
  if (head == "bar" || head == "barrier") {
    build_barrier(b);
  } else if (head == "fence" || head == "membar") {
    build_fence(b);
  } else if (head == "shfl") {
    build_shuffle(b);
  } else if (head == "vote") {
    build_vote(b);
  } else if (head == "setmaxnreg") {
    build_registers(b, entry);
  } else {
    return false;
  }
  return true;
}

}  // namespace tessera_ptx
