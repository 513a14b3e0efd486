// SPDX-License-Identifier: Apache-2.0
#include "tuning/tune/derive.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "bench/measure.hpp"
#include "host/dispatch/files.hpp"
#include "programs/cli.hpp"
#include "programs/output_set.hpp"
#include "tuning/lookup/lines.hpp"
#include "tuning/lookup/table.hpp"
#include "tuning/tune/raw.hpp"

namespace tessera::tuning {
namespace {

/// Fewer rounds have no interval of 95%.
constexpr std::size_t least_rounds = 6;
/// By what a row of a table is found again.
constexpr std::array<std::string_view, 7> key_columns = {
    "operator", "pass", "implementation", "device", "dtype", "layout", "bucket"};

/// The measurements of one shape.
struct ShapeResults {
  std::map<std::string, std::map<std::string, Record>> rounds{};  ///< by config, then by round
  std::set<std::string> tried{}, failed{};                        ///< configs
  std::optional<Record> searched{};  ///< the heuristic, as the search measured it
};
/// Those of one row, by shape.
using Group = std::map<std::string, ShapeResults>;

/// The time of a candidate over the heuristic's of the same round, in units of the peak beside
/// each.
struct Against {
  bench::Ratio ratio{};
  std::size_t rounds = 0;
  std::vector<double> seconds{}, heuristic_seconds{};
  Record last{};

  bool beats() const { return rounds >= least_rounds && ratio.high < 1.0; }
};

std::optional<Against> against_heuristic(const ShapeResults& results, const std::string& config) {
  const auto own = results.rounds.find(std::string(heuristic));
  if (own == results.rounds.end() || results.failed.contains(config)) return std::nullopt;
  Against against;
  std::vector<double> ratios;
  for (const auto& [round, record] : results.rounds.at(config)) {
    const auto beside = own->second.find(round);
    if (beside == own->second.end()) continue;
    ratios.push_back(beside->second.number("share_of_peak") / record.number("share_of_peak"));
    against.seconds.push_back(record.number("median_seconds"));
    against.heuristic_seconds.push_back(beside->second.number("median_seconds"));
    against.last = record;
  }
  if (ratios.empty()) return std::nullopt;
  against.rounds = ratios.size();
  against.ratio = bench::ratio_of(ratios);
  return against;
}

/// The heuristic's own times; nothing: not all is known that would say it is right.
std::optional<Against> of_heuristic(const ShapeResults& results) {
  if (const auto turns = against_heuristic(results, std::string(heuristic))) {
    return turns->rounds >= least_rounds ? turns : std::nullopt;
  }
  // Each candidate seemed so slow that none took turns.
  const bool has_rival = results.tried.size() > results.failed.size() + 1;
  if (!results.searched || !has_rival || !results.rounds.empty()) return std::nullopt;
  const double seconds = results.searched->number("median_seconds");
  return Against{.seconds = {seconds}, .heuristic_seconds = {seconds}, .last = *results.searched};
}

/// What a group says: the candidate that is fastest, and what deserves a row.
struct Verdict {
  std::string config{};  ///< empty: none took turns with the heuristic
  std::map<std::string, Against> by_shape{};
  bool deserves_row = false;
  std::map<std::string, Against> heuristic_by_shape{};  ///< of all shapes, or of none
  std::size_t tried = 0, failed = 0;

