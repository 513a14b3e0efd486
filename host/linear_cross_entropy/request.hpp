// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "host/linear/request.hpp"
#include "host/linear_cross_entropy/traits.hpp"

namespace tessera::linear_cross_entropy {

/// A validated call: x [leading, H], w [H, V] with any strides, bias [V] or empty.
using Request = linear::Request;
using linear::hidden;

inline Request request_of(const dispatch::Request& request) {
  return linear::request_of<Operator>(loss::loss_request(request));
}

/// Cost of a request under the given blocks; `formed`: how often each logit is formed.
CostEstimate cost(const Request& request, const BlockSizes& blocks, std::int64_t formed);

// Each implementation's file defines one of these rows.
std::unique_ptr<dispatch::Implementation> eigen_implementation();      ///< eigen.cpp
std::unique_ptr<dispatch::Implementation> tile_implementation();       ///< tile/implementation.cpp
std::unique_ptr<dispatch::Implementation> reference_implementation();  ///< reference.cpp
dispatch::Table opencl_implementations();                              ///< opencl/run.cpp

}  // namespace tessera::linear_cross_entropy
