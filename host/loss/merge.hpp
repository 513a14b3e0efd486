// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "host/arguments/checks.hpp"
#include "host/loss/request.hpp"

/// What the `combine` of an operator with more terms in its loss is made of.
namespace tessera::loss {

/// The checks of `combine`: the whole, as an ordinary forward would see it. `request` has the
/// options and wants of a forward and no view yet; the results it wants are described. `nll_weight`
/// is that of `check_loss`.
void check_combine(arguments::Checks& checks, LossRequest& request, const PartialResult& merged,
                   const CombineInputs& inputs, const LossOptions& options,
                   std::optional<float> nll_weight);

/// Fills the outputs of `result`, which are allocated, from the whole's rows. `own(row, counts)` is
/// called for each row: it writes what outputs the operator has besides, and returns what the loss
/// of a row that counts has besides; empty: there is neither.
void combine_rows(const LossRequest& request, const PartialResult& merged,
                  const std::function<double(std::int64_t row, bool counts)>& own,
                  LossResult& result);

}  // namespace tessera::loss
