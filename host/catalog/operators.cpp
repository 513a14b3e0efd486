// SPDX-License-Identifier: Apache-2.0
#include "host/catalog/operators.hpp"

#include "host/operators/bind.hpp"

const std::vector<tessera::operators::Description>& tessera::operators::descriptions() {
  // Never destroyed: destructors of static objects may call.
  static const auto& all = *new auto([] {
    std::vector<Description> result;
    for_each_operator([&]<class Operator>(std::type_identity<Operator>) {
      result.push_back(describe<Operator>());
    });
    return result;
  }());
  return all;
}
