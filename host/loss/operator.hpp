// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "host/loss/request.hpp"
#include "host/operators/operator.hpp"

namespace tessera::loss {

/// What stands behind the public functions of a loss operator (host/loss/api.inc).
class LossOperator : public operators::AnyOperator {
 public:
  LossOperator(const operators::Description& op, dispatch::Table rows)
      : places_(op), rows_(std::move(rows)) {}

  void check(const ContextState& state, operators::Call&& call, operators::Form form,
             const std::function<void(operators::Request&)>& use) const final;
  const dispatch::Table& table() const final { return rows_; }

  /// Where a loss has more terms than nll and z-loss: what nll is multiplied by. At 0 labels may be
  /// left out.
  virtual std::optional<float> nll_weight(const operators::Call&) const { return std::nullopt; }

 protected:
  /// Checks that follow from nothing in the description.
  virtual void check_own(const arguments::Checks&, const LossRequest&) const {}
  /// What forward_partial has of a row besides tessera::Partial: so many words of 4 bytes.
  virtual std::int64_t own_partial_words() const { return 0; }

 private:
  LossPlaces places_;
  dispatch::Table rows_;
};

}  // namespace tessera::loss