  double ratio() const {
    double logarithms = 0.0;
    for (const auto& [shape, against] : by_shape) logarithms += std::log(against.ratio.median);
    return std::exp(logarithms / static_cast<double>(by_shape.size()));
  }
};

Verdict verdict_of(const Group& group) {
  Verdict best;
  std::set<std::string> configs, tried, failed;
  for (const auto& [shape, results] : group) {
    for (const auto& [config, rounds] : results.rounds) configs.insert(config);
    tried.insert(results.tried.begin(), results.tried.end());
    failed.insert(results.failed.begin(), results.failed.end());
  }
  configs.erase(std::string(heuristic));
  for (const auto& config : configs) {
    Verdict one{.config = config};
    bool everywhere = true;
    for (const auto& [shape, results] : group) {
      const auto against =
          results.rounds.contains(config) ? against_heuristic(results, config) : std::nullopt;
      everywhere = everywhere && against && against->beats();
      if (against) one.by_shape.emplace(shape, *against);
    }
    if (one.by_shape.empty()) continue;
    one.deserves_row = everywhere;
    const bool better = best.config.empty() || one.deserves_row > best.deserves_row ||
                        (one.deserves_row == best.deserves_row && one.ratio() < best.ratio());
    if (better) best = one;
  }
  best.tried = tried.size();
  best.failed = failed.size();
  if (best.deserves_row) return best;
  for (const auto& [shape, results] : group) {
    const auto own = of_heuristic(results);
    if (!own) {
      best.heuristic_by_shape.clear();
      break;
    }
    best.heuristic_by_shape.emplace(shape, *own);
  }
  return best;
}

/// The row of a table; the heuristic's has neither blocks nor knobs.
std::string row_of(const std::map<std::string, Against>& by_shape) {
  const auto& [shape, against] = *by_shape.begin();
  Record record = against.last;
  if (record["config"] == heuristic) record["block_sizes"] = record["knobs"] = "";
  std::vector<std::string> shapes;
  for (const auto& [each, unused] : by_shape) shapes.push_back(each);
  const double median = bench::quantile(against.seconds, 0.5);
  const double spread =
      (bench::quantile(against.seconds, 0.75) - bench::quantile(against.seconds, 0.25)) / median;
  const std::map<std::string_view, std::string> values = {
      {"median_seconds", fmt::format("{:.4g}", median)},
      {"spread", fmt::format("{:.3f}", spread)},
      {"heuristic_seconds", fmt::format("{:.4g}", bench::quantile(against.heuristic_seconds, 0.5))},
      {"date", record["date"].substr(0, 10)},
      {"provenance", "measured"},
      {"source", fmt::format("{}", fmt::join(shapes, "; "))}};
  std::vector<std::string> cells;
  for (const auto column : columns) {
    const auto value = values.find(column);
    const bool is_of_raw =
        std::find(raw_columns.begin(), raw_columns.end(), column) != raw_columns.end();
    cells.push_back(value != values.end() ? cell_of(value->second)
                    : is_of_raw           ? cell_of(record[column])
                                          : std::string());
  }
  return fmt::format("{}", fmt::join(cells, ","));
}

std::string key_of(const Record& record) {
  std::string key;
  for (const auto column : key_columns) key += record[column] + '/';
  // Each row of a custom kernel has its own numbers.
  if (record.is_custom()) key += record["shape"] + '/';
  return key;
}

/// The key of a table's line, with its config; nothing: it is no row, or not one that is derived.
std::optional<std::pair<std::string, std::string>> key_of(std::string_view line) {
  if (line.empty() || line.front() == '#' || line.starts_with("operator,")) return std::nullopt;
  try {
    const auto cells = cells_of(line);
    if (cells.size() != columns.size()) return std::nullopt;
    const auto cell = [&](std::string_view column) {
      return cells[static_cast<std::size_t>(std::find(columns.begin(), columns.end(), column) -
                                            columns.begin())];
    };
    std::string key;
    for (const auto column : key_columns) key += cell(column) + '/';
    if (!cell("workspace").empty() || !cell("gradients").empty()) return std::nullopt;
    return std::pair{key, cell("config")};
  } catch (const BadLine&) {
    return std::nullopt;
  }
}

/// The groups by their keys. Of two devices' drivers, or revisions, what was measured last counts:
/// a ratio is one of measurements that differ in nothing else.
std::map<std::string, Group> groups_of(const std::vector<std::string>& raw_files) {
  std::map<std::string, Group> groups;
  std::map<std::string, std::pair<std::string, std::string>>
      latest;  // date, what it was built from
  std::vector<std::pair<std::size_t, Record>> all;
  for (std::size_t file = 0; file < raw_files.size(); ++file) {
    auto results = read_raw(raw_files[file]);
    for (const auto& each : results.problems) fmt::print(stderr, "tessera-tune: {}\n", each);
    for (auto& record : results.records) {
      const auto place = key_of(record) + record["shape"];
      auto& [date, build] = latest[place];
      if (record.is_good() && record["date"] >= date) {
        date = record["date"];
        build = record.joined({"driver", "revision"});
      }
      all.emplace_back(file, std::move(record));
    }
  }
  for (const auto& [file, record] : all) {
    const auto key = key_of(record);
    auto& results = groups[key][record["shape"]];
    const auto& config = record["config"];
    const auto& build = latest[key + record["shape"]].second;
    // What crashed did not say its driver.
    if (!build.empty() && !build.ends_with(record.joined({"revision"}))) continue;
    results.tried.insert(config);
    if (!record.is_good()) {
      results.failed.insert(config);
    } else if (record["stage"] == "search" && config == heuristic) {
      results.searched = record;
    } else if (record["stage"] == "final" && record.joined({"driver", "revision"}) == build) {
      results.rounds[config].insert_or_assign(fmt::format("{}/{}", file, record["round"]), record);
    }
  }
  return groups;
}

std::string text_of(const Verdict& verdict) {
  std::string text = fmt::format("{} tried, {} failed; ", verdict.tried, verdict.failed);
  if (verdict.config.empty()) return text + "none took turns with the heuristic";
  text += verdict.config + " takes";
  for (const auto& [shape, against] : verdict.by_shape) {
    text += fmt::format(" {:.3f} ({:.3f} to {:.3f}, {} rounds, {})", against.ratio.median,
                        against.ratio.low, against.ratio.high, against.rounds, shape);
  }
  return text + " of the heuristic's time";
}

/// The lines of the table that is there; those of an empty one where none is.
std::vector<std::string> read_table(const std::string& path) {
  const auto header = fmt::format("{}", fmt::join(columns, ","));
  const auto [text, problem, is_missing] = dispatch::read_file(path);
  if (is_missing) return {std::string(format_line), header};
  if (!problem.empty()) {
    programs::fail_call(
        fmt::format("--table: the file '{}' cannot be read: {}; give another", path, problem));
  }
  std::vector<std::string> lines;
  for_lines(text, [&](std::string_view line, int) { lines.emplace_back(line); });
  if (lines.empty() || lines.front() != format_line) {
    programs::fail_call(fmt::format(
        "--table: the first line of '{}' is \"{}\"; this program writes tables that begin with "
        "\"{}\"; nothing was changed; give another",
        path, lines.empty() ? "" : lines.front().substr(0, 60), format_line));
  }
  const bool is_empty = std::all_of(lines.begin(), lines.end(), [](const auto& line) {
    return line.empty() || line.front() == '#';
  });
  if (is_empty) lines.push_back(header);
  for (const auto& each : parse_table(text, path).problems) {
    fmt::print(stderr, "tessera-tune: {}, and stays as it is\n", each);
  }
  return lines;
}

}  // namespace

void derive_table(const std::vector<std::string>& raw_files, const std::string& table) {
  const auto groups = groups_of(raw_files);
  const auto is_custom = [](const auto& each) { return each.first.starts_with("custom/"); };
  if (groups.empty()) programs::fail_call("derive: the raw results have no line that can be used");
  std::vector<std::string> lines, added;
  std::optional<programs::OutputFile> file;
  if (std::all_of(groups.begin(), groups.end(), is_custom)) {
    if (!table.empty()) {
      programs::fail_call("derive: custom kernels look up no table; leave --table out");
    }
  } else {
    if (table.empty()) programs::fail_call("derive: give --table FILE for the rows");
    lines = read_table(table);
    file.emplace(table, "--table");
  }
  for (const auto& each : groups) {
    const auto& [key, group] = each;
    const auto verdict = verdict_of(group);
    const bool is_right = !verdict.heuristic_by_shape.empty();
    const auto print = [&, &key = key](const std::string& change) {
      fmt::print("{} {}\n    {}\n", key.substr(0, key.size() - 1), change, text_of(verdict));
    };
    if (is_custom(each)) {
      print(is_right ? "the row's own numbers are right"
            : verdict.deserves_row
                ? verdict.config + " is faster: write it into the row of the file"
                : "too little is known");
      continue;
    }
    const auto at = std::find_if(lines.begin(), lines.end(), [&, key = key](const auto& line) {
      const auto row = key_of(line);
      return row && row->first == key;
    });
    const auto before = at == lines.end() ? std::nullopt : key_of(*at);
    std::string change = is_right ? "the heuristic is right: " : "";
    if (verdict.deserves_row || is_right) {
      const auto row = row_of(is_right ? verdict.heuristic_by_shape : verdict.by_shape);
      const auto config = is_right ? std::string(heuristic) : verdict.config;
      change += !before                    ? "a new row"
                : *at == row               ? "the row is as before"
                : before->second == config ? "the row has new times"
                                           : "the row changes from " + before->second;
      before ? void(*at = row) : added.push_back(row);
    } else {
      change += before ? "too little is known: the row of " + before->second + " is taken out"
                       : "too little is known: no row";
      if (before) lines.erase(at);
    }
    print(change);
  }
  if (!file) return;
  lines.insert(lines.end(), added.begin(), added.end());
  file->write(fmt::format("{}\n", fmt::join(lines, "\n")));
}

}  // namespace tessera::tuning
