// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/dispatch/table.hpp"
#include "host/loss/request.hpp"
#include "tessera/linear_cross_entropy.hpp"

namespace tessera::linear_cross_entropy {

/// A validated call, the same for every implementation: shapes agree, types are legal, host labels
/// are in range, writable views do not overlap anything, block sizes are positive.
struct Request {
  loss::LossRequest loss{};
  View x{};                 ///< [leading, h]
  View w{};                 ///< [h, v], any strides
  View bias{};              ///< [v] or empty
  std::int64_t h = 0;
  Gradients gradients{};    ///< grad_x [leading, h], grad_w [h, v], grad_bias [v]; empty: not wanted
  ExecutionOptions execution{};  ///< block_sizes already merged with block_size

  std::string operation() const {
    return std::string("linear_cross_entropy.") + to_string(loss.pass);
  }
  const std::vector<std::string>& implementation_names() const {
    return execution.implementation.names();
  }
  std::string output_names() const;  ///< "loss, lse, grad_w": the views given, for messages
};

/// The rows of the table, in order. Each implementation's file defines one of the functions below.
const dispatch::Table<Request>& table();

dispatch::Implementation<Request> eigen_implementation();      ///< eigen.cpp
dispatch::Implementation<Request> reference_implementation();  ///< reference.cpp
/// opencl.cpp: one row per kernel family, best first. Not called where OpenCL is compiled out.
std::vector<dispatch::Implementation<Request>> opencl_implementations();

}  // namespace tessera::linear_cross_entropy
