// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/context.hpp"
#include "tessera/cost_estimate.hpp"
#include "tessera/execution.hpp"
#include "tessera/view.hpp"

/// Root mean square normalisation over the last axis (Zhang and Sennrich, 2019):
/// y = x / sqrt(mean(x^2) + epsilon) * (offset + scale). It precedes an output projection.
namespace tessera::rms_norm {

/// `b_block_size` rows share one work-group; those of backward leave one sum for grad_scale. On
/// `tpu_tile` they are a block in VMEM: a multiple of 8, or all rows.
struct BlockSizes {
  std::int64_t b_block_size = 64;

  static BlockSizes get_default() { return {}; }
  /// By name, in the order in which programs take them.
  static constexpr auto axes() {
    return std::array<BlockSizeAxis<BlockSizes>, 1>{{{"b_block_size", &BlockSizes::b_block_size}}};
  }
  friend bool operator==(const BlockSizes&, const BlockSizes&) = default;
};

/// What is read; each may be f32, bf16 or f16, with any strides.
struct Inputs {
  View x{};      ///< [..., H]; leading axes flatten to B
  View scale{};  ///< [H]; not given: the factor is 1
  View dy{};     ///< cotangent of y, [..., H]; backward alone, which needs it
};

struct Outputs {
  MutableView y{};  ///< [..., H], of any floating type; may be the very view x (in place)
};

/// Gradient views; those not given are not computed.
struct Gradients {
  MutableView grad_x{};      ///< [..., H]; may be the very view x (in place)
  MutableView grad_scale{};  ///< [H]; only where a scale is given
  bool accumulate = false;   ///< add to what is there; formed in f32, rounded once
};

/// Which gradients a call without views returns.
struct Wants {
  bool grad_x = true;
  bool grad_scale = true;  ///< only where a scale is given
};

struct Options {
  /// At 0 a row of zeros gives NaN, as in PyTorch.
  float epsilon = 1e-6f;
  /// Added to scale: 1 where weights are stored as their distance from 1, as Gemma's are.
  float offset = 0.0f;
  Wants wants{};
};

using ExecutionOptions = tessera::ExecutionOptions<BlockSizes>;

/// Owned results; those not asked for are empty.
struct Result {
  HostTensor y{};           ///< of the type of x
  HostTensor grad_x{};      ///< of the type of x
  HostTensor grad_scale{};  ///< f32
  Dispatch dispatch{};
};

// Errors, and when a call with views returns, are those of softmax_cross_entropy's functions.

/// y.
TESSERA_API Result forward(Context& context, const Inputs& inputs, const Options& options = {},
                           const ExecutionOptions& execution = {});
inline Result forward(Context& context, const Inputs& inputs, Defaults, Defaults) {
  return forward(context, inputs, Options{}, ExecutionOptions{});
}
/// The gradients that `options.wants` names, from x and dy alone.
TESSERA_API Result backward(Context& context, const Inputs& inputs, const Options& options = {},
                            const ExecutionOptions& execution = {});
inline Result backward(Context& context, const Inputs& inputs, Defaults, Defaults) {
  return backward(context, inputs, Options{}, ExecutionOptions{});
}

/// Writes y.
TESSERA_API Completion forward(Context& context, const Inputs& inputs, const Outputs& outputs,
                               const Options& options, const ExecutionOptions& execution = {});
/// Writes, or adds to, the gradients that are given, at least one.
TESSERA_API Completion backward(Context& context, const Inputs& inputs, const Gradients& gradients,
                                const Options& options, const ExecutionOptions& execution = {});

// Questions, as softmax_cross_entropy's.

TESSERA_API Plan plan(Context& context, Pass pass, const Inputs& inputs, const Outputs& outputs,
                      const Gradients& gradients, const Options& options = {},
                      const ExecutionOptions& execution = {});
TESSERA_API std::optional<std::string> why_unsupported(Context& context,
                                                       const std::string& implementation, Pass pass,
                                                       const Inputs& inputs, const Outputs& outputs,
                                                       const Gradients& gradients,
                                                       const Options& options = {},
                                                       const ExecutionOptions& execution = {});
TESSERA_API std::vector<ImplementationInfo> implementations();
TESSERA_API CostEstimate cost_estimate(Context& context, Pass pass, const Inputs& inputs,
                                       const Outputs& outputs, const Gradients& gradients,
                                       const Options& options = {},
                                       const ExecutionOptions& execution = {});
TESSERA_API std::pair<BlockSizes, BlockSource> infer_block_sizes(Context& context,
                                                                 const std::string& implementation,
                                                                 Pass pass, const Inputs& inputs);

}  // namespace tessera::rms_norm
