// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host/arguments/checks.hpp"
#include "host/loss/request.hpp"

/// The checks of the arguments that every loss operator shares, on those of every operator
/// (host/arguments/checks.hpp).
namespace tessera::loss {

/// Checks the loss half of a call whose logits have shape [leading, v] and whose options are in
/// their ranges: puts its views into their normal shape and fills in what is found out. `source`
/// names where `leading` comes from: "the leading axes of x". `nll_weight` is given where rows have
/// other terms than nll and z-loss: 1 - alpha. With 0 they need no target.
void check_loss(arguments::Checks& checks, LossRequest& request, const LossOptions& options,
                std::optional<float> nll_weight, const Dims& leading, std::int64_t v,
                const arguments::Source& source);

/// Error naming the first row whose target in host memory is none: a label that is neither
/// ignore_index nor in the vocabulary, a probability that is negative or NaN, a word twice. Waits
/// for `wait_for` first: until then the targets may not have been written.
void check_targets(const arguments::Checks& checks, LossRequest& request,
                   const std::vector<cl_event>& wait_for);

}  // namespace tessera::loss
