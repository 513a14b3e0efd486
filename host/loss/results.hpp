// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "host/dispatch/description.hpp"
#include "host/loss/request.hpp"

/// Results that the library owns.
namespace tessera::loss {

/// Fills the request's outputs with views without memory for what `wants` names, so that they can
/// be described (plan) or allocated (calls that own their results). The loss always is among them.
void describe_outputs(LossRequest& request);
/// The [b, 8] view without memory of forward_partial's rows.
void describe_partial(LossRequest& request);

/// Gives a view without memory the memory of a new tensor; nothing for a view not given. `name` is
/// for Error out_of_memory.
void allocate(MutableView& view, HostTensor& tensor, const char* name);
/// The same for all loss outputs of the request.
void allocate_outputs(LossRequest& request, LossResult& result);

/// The rows of forward_partial.
void allocate_partial(LossRequest& request, PartialResult& result);

/// The loss half of an operator's lists of views: those that the request gives.
std::vector<dispatch::NamedView> input_views(const LossRequest& request);
std::vector<dispatch::NamedView> output_views(const LossRequest& request);
/// Both lists in one, without views that are not given.
std::vector<dispatch::NamedView> given(std::vector<dispatch::NamedView> first,
                                       const std::vector<dispatch::NamedView>& second);
/// "loss, lse"
std::string names(const std::vector<dispatch::NamedView>& views);

/// The loss half of an operator's description; `own` are the operator's own inputs.
std::vector<dispatch::Argument> input_arguments(std::vector<dispatch::Argument> own);
std::vector<dispatch::Argument> output_arguments();
inline constexpr const char* floating_types = "f32, bf16, f16";

}  // namespace tessera::loss
