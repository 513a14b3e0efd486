// SPDX-License-Identifier: Apache-2.0
#include "tests/support/problem.hpp"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "tests/support/numbers.hpp"
#include "tests/support/test_operator.hpp"

namespace tessera::test {

void PrintTo(const Case& c, std::ostream* out) { *out << c.op->name() << "/" << c.name; }

oracle::Problem make_problem(const Case& c) { return c.op->make_problem(c); }

oracle::Problem empty_problem(const Case& c) {
  oracle::Problem p;
  p.b = c.b;
  p.h = c.h;
  p.v = c.v;
  p.options = c.options;
  return p;
}

namespace {

/// A row of probabilities at `count` places that adds up to `total`, each representable.
std::vector<double> probabilities(const Case& c, Numbers& numbers, std::int64_t count,
                                  double total) {
  std::vector<double> q(index(count));
  double sum = 0.0;
  for (auto& value : q) sum += value = std::exp(2.0 * numbers.normal());
  for (auto& value : q) value = round_to(c.side_type, total * value / sum);
  return q;
}

/// The place of a pair whose word has no probability, in some rows.
constexpr std::int64_t without_probability = 2;
bool has_one_without(std::int64_t row) { return row % 5 == 0; }

/// Words of a row: its label, and others that a mask leaves; but one that has no probability is
/// masked. Labels::ends: the words from 1 on, so that all rows have pairs at the same columns.
std::vector<std::int64_t> words_of(const Case& c, const oracle::Problem& p, Numbers& numbers,
                                   std::int64_t row, std::int64_t count) {
  std::vector<std::int64_t> words = {p.labels[index(row)]};
  if (c.labels == Labels::ends) {
    for (std::int64_t i = 0; i < count; ++i) words.push_back(1 + i);
    words.erase(words.begin());
    return words;
  }
  for (int tries = 0; static_cast<std::int64_t>(words.size()) < count && tries < 1000; ++tries) {
    const std::int64_t word = numbers.below(p.v_total());
    const bool masked = has_masks(c.data) && is_masked(word, p.v);
    const bool wants_masked = has_masks(c.data) && has_one_without(row) &&
                              static_cast<std::int64_t>(words.size()) == without_probability;
    const bool is_there = std::find(words.begin(), words.end(), word) != words.end();
    if (masked == wants_masked && !is_there) words.push_back(word);
  }
  return words;
}

void soften_row(const Case& c, oracle::Problem& p, Numbers& numbers, std::int64_t row) {
  const std::int64_t label = p.labels[index(row)];
  const bool ignored = label == p.options.ignore_index;
  if (c.targets == Targets::dense) {
    // No row of these is ignored: the problem has no labels of that kind (Case::targets).
    auto q = probabilities(c, numbers, p.v_total(), 1.0);
    for (std::int64_t j = 0; j < p.v_total(); ++j) {
      const bool zero = j % 5 == 2 || (has_masks(c.data) && is_masked(j, p.v) && j != label);
      p.targets.push_back(zero ? 0.0 : q[index(j)]);
    }
    return;
  }
  const bool nothing =
      c.targets == Targets::pairs && (row % 7 == 6 || (c.data == Data::masked_row && row == 0));
  std::vector<std::int64_t> words;
  if (!ignored && c.targets == Targets::one_pair) words = {label};
  if (!ignored && c.targets == Targets::pairs) {
    words = words_of(c, p, numbers, row, row % 3 == 1 ? (p.k + 1) / 2 : p.k);
  }
  const auto q = c.targets == Targets::one_pair
                     ? std::vector<double>{1.0}
                     : probabilities(c, numbers, static_cast<std::int64_t>(words.size()),
                                     row % 4 == 2 ? 0.7 : 1.0);
  for (std::int64_t pair = 0; pair < p.k; ++pair) {
    const bool padding = pair >= static_cast<std::int64_t>(words.size());
    p.target_indices.push_back(padding ? p.options.ignore_index : words[index(pair)]);
    // What belongs to no word is not read; a word may have no probability at all, and a row none.
    const bool none = (pair == without_probability && has_one_without(row)) || nothing;
    p.target_probs.push_back(padding ? std::nan("") : none ? 0.0 : q[index(pair)]);
  }
}

/// Soft targets in place of the labels, around them.
void soften(const Case& c, oracle::Problem& p, Numbers& numbers) {
  if (c.targets != Targets::dense) p.k = c.targets == Targets::one_pair ? 1 : c.pairs;
  for (std::int64_t row = 0; row < p.b; ++row) soften_row(c, p, numbers, row);
  p.labels.clear();
}

}  // namespace

void add_labels(const Case& c, oracle::Problem& p, Numbers& numbers,
                const std::function<void(std::int64_t row)>& spoil) {
  const std::int64_t v_total = p.v_total();
  const bool masks = has_masks(c.data);
  for (std::int64_t row = 0; row < p.b; ++row) {
    std::int64_t label = numbers.below(v_total);
    for (int tries = 0; masks && is_masked(label, p.v) && tries < 1000; ++tries) {
      label = numbers.below(v_total);
    }
    if (c.data == Data::masked_label && row == 0) label = 0;
    // Half the rows of a peaked problem agree with it.
    if (c.data == Data::dominating && row % 2 == 0) label = p.v / 2;
    if (c.labels == Labels::ends) label = row % 2 == 0 ? 0 : v_total - 1;
    const bool ignored = c.labels == Labels::all_ignored ||
                         (c.labels == Labels::some_ignored && (row % 5 == 1 || row % 7 == 4));
    p.labels.push_back(ignored ? p.options.ignore_index : label);
    // All rows of a broadcast one are the same memory.
    if (ignored && c.x_layout != XLayout::broadcast) spoil(row);
  }
  if (c.targets == Targets::none) {
    p.labels.clear();
  } else if (c.targets != Targets::labels) {
    soften(c, p, numbers);
  }
}

namespace {

void make_weights(const Case& c, oracle::Problem& p, Numbers& numbers) {
  if (c.weight == Weights::none) return;
  for (std::int64_t row = 0; row < p.b; ++row) {
    double value = round_to(c.side_type, 0.25 + numbers.uniform());
    if (c.weight == Weights::signed_and_zero) {
      if (row % 3 == 1) value = -0.5 * value;
      if (row % 4 == 3) value = 0.0;
    } else if (c.weight == Weights::cancelling) {
      // Pairs cancel exactly; the odd one out has no weight.
      value = row % 2 == 0 ? (row + 1 < p.b ? 0.75 : 0.0) : -0.75;
    }
    p.weight.push_back(value);
  }
}

}  // namespace

void add_loss_inputs(const Case& c, oracle::Problem& p, Numbers& numbers) {
  make_weights(c, p, numbers);
  if (c.class_weight) {
    for (std::int64_t j = 0; j < p.v_total(); ++j) {
      // Masked words and every eleventh have class weight 0, so that smoothing stays finite.
      const bool zero = j % 11 == 5 || (has_masks(c.data) && is_masked(j, p.v));
      p.class_weight.push_back(zero ? 0.0 : round_to(c.side_type, 0.5 + numbers.uniform()));
    }
  }
  auto cotangent = [&](Cotangent kind, std::int64_t n, std::vector<double>& to) {
    if (kind == Cotangent::none) return;
    const double first = round_to(c.side_type, 0.5 + numbers.uniform());
    for (std::int64_t i = 0; i < n; ++i) {
      to.push_back(kind == Cotangent::stride0 || n == 1
                       ? first
                       : round_to(c.side_type, 0.5 * numbers.normal()));
    }
  };
  cotangent(c.dloss, p.options.reduction == Reduction::none ? p.b : 1, p.dloss);
  cotangent(c.dlse, p.b, p.dlse);
  // An ignored row's dlse is not read.
  for (std::int64_t row = 0; c.dlse == Cotangent::given && row < p.b; ++row) {
    if (oracle::is_ignored(p, row)) p.dlse[index(row)] = std::nan("");
  }
}

}  // namespace tessera::test
