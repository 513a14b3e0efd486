// SPDX-License-Identifier: Apache-2.0
#include "tests/support/problem.hpp"

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
    if (p.labels[index(row)] == p.options.ignore_index) p.dlse[index(row)] = std::nan("");
  }
}

}  // namespace tessera::test
