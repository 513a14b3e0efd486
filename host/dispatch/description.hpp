// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tessera/execution.hpp"
#include "tessera/view.hpp"

/// What an operator says of itself, for whatever iterates over operators: validation, cost, tests,
/// bench and tuner.
namespace tessera::dispatch {

/// A view of a request and its name in the public structs.
struct NamedView {
  const char* name;
  View view;
};

/// One argument of an operator.
struct Argument {
  const char* name;
  const char* shape;  ///< in the letters of the operator's header: "[..., H]"
  const char* types;  ///< "f32, bf16, f16"
  bool optional;
};

struct Description {
  const char* name;
  std::vector<Pass> passes;
  std::vector<Argument> inputs;
  std::vector<Argument> outputs;
  std::vector<Argument> gradients;
  std::vector<NamedValue> default_block_sizes;  ///< the configuration space's axes
};

}  // namespace tessera::dispatch
