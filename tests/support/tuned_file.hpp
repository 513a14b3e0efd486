// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tessera/context.hpp"
#include "tuning/lookup/table.hpp"

namespace tessera::test {

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" in \"" << text << "\"";
}

/// The rows of tuning/tables/measured.csv, which the suite's environment leaves out.
inline tuning::Table measured_rows() {
  for (const auto& file : tuning::embedded_tables()) {
    if (file.path != "measured.csv") continue;
    return tuning::parse_table(std::string(file.text), "tuning/tables/measured.csv");
  }
  return {};
}

/// A shape that no bucket before the row's holds.
inline ProblemExtents shape_of(const tuning::Row& row) {
  if (row.bucket == tuning::buckets().size()) return {{'B', 4096}, {'H', 8192}, {'V', 1 << 18}};
  const auto& bucket = tuning::buckets()[row.bucket];
  ProblemExtents extents = bucket.of == "S"
                               ? ProblemExtents{{'B', 4096}, {'S', 4096}, {'T', 4096}, {'D', 512}}
                               : ProblemExtents{{'B', 4096}, {'H', 8192}, {'V', 1 << 18}};
  for (const auto& [letter, least, most] : bucket.ranges) {
    extents[letter] = std::clamp(extents[letter], least, most);
  }
  return extents;
}

/// The user's file of tuned blocks, as long as this object lives; afterwards there is none again.
class TunedFile {
 public:
  TunedFile() { setenv("TESSERA_TUNED_FILE", path_.c_str(), 1); }
  TunedFile(const TunedFile&) = delete;
  TunedFile& operator=(const TunedFile&) = delete;
  ~TunedFile() {
    std::filesystem::remove(path_);
    setenv("TESSERA_TUNED_FILE", "", 1);
    reload_tuned_blocks();
  }

  const std::string& path() const { return path_; }

  /// Writes the file and has it read; returns what is wrong with it.
  std::vector<std::string> write(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return reload_tuned_blocks();
  }
  /// A table of these rows.
  std::vector<std::string> write_rows(const std::vector<std::string>& rows) const {
    return write(table_of(rows));
  }

  /// A row's columns in short: what its key has of operator, implementation, device and device
  /// class, then bucket, blocks and knobs.
  static std::string row(const std::string& operation, const std::string& implementation,
                         const std::string& device, const std::string& device_class,
                         const std::string& bucket, const std::string& blocks,
                         const std::string& knobs = {}) {
    return operation + ",," + implementation + ",\"" + device + "\",," + device_class + ",,,,," +
           bucket + "," + blocks + "," + knobs + ",,,,,,,measured,a test";
  }
  static std::string table_of(const std::vector<std::string>& rows) {
    std::string text(tuning::format_line);
    char separator = '\n';
    for (const auto column : tuning::columns) {
      text += separator;
      text += column;
      separator = ',';
    }
    for (const auto& each : rows) text += '\n' + each;
    return text + '\n';
  }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() /
                       ("tessera-tuned-" + std::to_string(getpid()) + ".csv"))
                          .string();
};

}  // namespace tessera::test
