// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "host/linear/request.hpp"
#include "host/loss/streaming.hpp"
#include "reference/streaming/linear.hpp"

/// What operators share whose logits are the product of x [..., H] and w [H, V] on the host: the
/// walk of reference/streaming/linear.hpp, planned, reported and given its arrays.
namespace tessera::linear {

using loss::LossRequest;
using loss::streaming_type;
using loss::StreamingCall;
using loss::StreamingRows;

/// What the walk has to know of a call.
streaming::LinearShape walk_shape(const Request& request, int threads);

/// The row `eigen` of an operator.
class Walk : public loss::Streaming<streaming::LinearPlan> {
 public:
  using Plan = streaming::LinearPlan;
  Walk() : Streaming("streaming, blockwise, on the host's threads with Eigen's matrix products") {}

 protected:
  /// What `walk_shape` says, and what the operator's walk does besides.
  virtual streaming::LinearShape shape(const LossRequest& request, int threads) const = 0;
  /// Tables of rows and widened vectors: everything the operator takes besides the walk's memory.
  virtual std::int64_t table_bytes(const LossRequest& request) const = 0;
  /// What a plan without the caller's blocks has chosen.
  static BlockSizes blocks_of(const Plan& plan) {
    return {plan.rows_per_chunk(), plan.h_block, plan.v_block};
  }

 private:
  Plan make_plan(ContextState& state, const LossRequest& request) const final;
  void describe(const LossRequest& request, const Plan& plan, Dispatch& dispatch) const final;
  std::int64_t minimum_bytes(ContextState& state, const LossRequest& request) const final;
};

/// The arrays of a layer, on the host.
void set_layer(streaming::LinearLayer& layer, const View& x, const View& w, const View& bias,
               const StreamingCall& call);
/// Where gradients go: those given, on the host.
void set_gradients(streaming::LinearProblem& p, const Request& request, const StreamingCall& call);

}  // namespace tessera::linear
