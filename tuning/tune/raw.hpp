// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

/// Raw results of a tuner: a line for each measurement, failed ones too.
namespace tessera::tuning {

/// The first line of a file in the format that this program reads and writes, and its columns.
constexpr std::string_view raw_format_line = "# tessera raw tuning 1";
constexpr std::array<std::string_view, 27> raw_columns = {"operator",
                                                          "pass",
                                                          "implementation",
                                                          "device",
                                                          "driver",
                                                          "dtype",
                                                          "layout",
                                                          "bucket",
                                                          "regime",
                                                          "shape",
                                                          "config",
                                                          "block_sizes",
                                                          "knobs",
                                                          "stage",
                                                          "round",
                                                          "status",
                                                          "compile_seconds",
                                                          "first_call_seconds",
                                                          "median_seconds",
                                                          "spread",
                                                          "share_of_peak",
                                                          "tokens_per_second",
                                                          "max_abs_deviation",
                                                          "mean_abs_deviation",
                                                          "revision",
                                                          "date",
                                                          "error"};
/// The config of what the implementation chooses itself.
constexpr std::string_view heuristic = "heuristic";

/// A line. An empty cell: unknown, as the times of what failed.
class Record {
 public:
  std::string& operator[](std::string_view column);
  const std::string& operator[](std::string_view column) const;
  /// Not a number where the cell is empty.
  double number(std::string_view column) const;
  /// Whether the candidate ran and gave right results: "ok", or "noisy".
  bool is_good() const;
  /// The cells of these columns, each behind "/".
  std::string joined(std::initializer_list<std::string_view> of) const;
  /// True for a kernel of the caller's, which looks up no table.
  bool is_custom() const;
  std::string line() const;

 private:
  std::array<std::string, raw_columns.size()> cells_{};
};

struct RawResults {
  std::vector<Record> records{};
  /// What was skipped: "raw.csv:7: it has 3 cells; ...".
  std::vector<std::string> problems{};
  std::size_t whole_bytes = 0;  ///< of the lines that have their end
  bool is_raw = true;           ///< false: the first line says that it is another file
};

/// Reads raw results. A line that is wrong is skipped and becomes one of the problems, and so does
/// a last one without its end, which was being written when the program was killed. Of a text whose
/// first line is not `raw_format_line` nothing is used.
RawResults parse_raw(const std::string& text, const std::string& name);
/// Throws Error invalid_argument where the file cannot be read.
RawResults read_raw(const std::string& path);

/// Appends lines to a file, one write each, so that a kill tears the last one at most. Throws
/// Error, which names the file.
class RawWriter {
 public:
  /// Keeps the first `whole_bytes` of a file that is there. A file is written by one at a time.
  RawWriter(const std::string& path, std::size_t whole_bytes);
  RawWriter(const RawWriter&) = delete;
  RawWriter& operator=(const RawWriter&) = delete;
  ~RawWriter();
  void add(const Record& record) { write(record.line() + '\n'); }

 private:
  void write(const std::string& text);
  [[noreturn]] void fail() const;

  std::string path_;
  int file_;
};

}  // namespace tessera::tuning
