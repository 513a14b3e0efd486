// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "host/loss/operator.hpp"
#include "tessera/softmax_cross_entropy.hpp"

namespace tessera::softmax_cross_entropy {

/// A validated call: logits [leading, V]; grad_logits may be the view `logits` itself.
using Request = loss::OperatorRequest<Operator>;

CostEstimate cost(const Request& request);

// Each implementation's file defines one of these rows.
dispatch::Implementation<Request> eigen_implementation();      ///< eigen.cpp
dispatch::Implementation<Request> reference_implementation();  ///< reference.cpp

}  // namespace tessera::softmax_cross_entropy

template <>
struct tessera::loss::HostTraits<tessera::softmax_cross_entropy::Operator> {
  using Request = softmax_cross_entropy::Request;
  static void check(const arguments::Checks&, const Request&) {}
  // The blocks decide who reads a logit, not how often it is read.
  static CostEstimate cost(const Request& request, const softmax_cross_entropy::BlockSizes&) {
    return softmax_cross_entropy::cost(request);
  }
  static dispatch::Table<Request> opencl();  ///< opencl.cpp
  static dispatch::Table<Request> host() {
    using namespace softmax_cross_entropy;
    return {eigen_implementation(), reference_implementation()};
  }
};
