// SPDX-License-Identifier: Apache-2.0
// libFuzzer on tables of block sizes and on a tuner's raw results: a line is a legal row or a
// problem that is named, and a raw line that was taken is read again as what it was.
#include "tuning/lookup/table.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tuning/tune/raw.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera::tuning;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  const auto table = parse_table(text, "t");
  if (table.rows.size() + table.problems.size() > lines) std::abort();
  for (const auto& row : table.rows) {
    if (row.bucket > buckets().size() || row.operation.empty()) std::abort();
    for (const auto& block : row.block_sizes) {
      if (block.value < 1) std::abort();
    }
    for (const auto& knob : row.knobs) {
      if (knob.value < 0) std::abort();
    }
  }
  const auto raw = parse_raw(text, "t");
  if (raw.records.size() + raw.problems.size() > lines || raw.whole_bytes > size) std::abort();
  for (const auto& record : raw.records) {
    const auto again = parse_raw(std::string(raw_format_line) + '\n' + record.line() + '\n', "t");
    if (again.records.size() != 1 || again.records[0].line() != record.line()) std::abort();
  }
  return 0;
}
