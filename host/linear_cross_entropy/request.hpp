// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/dispatch/description.hpp"
#include "host/dispatch/table.hpp"
#include "host/loss/request.hpp"
#include "host/loss/validate.hpp"
#include "tessera/cost_estimate.hpp"
#include "tessera/linear_cross_entropy.hpp"

namespace tessera::linear_cross_entropy {

/// A validated call, the same for every implementation: shapes agree, types are legal, host labels
/// are in range, writable views do not overlap anything, block sizes are positive.
struct Request {
  using Blocks = BlockSizes;

  loss::LossRequest loss{};
  View x{};     ///< [leading, h]
  View w{};     ///< [h, v], any strides
  View bias{};  ///< [v] or empty
  std::int64_t h = 0;
  Gradients gradients{};  ///< grad_x [leading, h], grad_w [h, v], grad_bias [v]; empty: not wanted
  ExecutionOptions execution{};  ///< block_sizes already merged with block_size

  std::string operation() const {
    return std::string("linear_cross_entropy.") + to_string(loss.pass);
  }
  const std::vector<std::string>& implementation_names() const {
    return execution.implementation.names();
  }
  const std::vector<NamedValue>& knobs() const { return execution.knobs; }
  std::string output_names() const;  ///< "loss, lse, grad_w": the views given, for messages
};

/// Checks a call and returns it in its normal form. Throws Error before anything is touched.
/// Form::owned: `outputs` and `gradients` are described by `options.wants`, without memory yet.
Request make_request(const ContextState& state, Pass pass, const Inputs& inputs,
                     const Outputs& outputs, const Gradients& gradients, const LossOptions& options,
                     const ExecutionOptions& execution, loss::Form form);
/// Every input that a request gives, and every view that it writes, by name.
std::vector<dispatch::NamedView> input_views(const Request& request);
std::vector<dispatch::NamedView> output_views(const Request& request);
/// What the operator says of itself.
const dispatch::Description& description();
/// Cost of a request under the given blocks; `formed`: how often each logit is formed.
CostEstimate cost(const Request& request, const BlockSizes& blocks, std::int64_t formed);

/// The rows of the table, in order. Each implementation's file defines one of the functions below.
const dispatch::Table<Request>& table();

dispatch::Implementation<Request> eigen_implementation();      ///< eigen.cpp
dispatch::Implementation<Request> tile_implementation();       ///< tile/implementation.cpp
dispatch::Implementation<Request> reference_implementation();  ///< reference.cpp
/// opencl.cpp: one row per kernel family, best first. Not called where OpenCL is compiled out.
std::vector<dispatch::Implementation<Request>> opencl_implementations();

}  // namespace tessera::linear_cross_entropy
