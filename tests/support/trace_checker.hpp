// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tessera/profile.hpp"

namespace tessera::test {

/// A folder of this process that is removed with it.
class TraceFolder {
 public:
  TraceFolder() {
    std::string name = testing::TempDir() + "/tessera-trace-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  TraceFolder(const TraceFolder&) = delete;
  TraceFolder& operator=(const TraceFolder&) = delete;
  ~TraceFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::size_t files() const {
    const std::filesystem::directory_iterator all(path_);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }

 private:
  std::filesystem::path path_;
};

/// An event of a trace, in whole nanoseconds.
struct TraceEvent {
  std::string category, name, row;
  std::int64_t begin = 0, end = 0, call = 0;
};

/// The events of a trace, once it was held against the format: each has a row with a name and no
/// negative time, the rows that are not for calls of several threads do not overlap, and what
/// belongs to a call does not begin before it.
inline std::vector<TraceEvent> checked_trace(const std::string& text) {
  const auto trace = nlohmann::json::parse(text);
  EXPECT_TRUE(trace.at("otherData").at("notes").is_array());
  std::map<int, std::string> rows;
  for (const auto& event : trace.at("traceEvents")) {
    EXPECT_EQ(event.at("pid"), 0);
    if (event.at("name") == "thread_name") rows[event.at("tid")] = event.at("args").at("name");
  }
  const auto nanoseconds = [](const nlohmann::json& microseconds) {
    return std::llround(microseconds.get<double>() * 1000.0);
  };
  std::vector<TraceEvent> events;
  std::map<std::string, std::vector<std::pair<std::int64_t, std::int64_t>>> by_row;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") continue;
    EXPECT_EQ(event.at("ph"), "X");
    const auto begin = nanoseconds(event.at("ts")), length = nanoseconds(event.at("dur"));
    EXPECT_GE(begin, 0);
    EXPECT_GE(length, 0);
    EXPECT_TRUE(rows.count(event.at("tid"))) << event;
    events.push_back({event.at("cat"), event.at("name"), rows[event.at("tid")], begin,
                      begin + length, event.at("args").at("call")});
    by_row[events.back().row].emplace_back(begin, begin + length);
  }
  for (auto& [row, spans] : by_row) {
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i) {
      EXPECT_LE(spans[i - 1].second, spans[i].first) << "overlap in the row " << row;
    }
  }
  std::map<std::int64_t, TraceEvent> calls;
  for (const auto& event : events) {
    if (event.category == "call") calls[event.call] = event;
  }
  for (const auto& event : events) {
    EXPECT_TRUE(calls.count(event.call)) << event.name;
    EXPECT_GE(event.begin, calls[event.call].begin) << event.name;
  }
  return events;
}

inline std::vector<TraceEvent> checked_trace(const Profile& profile) {
  const TraceFolder folder;
  profile.write(folder.file("trace.json"));
  EXPECT_EQ(folder.files(), 1u) << "something was left beside the trace";
  std::ifstream stream(folder.file("trace.json"));
  return checked_trace(std::string(std::istreambuf_iterator<char>(stream), {}));
}

/// Of blocking calls: every event lies within its call.
inline void expect_nested(const std::vector<TraceEvent>& events) {
  std::map<std::int64_t, TraceEvent> calls;
  for (const auto& event : events) {
    if (event.category == "call") calls[event.call] = event;
  }
  for (const auto& event : events) EXPECT_LE(event.end, calls[event.call].end) << event.name;
}

/// The rows of a kind, by their names.
inline std::map<std::string, ProfileRow> rows_of_kind(const Profile& profile, ProfileKind kind) {
  std::map<std::string, ProfileRow> rows;
  for (const auto& row : profile.kernels()) {
    if (row.kind != kind) continue;
    EXPECT_TRUE(rows.emplace(row.name, row).second) << row.name << " of several kinds of calls";
  }
  return rows;
}

}  // namespace tessera::test
