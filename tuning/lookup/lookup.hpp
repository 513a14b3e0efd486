// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuning/lookup/table.hpp"

/// Which row of the tables answers for a call: the same order for every operator and
/// implementation, that of BlockSource.
namespace tessera::tuning {

/// What a call is looked up by.
struct Key {
  std::string operation{};       ///< "linear_cross_entropy"
  std::string implementation{};  ///< "opencl.cpu"
  std::string device{};          ///< a device's name, a TPU's ("v5p"); "host"
  std::string device_class{};    ///< "cpu-16-lanes", "gpu-nvidia", "tpu"
  std::string pass{};            ///< "forward"
  std::string dtype{};           ///< "bf16", or "f32:bf16" where x and w differ
  std::string layout{};          ///< of w, "hv" or "vh"; empty: there is none
  std::string gradients{};       ///< those asked for: "grad_x+grad_w"
  std::string workspace{};       ///< "default", or "below" where scratch is bounded by less
  ProblemExtents extents{};
};

/// The row for this key: one for its device, or with `by_class` one for its class that names no
/// device. Of those whose bucket holds the shape, that of the first bucket; of a bucket's, the
/// first row. nullptr: there is none.
const Row* find(std::span<const Row> rows, const Key& key, bool by_class);

/// What a row says.
struct Answer {
  std::vector<NamedValue> block_sizes{};  ///< empty: those that the implementation chooses
  std::vector<NamedValue> knobs{};        ///< empty: likewise
  BlockSource source = BlockSource::heuristic;
  bool is_of_class = false;  ///< the row names no device: it may have been tuned on another one
  std::string reason{};      ///< the row's place, device, bucket and provenance
};

/// The first that has an answer: the user's file, the built-in table's row for the device, its row
/// for the device's class. Nothing: the implementation chooses.
std::optional<Answer> decide(const Key& key);

/// Whether any row at all is of these, so that a key is worth making.
bool has_rows(std::string_view operation, std::string_view implementation);
/// Rises when the user's file is read again, so that what a call was prepared with can be told from
/// what it would be now.
std::int64_t generation() noexcept;
/// What is wrong with the user's file: messages, each of a line.
std::vector<std::string> problems();

/// The rows that the library carries, of all files of tuning/tables but the buckets.
const Table& builtin_table();

}  // namespace tessera::tuning
