// SPDX-License-Identifier: Apache-2.0
// What says where a row's probability is: its label, pairs, or a probability of every word.
#include <limits>

#include "reference/oracle/oracle.hpp"

namespace tessera::oracle {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Calls `body(column, probability)` for each word that the row's target names; the columns are
/// global. A label is one word of probability 1.
template <class Body>
void for_each_target(const Problem& p, std::int64_t row, const Body& body) {
  if (p.k > 0) {
    for (std::int64_t i = row * p.k; i < (row + 1) * p.k; ++i) {
      if (p.target_indices[index(i)] == p.options.ignore_index) continue;
      body(p.target_indices[index(i)], p.target_probs[index(i)]);
    }
  } else if (!p.targets.empty()) {
    for (std::int64_t j = 0; j < p.v_total(); ++j) {
      body(j, p.targets[index(row * p.v_total() + j)]);
    }
  } else if (p.has_targets() && p.labels[index(row)] != p.options.ignore_index) {
    body(p.labels[index(row)], 1.0);
  }
}

}  // namespace

std::vector<std::pair<std::int64_t, double>> target_of(const Problem& p, std::int64_t row) {
  std::vector<std::pair<std::int64_t, double>> target;
  for_each_target(p, row, [&](std::int64_t column, double probability) {
    target.emplace_back(column, probability);
  });
  return target;
}

double share_of(const Problem& p, std::int64_t row) {
  if (!p.targets.empty()) return 1.0;
  double total = 0.0;
  double weighted = 0.0;
  for_each_target(p, row, [&](std::int64_t column, double probability) {
    total += probability;
    weighted += probability * (p.class_weight.empty() ? 1.0 : p.class_weight[index(column)]);
  });
  return total == 0.0 ? 1.0 : weighted / total;
}

bool is_ignored(const Problem& p, std::int64_t row) {
  if (!p.targets.empty() || !p.has_targets()) return false;
  bool any = false;
  for_each_target(p, row, [&](std::int64_t, double) { any = true; });
  return !any;
}

bool is_bad(const Problem& p, std::int64_t row) {
  bool bad = false;
  for_each_target(p, row, [&](std::int64_t column, double probability) {
    // Written so that a NaN is bad.
    bad = bad || column < 0 || column >= p.v_total() || !(probability >= 0.0);
  });
  return bad;
}

void spoil(Values& values, std::size_t row) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for (auto* field : {&values.max, &values.sum, &values.lse, &values.label_logprob, &values.entropy,
                      &values.z_loss, &values.divergence, &values.target_entropy}) {
    if (!field->empty()) (*field)[row] = nan;
  }
  values.argmax[row] = -1;
  for (std::size_t i = 5 * row; i < 5 * row + 5 && !values.divergence_statistics.empty(); ++i) {
    values.divergence_statistics[i] = nan;
  }
}

}  // namespace tessera::oracle
