// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tuple>
#include <type_traits>

#include "host/linear_cross_entropy/traits.hpp"
#include "host/linear_distillation/traits.hpp"
#include "host/softmax_cross_entropy/traits.hpp"

namespace tessera {

/// Every operator, by its tag: one line each.
// clang-format off
using Operators = std::tuple<
    linear_cross_entropy::Operator,
    softmax_cross_entropy::Operator,
    linear_distillation::Operator
>;
// clang-format on

/// Calls `visit(std::type_identity<Operator>())` for each operator, in order.
template <class Visit>
void for_each_operator(const Visit& visit) {
  const auto each = [&]<class... Operator>(std::type_identity<std::tuple<Operator...>>) {
    (visit(std::type_identity<Operator>()), ...);
  };
  each(std::type_identity<Operators>());
}

}  // namespace tessera
