// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/execution.hpp"

/// Which block sizes a call uses, in the order of precedence of BlockSource, the same for every
/// operator and implementation.
namespace tessera::tuning {

/// What a tuned entry is looked up by.
struct Key {
  std::string operation{};              ///< "linear_cross_entropy"
  std::string device{};                 ///< device name; "host"
  std::string device_class{};           ///< "gpu", "cpu", "accelerator"; "host"
  std::string pass{};                   ///< "forward"
  std::string implementation{};         ///< "opencl.cpu"
  std::string dtype{};                  ///< "bf16", or "f32:bf16" where x and w differ
  std::vector<std::int64_t> extents{};  ///< b, h, v; the table buckets them
};

/// Blocks and knobs as a table holds them.
struct Entry {
  std::vector<NamedValue> block_sizes{};
  std::vector<NamedValue> knobs{};
};

/// A row of a tuned table; empty `device` means every device of the class.
struct TableRow {
  Key key{};
  Entry entry{};
};

/// The table built into the library. It has no rows until measurements are landed.
std::span<const TableRow> builtin_table();
/// The rows of the user's tuned file. There is no such file yet, so that there are none.
std::span<const TableRow> user_table();

/// The entry of `table` for this key: for its device, or with `by_class` for its class of device.
const Entry* find(std::span<const TableRow> table, const Key& key, bool by_class);

/// What was decided.
template <class BlockSizes>
struct Decision {
  BlockSizes block_sizes{};
  std::vector<NamedValue> knobs{};  ///< from a tuned entry; empty: the engine's own choice
  BlockSource source = BlockSource::fallback;
};

/// The first that has an answer: caller, tuned file, tuned table, its entry for the device class,
/// heuristic, BlockSizes::get_default().
///
/// `caller` is returned as it is: the implementation refuses an illegal one with its rule.
/// `sanitise` makes an entry that was measured elsewhere legal for this device. `heuristic` may
/// decline.
template <class BlockSizes>
Decision<BlockSizes> decide(const std::optional<BlockSizes>& caller, const Key& key,
                            const std::function<BlockSizes(const BlockSizes&)>& sanitise,
                            const std::function<std::optional<BlockSizes>()>& heuristic) {
  if (caller) return {*caller, {}, BlockSource::caller};
  const std::pair<const Entry*, BlockSource> tuned[] = {
      {find(user_table(), key, false), BlockSource::tuned_file},
      {find(builtin_table(), key, false), BlockSource::tuned_table},
      {find(builtin_table(), key, true), BlockSource::device_class},
  };
  for (const auto& [entry, source] : tuned) {
    if (entry == nullptr) continue;
    auto blocks = BlockSizes::get_default();
    from_named(entry->block_sizes, blocks);
    if (sanitise) blocks = sanitise(blocks);
    return {blocks, entry->knobs, source};
  }
  if (heuristic) {
    if (const auto blocks = heuristic()) return {*blocks, {}, BlockSource::heuristic};
  }
  return {BlockSizes::get_default(), {}, BlockSource::fallback};
}

}  // namespace tessera::tuning
