// SPDX-License-Identifier: Apache-2.0
#include "tuning/tune/raw.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iterator>

#include "host/dispatch/files.hpp"
#include "host/operators/call.hpp"
#include "programs/cli.hpp"
#include "tuning/lookup/lines.hpp"
#include "tuning/lookup/table.hpp"

namespace tessera::tuning {
namespace {

std::size_t place_of(std::string_view column) {
  return static_cast<std::size_t>(std::find(raw_columns.begin(), raw_columns.end(), column) -
                                  raw_columns.begin());
}

/// Throws BadLine where the cell is none of `known`.
void check_known(const Record& record, std::string_view column,
                 const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), record[column]) != known.end()) return;
  throw BadLine{
      fmt::format("{} is \"{}\"; it is one of {}", column, record[column], fmt::join(known, ", "))};
}

void check(const Record& record) {
  std::vector<std::string> operators, names;
  for (const auto& op : operators::descriptions()) operators.emplace_back(op.name);
  for (const auto& bucket : buckets()) names.push_back(bucket.name);
  if (!record.is_custom()) {
    check_known(record, "operator", operators);
    check_known(record, "bucket", names);
  }
  check_known(record, "pass", {"forward", "backward", "value_and_grad"});
  check_known(record, "stage", {"search", "final"});
  for (const auto column : {"implementation", "device", "shape", "config", "status"}) {
    if (record[column].empty()) throw BadLine{fmt::format("{} is empty", column)};
  }
  for (const auto column :
       {"round", "compile_seconds", "first_call_seconds", "median_seconds", "spread",
        "share_of_peak", "tokens_per_second", "max_abs_deviation", "mean_abs_deviation"}) {
    const auto value = number_of<double>(record[column]);
    // A custom kernel has no tokens.
    const bool is_needed = (record.is_good() && column != std::string_view("tokens_per_second")) ||
                           column == std::string_view("round");
    if (record[column].empty() && !is_needed) continue;
    if (value && std::isfinite(*value) && *value >= 0.0) continue;
    throw BadLine{fmt::format("{} is \"{}\"; give a number from 0 on", column, record[column])};
  }
  for (const auto column : {"median_seconds", "share_of_peak"}) {
    if (record.is_good() && !(record.number(column) > 0.0)) {
      throw BadLine{fmt::format("{} is {}; it is above 0", column, record[column])};
    }
  }
  values_of("block_sizes", record["block_sizes"], 1);
  values_of("knobs", record["knobs"], 0);
}

Record record_of(std::string_view line) {
  const auto cells = cells_of(line);
  if (cells.size() != raw_columns.size()) {
    throw BadLine{fmt::format("it has {} cells; a line has {}", cells.size(), raw_columns.size())};
  }
  Record record;
  for (std::size_t i = 0; i < cells.size(); ++i) record[raw_columns[i]] = cells[i];
  check(record);
  return record;
}

}  // namespace

std::string& Record::operator[](std::string_view column) { return cells_.at(place_of(column)); }
const std::string& Record::operator[](std::string_view column) const {
  return cells_.at(place_of(column));
}

double Record::number(std::string_view column) const {
  return number_of<double>((*this)[column]).value_or(NAN);
}

bool Record::is_good() const { return (*this)["status"] == "ok" || (*this)["status"] == "noisy"; }

bool Record::is_custom() const { return (*this)["operator"].starts_with("custom/"); }

std::string Record::joined(std::initializer_list<std::string_view> of) const {
  std::string text;
  for (const auto column : of) text += '/' + (*this)[column];
  return text;
}

std::string Record::line() const {
  std::vector<std::string> cells;
  for (const auto& cell : cells_) cells.push_back(cell_of(cell));
  return fmt::format("{}", fmt::join(cells, ","));
}

RawResults parse_raw(const std::string& text, const std::string& name) {
  RawResults results;
  results.whole_bytes = text.rfind('\n') + 1;  // 0 where there is none
  const auto skip = [&](int number, const std::string& what) {
    results.problems.push_back(fmt::format("{}:{}: {}", name, number, what));
  };
  // Of a first line that is torn, too, the beginning is there.
  results.is_raw =
      text.substr(0, raw_format_line.size() + 1) == fmt::format("{}\n", raw_format_line) ||
      raw_format_line.starts_with(text);
  const auto whole = std::string_view(text).substr(0, results.whole_bytes);
  int last = 0;
  if (!results.is_raw) {
    skip(1,
         fmt::format("the first line is \"{}\"; this program reads raw results that begin with "
                     "\"{}\", and nothing of this file",
                     text.substr(0, std::min<std::size_t>(text.find('\n'), 60)), raw_format_line));
    return results;
  }
  for_lines(whole, [&](std::string_view line, int number) {
    last = number;
    if (line.empty() || line.front() == '#' || line.starts_with("operator,")) return;
    try {
      results.records.push_back(record_of(line));
    } catch (const BadLine& bad) {
      skip(number, bad.what + "; the line is skipped");
    }
  });
  if (results.whole_bytes < text.size()) {
    skip(last + 1, "the line is torn: it has no end; it is skipped");
  }
  return results;
}

RawResults read_raw(const std::string& path) {
  const auto file = dispatch::read_file(path);
  if (!file.problem.empty()) {
    programs::fail_call(
        fmt::format("the raw results '{}' cannot be read: {}; name a file", path, file.problem));
  }
  return parse_raw(file.text, path);
}

RawWriter::RawWriter(const std::string& path, std::size_t whole_bytes)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (file_ < 0) {
    programs::fail_call(fmt::format("--out: the file '{}' cannot be written: {}; give another",
                                    path, std::strerror(errno)));
  }
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(file_);
    programs::fail_call(fmt::format(
        "--out: another tessera-tune writes the file '{}'; wait for it, or give another", path));
  }
  struct stat status {};
  const bool is_file = ::fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
  if (is_file && ::ftruncate(file_, static_cast<off_t>(whole_bytes)) != 0) fail();
  if (whole_bytes > 0) return;
  write(fmt::format("{}\n{}\n", raw_format_line, fmt::join(raw_columns, ",")));
}

RawWriter::~RawWriter() { ::close(file_); }

void RawWriter::write(const std::string& text) {
  errno = 0;
  if (::write(file_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) fail();
}

void RawWriter::fail() const {
  throw Error(ErrorCode::execution_failed,
              fmt::format("--out: the file '{}' cannot be written: {}; what it had is still there, "
                          "and --resume goes on from it",
                          path_, std::strerror(errno == 0 ? ENOSPC : errno)));
}

}  // namespace tessera::tuning
