// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "host/loss/operator.hpp"
#include "tessera/linear_cross_entropy.hpp"

namespace tessera::linear_cross_entropy {

/// A validated call: x [leading, H], w [H, V] with any strides, bias [V] or empty.
using Request = loss::OperatorRequest<Operator>;

/// H.
inline std::int64_t hidden(const Request& request) { return request.inputs.x.extents().back(); }

/// Cost of a request under the given blocks; `formed`: how often each logit is formed.
CostEstimate cost(const Request& request, const BlockSizes& blocks, std::int64_t formed);

// Each implementation's file defines one of these rows.
dispatch::Implementation<Request> eigen_implementation();      ///< eigen.cpp
dispatch::Implementation<Request> tile_implementation();       ///< tile/implementation.cpp
dispatch::Implementation<Request> reference_implementation();  ///< reference.cpp

}  // namespace tessera::linear_cross_entropy

template <>
struct tessera::loss::HostTraits<tessera::linear_cross_entropy::Operator> {
  using Request = linear_cross_entropy::Request;
  /// dz_dtype.
  static void check(const arguments::Checks& checks, const Request& request);
  static CostEstimate cost(const Request& request, const linear_cross_entropy::BlockSizes& blocks) {
    return linear_cross_entropy::cost(request, blocks, 1);
  }
  static dispatch::Table<Request> opencl();  ///< opencl/implementation.cpp
  static dispatch::Table<Request> host() {
    using namespace linear_cross_entropy;
    return {eigen_implementation(), tile_implementation(), reference_implementation()};
  }
};
