// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "host/loss/operator.hpp"
#include "tessera/linear_distillation.hpp"

namespace tessera::linear_distillation {

/// A validated call: x [leading, H], w [H, V]; a teacher's layer, or its logits [leading, V].
using Request = loss::OperatorRequest<Operator>;

/// H, and the width of the teacher's layer, 0 where its logits are given.
inline std::int64_t hidden(const Request& request) { return request.inputs.x.extents().back(); }
inline std::int64_t teacher_hidden(const Request& request) {
  return request.inputs.teacher_logits ? 0 : request.inputs.teacher_x.extents().back();
}

/// Cost of a request; `formed`: how often each logit, of student and teacher, is formed.
CostEstimate cost(const Request& request, std::int64_t formed);

// Each implementation's file defines one of these rows.
dispatch::Implementation<Request> eigen_implementation();      ///< eigen.cpp
dispatch::Implementation<Request> reference_implementation();  ///< reference.cpp

}  // namespace tessera::linear_distillation

template <>
struct tessera::loss::HostTraits<tessera::linear_distillation::Operator> {
  using Request = linear_distillation::Request;
  using PartialRow = linear_distillation::DivergenceSums;
  static std::vector<PartialRow>& own_rows(const Request& request,
                                           linear_distillation::PartialResult& result) {
    result.divergence = linear_distillation::effective_divergence(request.options);
    return result.divergence_rows;
  }
  /// The options, the teacher, and what a shard has to know.
  static void check(const arguments::Checks& checks, const Request& request);
  static float nll_weight(const linear_distillation::Options& options) {
    return 1.0f - options.alpha;
  }
  static CostEstimate cost(const Request& request, const linear_distillation::BlockSizes&) {
    return linear_distillation::cost(request, 1);
  }
  static dispatch::Table<Request> opencl();
  static dispatch::Table<Request> host() {
    using namespace linear_distillation;
    return {eigen_implementation(), reference_implementation()};
  }
};
