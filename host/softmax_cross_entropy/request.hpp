// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "host/loss/request.hpp"
#include "host/operators/bind.hpp"
#include "host/softmax_cross_entropy/traits.hpp"

namespace tessera::softmax_cross_entropy {

/// A validated call by the names of the operator's structs: logits [leading, V]; grad_logits may be
/// the view `logits` itself. It refers to the call, which outlives it.
struct Request {
  struct {
    const View& logits;
  } inputs;
  struct {
    const MutableView& grad_logits;
    bool accumulate;
  } gradients;
  struct {
    std::optional<BlockSizes> block_sizes;
    const std::optional<std::size_t>& workspace_bytes;
    const std::vector<NamedValue>& knobs;
  } execution;
  const loss::LossRequest& loss;
};

inline Request request_of(const dispatch::Request& request) {
  const auto& loss = loss::loss_request(request);
  const auto& call = loss.call;
  return {.inputs = {operators::input<Operator, &Inputs::logits>(call)},
          .gradients = {call.gradients[0], call.accumulate[0]},
          .execution = {operators::blocks_as<BlockSizes>(call.block_sizes), call.workspace_bytes,
                        call.knobs},
          .loss = loss};
}

/// The blocks decide who reads a logit, not how often it is read.
CostEstimate cost(const Request& request);

// Each implementation's file defines one of these rows.
std::unique_ptr<dispatch::Implementation> eigen_implementation();      ///< eigen.cpp
std::unique_ptr<dispatch::Implementation> reference_implementation();  ///< reference.cpp
dispatch::Table opencl_implementations();                              ///< opencl.cpp

}  // namespace tessera::softmax_cross_entropy
