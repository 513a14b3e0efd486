// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tuple>
#include <type_traits>

#include "host/attention/traits.hpp"
#include "host/linear_cross_entropy/traits.hpp"
#include "host/linear_distillation/traits.hpp"
#include "host/rms_norm/traits.hpp"
#include "host/softmax_cross_entropy/traits.hpp"

namespace tessera {

/// The losses and every operator, by their tags: one line each.
// clang-format off
using LossOperators = std::tuple<
    linear_cross_entropy::Operator,
    softmax_cross_entropy::Operator,
    linear_distillation::Operator
>;
using OtherOperators = std::tuple<
    rms_norm::Operator,
    attention::Operator
>;
// clang-format on

/// Calls `visit(std::type_identity<Operator>())` for each operator of a list, in order.
template <class List, class Visit>
void for_each_in(const Visit& visit) {
  const auto each = [&]<class... Operator>(std::type_identity<std::tuple<Operator...>>) {
    (visit(std::type_identity<Operator>()), ...);
  };
  each(std::type_identity<List>());
}
template <class Visit>
void for_each_loss(const Visit& visit) {
  for_each_in<LossOperators>(visit);
}
/// The losses, then the others.
template <class Visit>
void for_each_operator(const Visit& visit) {
  for_each_in<LossOperators>(visit);
  for_each_in<OtherOperators>(visit);
}

}  // namespace tessera
