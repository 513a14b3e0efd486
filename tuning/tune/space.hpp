// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tuning/tune/problem.hpp"

namespace tessera::tuning {

/// Block sizes and knobs that a call may be given.
struct Candidate {
  std::vector<NamedValue> block_sizes{};  ///< empty: the implementation's own
  std::vector<NamedValue> knobs{};        ///< those that are not the implementation's own
  int changes = 0;  ///< how many of all these the implementation has otherwise
  /// The config of a custom kernel's (bench::CustomRow::config); empty: it is none, or the row.
  std::string differs{};

  /// "b=8 h=512 v=1024 item=16", or "heuristic".
  std::string config() const;
};

struct Space {
  std::vector<Candidate> candidates{};  ///< with the fewest changes first, the heuristic before all
  /// How many a rule excludes, by the rule, and what it says of the first of them.
  std::map<std::string, std::pair<int, std::string>> excluded{};
};

/// The names that can be varied in some of these rows: axes of blocks, and knobs.
std::vector<std::string> varied_names(Context& context, const bench::Row& row);

/// Block sizes from a quarter of the implementation's own to four times them, by every set of knobs
/// that it names; what would run alike is there once. Nothing is compiled. `vary`: the names of
/// blocks and knobs that change; empty: all. Of a custom kernel the candidates are those that its
/// file lists.
Space make_space(Context& context, const Problem& problem, const std::vector<std::string>& vary);

}  // namespace tessera::tuning
