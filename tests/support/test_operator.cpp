// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_operator.hpp"

#include <stdexcept>

namespace tessera::test {
namespace {

std::vector<double> oracle::Problem::*values_of_every_loss(std::string_view input) {
  if (input == "weight") return &oracle::Problem::weight;
  if (input == "class_weight") return &oracle::Problem::class_weight;
  if (input == "dloss") return &oracle::Problem::dloss;
  if (input == "dlse") return &oracle::Problem::dlse;
  if (input == "target_probs") return &oracle::Problem::target_probs;
  if (input == "targets") return &oracle::Problem::targets;
  return nullptr;
}

}  // namespace

bool is_of_every_loss(std::string_view input) {
  for (const auto& known : loss_inputs<softmax_cross_entropy::Inputs>) {
    if (known.name == input) return true;
  }
  return false;
}

std::vector<double> oracle::Problem::*TestOperator::values(std::string_view input) const {
  return is_of_every_loss(input) ? values_of_every_loss(input) : own_values(input);
}

bool TestOperator::is_given(const operators::Input& input, const oracle::Problem& problem) const {
  if (std::string_view(input.name) == "labels") {
    const bool soft = problem.k > 0 || !problem.targets.empty();
    return !soft && (problem.b == 0 || !problem.labels.empty());
  }
  if (input.shape.rank() > 0 && input.shape.axis(0) == 'K') return problem.k > 0;
  if (input.reads == Reads::always) return true;
  // Without rows there are no numbers that could say which of the two is given.
  if (problem.b == 0 && input.reads == Reads::usually) return takes_the_usual(problem);
  if (problem.b == 0 && input.reads == Reads::in_place_of_usual) return !takes_the_usual(problem);
  const auto numbers = values(input.name);
  return numbers != nullptr && !(problem.*numbers).empty();
}

std::int64_t TestOperator::extent(const Case& c, char letter) const {
  if (letter == 'H') return c.h;
  if (letter == 'V') return c.v;
  // Of a case that is a whole vocabulary.
  if (letter == 'T') return c.options.vocab_size_total > 0 ? c.options.vocab_size_total : c.v;
  if (letter == 'K') return c.targets == Targets::one_pair ? 1 : c.pairs;
  throw std::logic_error(std::string("a case of ") + name() + " has no extent " + letter);
}

RowLayout TestOperator::rows(const Case& c) const {
  const SymbolicShape shape = inputs().front().shape;
  return row_layout(c.x_layout, c.b, extent(c, shape.axis(shape.rank() - 1)));
}

Dims TestOperator::extents(const Case& c, const SymbolicShape& shape) const {
  return shape.extents(rows(c).leading, c.options.reduction != Reduction::none,
                       [&](char letter) { return extent(c, letter); });
}

}  // namespace tessera::test
