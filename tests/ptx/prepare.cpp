// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "builder.hpp"

namespace tessera_ptx {
namespace {

/// Branches and ends of a kernel, which the machine runs itself.
bool is_flow(const Builder& b) {
  return b.head() == "bra" || b.head() == "ret" || b.head() == "exit";
}

bool build(Builder& b, const Entry& entry) {
  if (is_flow(b)) return true;
  return build_arithmetic(b) || build_memory(b) || build_order(b, entry) || build_matrix(b) ||
         build_bulk(b);
}

/// For each branch the nearest instruction that all ways from it pass, or the end: its nearest
/// common post-dominator (Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm").
void set_meeting_points(std::vector<Op>& ops) {
  const std::size_t end = ops.size();
  const auto ways = [&](std::size_t i) {
    const Op& op = ops[i];
    const auto& head = op.statement->words.front();
    std::vector<std::size_t> to;
    if (op.run != nullptr || op.guard >= 0) to.push_back(i + 1);
    if (op.run == nullptr) to.push_back(head == "bra" ? op.target : end);
    return to;
  };
  // Backwards from the end, each instruction behind those that it leads to where that can be.
  std::vector<std::vector<std::size_t>> from(end + 1);
  for (std::size_t i = 0; i < end; ++i) {
    for (const auto to : ways(i)) from[to].push_back(i);
  }
  std::vector<std::size_t> order, number(end + 1, 0), next(end + 1, 0), stack{end};
  std::vector<bool> is_seen(end + 1, false);
  is_seen[end] = true;
  while (!stack.empty()) {
    const auto at = stack.back();
    if (next[at] < from[at].size()) {
      const auto before = from[at][next[at]++];
      if (is_seen[before]) continue;
      is_seen[before] = true;
      stack.push_back(before);
    } else {
      number[at] = order.size();
      order.push_back(at);
      stack.pop_back();
    }
  }
  constexpr std::size_t none = ~std::size_t{0};
  std::vector<std::size_t> meet(end + 1, none);
  meet[end] = end;
  for (bool changes = true; changes;) {
    changes = false;
    for (auto at = order.rbegin(); at != order.rend(); ++at) {
      if (*at == end) continue;
      std::size_t common = none;
      for (auto way : ways(*at)) {
        if (meet[way] == none) continue;
        if (common == none) {
          common = way;
          continue;
        }
        while (way != common) {
          while (number[way] < number[common]) way = meet[way];
          while (number[common] < number[way]) common = meet[common];
        }
      }
      if (meet[*at] != common) {
        meet[*at] = common;
        changes = true;
      }
    }
  }
  for (std::size_t i = 0; i < end; ++i) ops[i].meet = meet[i] == none ? end : meet[i];
}

/// Finds the registers that wgmma adds to, and the instructions that touch them.
void set_sums(Code& code) {
  const auto is_product = [](const Op& op) {
    const auto& words = op.statement->words;
    return words.front() == "wgmma" && words[1] == "mma_async";
  };
  for (const auto& op : code.ops) {
    if (!is_product(op)) continue;
    for (std::size_t i = 0; i < op.outputs; ++i) {
      code.sums.try_emplace(op.at[i], static_cast<std::uint32_t>(code.sums.size()));
    }
  }
  if (code.sums.empty()) return;
  for (auto& op : code.ops) {
    for (std::size_t i = 0; i < op.at.size(); ++i) {
      const auto found = code.sums.find(op.at[i]);
      if (found == code.sums.end()) continue;
      if (is_product(op)) {
        op.own_sums.push_back(found->second);
        continue;
      }
      op.sums.push_back(found->second);
      if (i < op.outputs) ++op.sums_written;
    }
  }
}

}  // namespace

std::uint32_t Builder::place(const Operand& operand, std::size_t bytes) {
  if (operand.kind == Operand::Kind::reg) {
    if (operand.bytes != bytes) unknown();
    return operand.place;
  }
  if (operand.kind != Operand::Kind::literal) unknown();
  if (bytes == 0) return entry_.literal(0, operand.bits != 0 ? all_lanes : 0);
  if (operand.is_float && operand.bytes != bytes) unknown();
  const auto mask = bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * bytes)) - 1;
  return entry_.literal(bytes, operand.bits & mask);
}

void Builder::address(std::size_t i) {
  const Operand& where = operand(i);
  if (where.kind != Operand::Kind::address) unknown();
  const std::size_t bytes = where.has_base ? where.bytes : 8;
  if (bytes != 4 && bytes != 8) unknown();
  op.at.push_back(where.has_base ? where.place : entry_.literal(8, 0));
  op.number.push_back(static_cast<std::int64_t>(bytes));
  op.number.push_back(static_cast<std::int64_t>(where.bits));
}

Code prepare(Entry entry) {
  Code code;
  code.entry = std::move(entry);
  code.ops.resize(code.entry.statements.size());
  for (std::size_t i = 0; i < code.ops.size(); ++i) {
    Op& op = code.ops[i];
    op.statement = &code.entry.statements[i];
    Builder builder(code.entry, *op.statement, op);
    const bool is_branch = builder.head() == "bra";
    if (!build(builder, code.entry) || (op.run == nullptr && !is_flow(builder))) builder.unknown();
    if (is_branch) op.target = op.statement->target;
    if (op.statement->has_guard) {
      op.guard = builder.place(op.statement->guard, 0);
      op.guard_is_not = op.statement->guard.is_not;
    }
  }
  set_meeting_points(code.ops);
  set_sums(code);
  return code;
}

}  // namespace tessera_ptx
