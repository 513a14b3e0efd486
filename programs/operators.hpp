// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/operators.hpp"

/// What command lines need of the operators, from their traits.
namespace tessera::programs {

/// An input, whichever operator's it is.
struct OperatorInput {
  const char* name;
  SymbolicShape shape;
  ElementTypes types;
  Reads reads;

  /// What a call has to have beside the labels.
  bool is_operand() const { return reads == Reads::always && types == ElementTypes::floating; }
  /// A matrix that no token has an axis of: it has a layout, [H, V] or [V, H].
  bool is_weight() const {
    return !shape.has_leading() && !shape.is_of_loss() && shape.rank() == 2;
  }
};

struct OperatorInfo {
  const char* name;
  std::vector<OperatorInput> inputs;
  std::vector<const char*> block_sizes;  ///< by name
  std::vector<ImplementationInfo> implementations;

  const OperatorInput* input(const std::string& name) const;
  bool has_weights() const;
  bool has_hidden() const;
  /// "B,H,V"
  std::string block_sizes_text() const;
  /// Block sizes given in their order by name. Where there is no H, three numbers may be given all
  /// the same, as for an operator with one. Nothing: not this many.
  std::optional<std::vector<NamedValue>> named(const std::vector<std::int64_t>& values) const;
};

/// Every operator, in order.
const std::vector<OperatorInfo>& operator_infos();
const OperatorInfo& operator_info(const std::string& name);

/// Calls `visit(std::type_identity<Operator>())` for the operator of this name.
template <class Visit>
void visit_operator(const std::string& name, const Visit& visit) {
  for_each_operator([&]<class Operator>(std::type_identity<Operator> tag) {
    if (name == OperatorTraits<Operator>::name) visit(tag);
  });
}

}  // namespace tessera::programs
