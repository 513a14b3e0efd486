// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "host/dispatch/recorder.hpp"

namespace tessera {

const char* to_string(ProfileKind kind) noexcept {
  constexpr std::array names = {"call", "kernel", "task", "copy", "wait"};
  const auto at = static_cast<std::size_t>(kind);
  return at < names.size() ? names[at] : "?";
}

namespace dispatch {
namespace {

void add(ProfileRow& row, const RecordedSpan& span) {
  ++row.calls;
  row.work_groups = std::max(row.work_groups, span.groups);
  if (!span.is_timed) {
    ++row.untimed;
    return;
  }
  const std::int64_t length = span.end - span.begin;
  const bool is_first = row.calls == row.untimed + 1;
  row.total_ns += length;
  row.min_ns = is_first ? length : std::min(row.min_ns, length);
  row.max_ns = std::max(row.max_ns, length);
}

}  // namespace

const std::string& name_of(const RecordedSpan& span, const RecordedCall& call) {
  if (!span.name.empty()) return span.name;
  return call.pass.empty() ? call.operation : call.pass;
}

std::vector<ProfileRow> rows_of(const Recorded& recorded) {
  const auto key_of = [](const RecordedCall& call) {
    std::string key = call.operation + '\n' + call.pass + '\n' + call.implementation;
    for (const auto* values : {&call.block_sizes, &call.knobs}) {
      for (const auto& [name, value] : *values) key += '\n' + name + '=' + std::to_string(value);
    }
    return key;
  };
  std::vector<std::string> keys;
  for (const auto& call : recorded.calls) keys.push_back(key_of(call));
  std::map<std::tuple<ProfileKind, std::string_view, std::string_view>, ProfileRow> rows;
  for (const auto& span : recorded.spans) {
    const auto& call = recorded.calls[span.call];
    const auto& name = name_of(span, call);
    auto [at, is_new] = rows.try_emplace({span.kind, name, keys[span.call]});
    if (is_new) {
      at->second = {.kind = span.kind,
                    .name = name,
                    .implementation = call.implementation,
                    .operation = call.operation,
                    .pass = call.pass,
                    .block_sizes = call.block_sizes,
                    .knobs = call.knobs};
    }
    add(at->second, span);
  }
  std::vector<ProfileRow> sorted;
  for (auto& [key, row] : rows) sorted.push_back(std::move(row));
  std::stable_sort(sorted.begin(), sorted.end(), [](const ProfileRow& a, const ProfileRow& b) {
    return a.kind != b.kind ? a.kind < b.kind : a.total_ns > b.total_ns;
  });
  return sorted;
}

ProfileTimes times_of(const Recorded& recorded) {
  // How many spans of each rank are open between two moments: the first rank that is has the time.
  enum Rank { kernels, copies, waits, rest, ranks };
  const auto rank_of = [](ProfileKind kind) {
    if (kind == ProfileKind::copy) return copies;
    if (kind == ProfileKind::wait) return waits;
    return kind == ProfileKind::call ? rest : kernels;
  };
  std::vector<std::tuple<std::int64_t, Rank, int>> moments;
  for (const auto& span : recorded.spans) {
    if (!span.is_timed) continue;
    moments.emplace_back(span.begin, rank_of(span.kind), 1);
    moments.emplace_back(span.end, rank_of(span.kind), -1);
  }
  std::sort(moments.begin(), moments.end());
  std::array<std::int64_t, ranks> open{}, ns{};
  std::int64_t last = 0;
  for (const auto& [at, rank, change] : moments) {
    const auto first = std::find_if(open.begin(), open.end(), [](auto count) { return count > 0; });
    if (first != open.end()) ns[static_cast<std::size_t>(first - open.begin())] += at - last;
    open[rank] += change;
    last = at;
  }
  const auto seconds = [&](Rank rank) { return static_cast<double>(ns[rank]) * 1e-9; };
  return {seconds(kernels), seconds(copies), seconds(waits), seconds(rest)};
}

}  // namespace dispatch
}  // namespace tessera
