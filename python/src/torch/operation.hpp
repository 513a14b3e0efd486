// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "host/operators/call.hpp"

namespace tessera::torch_operators {

/// An operator of PyTorch: a pass of one of the library's, and what its arguments and results are.
/// Weights are [V, H], as PyTorch's modules have them.
struct Operation {
  Operation(const operators::Description& of, Pass a_pass);

  enum class Kind { input, option, wants_gradient, implementation, workspace_bytes };
  struct Argument {
    Kind kind;
    std::size_t at;    ///< place of the input, option or gradient in the description
    bool is_optional;  ///< of an input
  };

  /// "linear_cross_entropy_forward(Tensor x, Tensor w, Tensor? bias=None, ...) -> (Tensor loss,
  /// ...)"
  std::string schema() const;
  bool has_gradients() const { return tessera::has_gradients(pass); }

  const operators::Description* op;
  Pass pass;
  std::vector<Argument> arguments;   ///< in the order of the schema
  std::vector<std::size_t> outputs;  ///< places of those that the pass returns, before gradients
};

}  // namespace tessera::torch_operators
