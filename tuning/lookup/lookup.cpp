// SPDX-License-Identifier: Apache-2.0
#include "tuning/lookup/lookup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>

#include "host/dispatch/files.hpp"
#include "tessera/context.hpp"

namespace tessera::tuning {
namespace {

bool matches(const std::string& cell, const std::string& value) {
  return cell.empty() || cell == value;
}

bool matches(const Row& row, const Key& key, bool by_class) {
  return row.operation == key.operation && row.implementation == key.implementation &&
         (by_class ? row.device.empty() : row.device == key.device) &&
         matches(row.device_class, key.device_class) && matches(row.pass, key.pass) &&
         matches(row.dtype, key.dtype) && matches(row.layout, key.layout) &&
         matches(row.gradients, key.gradients) && matches(row.workspace, key.workspace) &&
         (row.bucket == buckets().size() || buckets()[row.bucket].holds(key.extents));
}

bool has(const Table& table, std::string_view operation, std::string_view implementation) {
  return std::any_of(table.rows.begin(), table.rows.end(), [&](const Row& row) {
    return row.operation == operation && row.implementation == implementation;
  });
}

/// The user's file, read when it is first asked for.
class UserFile {
 public:
  std::shared_ptr<const Table> table() {
    const std::lock_guard lock(mutex_);
    if (table_ == nullptr) table_ = read();
    return table_;
  }
  void reload() {
    const std::lock_guard lock(mutex_);
    table_ = read();
    ++generation_;
  }
  std::int64_t generation() const noexcept { return generation_; }

 private:
  static std::shared_ptr<const Table> read() {
    const std::string path = tuned_blocks_file();
    auto table = std::make_shared<Table>();
    if (path.empty()) return table;
    const auto file = dispatch::read_file(path);
    if (file.is_missing) return table;
    if (file.problem.empty()) {
      *table = parse_table(file.text, path);
    } else {
      table->problems.push_back(path + ": it cannot be read (" + file.problem +
                                "); no block sizes are taken from it");
    }
    return table;
  }

  std::mutex mutex_;
  std::shared_ptr<const Table> table_;
  std::atomic<std::int64_t> generation_ = 0;
};

UserFile& user_file() {
  static auto& file = *new UserFile;  // never destroyed: destructors of static objects may call
  return file;
}

Answer answer_of(const Row& row, BlockSource source) {
  // The result of a search may be that nothing is better than what the implementation chooses.
  if (row.block_sizes.empty() && row.knobs.empty()) source = BlockSource::heuristic;
  const auto& device = !row.device.empty()         ? row.device
                       : !row.device_class.empty() ? row.device_class
                                                   : "any device";
  const auto& bucket =
      row.bucket == buckets().size() ? "any shape" : "bucket " + buckets()[row.bucket].name;
  return {row.block_sizes, row.knobs, source, row.device.empty(),
          fmt::format("{}: {}, {}, {}", row.where, device, bucket, row.provenance)};
}

}  // namespace

const Row* find(std::span<const Row> rows, const Key& key, bool by_class) {
  const Row* best = nullptr;
  for (const Row& row : rows) {
    if ((best == nullptr || row.bucket < best->bucket) && matches(row, key, by_class)) best = &row;
  }
  return best;
}

std::optional<Answer> decide(const Key& key) {
  const auto user = user_file().table();
  const std::pair<const Table*, BlockSource> in_order[] = {
      {user.get(), BlockSource::tuned_file},
      {&builtin_table(), BlockSource::tuned_table},
  };
  for (const auto& [table, source] : in_order) {
    if (const Row* row = find(table->rows, key, false)) return answer_of(*row, source);
    if (const Row* row = find(table->rows, key, true)) {
      return answer_of(*row, table == user.get() ? source : BlockSource::device_class);
    }
  }
  return std::nullopt;
}

bool has_rows(std::string_view operation, std::string_view implementation) {
  return has(*user_file().table(), operation, implementation) ||
         has(builtin_table(), operation, implementation);
}

std::int64_t generation() noexcept { return user_file().generation(); }

std::vector<std::string> problems() { return user_file().table()->problems; }

const Table& builtin_table() {
  static const auto& all = *[] {
    auto* table = new Table;
    const char* measured = std::getenv("TESSERA_MEASURED_ROWS");
    const bool leaves_out = measured != nullptr && std::string_view(measured) == "0";
    for (const auto& file : embedded_tables()) {
      if (file.path == "buckets.csv" || (leaves_out && file.path == "measured.csv")) continue;
      auto part = parse_table(std::string(file.text), "tuning/tables/" + std::string(file.path));
      std::move(part.rows.begin(), part.rows.end(), std::back_inserter(table->rows));
      std::move(part.problems.begin(), part.problems.end(), std::back_inserter(table->problems));
    }
    return table;
  }();
  return all;
}

}  // namespace tessera::tuning

namespace tessera {

std::vector<std::string> reload_tuned_blocks() {
  tuning::user_file().reload();
  return tuning::problems();
}

}  // namespace tessera
