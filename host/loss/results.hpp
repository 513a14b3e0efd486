// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "host/loss/request.hpp"

/// Results that the library owns.
namespace tessera::loss {

/// Fills the request's outputs with views without memory for what `wants` names, so that they can
/// be described (plan) or allocated (calls that own their results). The loss always is among them.
void describe_outputs(LossRequest& request);
/// The [b, 8] view without memory of forward_partial's rows.
void describe_partial(LossRequest& request);

/// Gives the request's outputs the memory of new tensors of `result`. Throws Error out_of_memory.
void allocate_outputs(LossRequest& request, LossResult& result);
/// The rows of forward_partial.
void allocate_partial(LossRequest& request, PartialResult& result);

}  // namespace tessera::loss
