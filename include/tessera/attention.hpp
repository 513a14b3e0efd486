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

/// Attention: y = softmax(scale q k^T) v over the keys that a query sees, with grouped heads,
/// windows, lengths, a bias, a soft cap, ALiBi and sinks. The S x T logits never exist in memory.
///
/// With n the number of keys of a sequence (T, or its length) and p = i + n - S the place of query
/// i among the keys (i under `Causal::upper_left`), query i sees key j < n where j <= p (causal),
/// j >= p - window_left, j <= p + window_right, and the bias is not -Inf. With
///
///     s_ij = cap tanh(scale q_i.k_j / cap) + bias_ij - slope |p - j|
///
/// over the keys that it sees, lse_i = log(sum_j exp(s_ij) + exp(sink)), natural, and
/// y_i = sum_j exp(s_ij - lse_i) v_j. A query that sees no key has y 0 and lse -Inf (the sink,
/// where there is one). A NaN in q, in a k or a bias that it sees, or a logit of +Inf, makes its y
/// and lse NaN, and no other's; what it does not see has no effect on it, whatever is there.
namespace tessera::attention {

/// A block has `q_block_size` rows, which are queries of all heads that share a head of k, and
/// `kv_block_size` keys.
struct BlockSizes {
  std::int64_t q_block_size = 256;
  std::int64_t kv_block_size = 128;

  static BlockSizes get_default() { return {}; }
  /// By name, in the order in which programs take them.
  static constexpr auto axes() {
    return std::array<BlockSizeAxis<BlockSizes>, 2>{
        {{"q_block_size", &BlockSizes::q_block_size},
         {"kv_block_size", &BlockSizes::kv_block_size}}};
  }
  friend bool operator==(const BlockSizes&, const BlockSizes&) = default;
};

/// Arrays to read; the floating ones are f32, bf16 or f16, each of its own type, with any strides:
/// where tokens stand before heads in memory, a view says so. Leading axes are the batch, none or
/// several.
struct Inputs {
  View q{};             ///< [..., Q, S, D]: Q heads of S queries; D is 1 to 512
  View k{};             ///< [..., K, T, D]: head h of q reads head h / (Q / K) of k and v
  View v{};             ///< [..., K, T, E]; E is 1 to 512
  View bias{};          ///< [..., Q, S, T], any axis of which may be 1; added to the logits
  View kv_lengths{};    ///< [...], i32 or i64, 0 to T: keys from there on are never read
  View sinks{};         ///< [Q]: a logit without a value in each row of the head; -Inf: none
  View alibi_slopes{};  ///< [Q]
};

struct Outputs {
  MutableView y{};    ///< [..., Q, S, E], of any floating type
  MutableView lse{};  ///< [..., Q, S], f32
};

/// None yet.
struct Gradients {};

/// The outputs that a call without views returns besides y.
struct Wants {
  bool lse = false;
};

/// The keys behind its own place that a query sees.
enum class Causal {
  no,           ///< all
  lower_right,  ///< none; the last query stands at the last key (FlashAttention's causal)
  upper_left    ///< none; the first query stands at the first key (PyTorch's is_causal)
};

struct Options {
  std::optional<float> scale{};    ///< of q.k; unset: 1 / sqrt(D)
  Causal causal = Causal::no;      ///< upper_left also places the queries of windows and slopes
  std::int64_t window_left = -1;   ///< keys before the query's own that it sees; -1: all
  std::int64_t window_right = -1;  ///< keys behind the query's own that it sees; -1: all
  float logit_soft_cap = 0.0f;     ///< 0: none
  Wants wants{};
};

using ExecutionOptions = tessera::ExecutionOptions<BlockSizes>;

/// Owned results; those not asked for are empty.
struct Result {
  HostTensor y{};    ///< of the type of q; where q has tokens before heads in memory, so has y
  HostTensor lse{};  ///< f32
  Dispatch dispatch{};
};

// Errors, and when a call with views returns, are those of softmax_cross_entropy's functions.

/// y, and lse where it is wanted. A length that is negative or beyond T is an Error.
TESSERA_API Result forward(Context& context, const Inputs& inputs, const Options& options = {},
                           const ExecutionOptions& execution = {});
inline Result forward(Context& context, const Inputs& inputs, Defaults, Defaults) {
  return forward(context, inputs, Options{}, ExecutionOptions{});
}
/// Writes the outputs that are given, at least one.
TESSERA_API Completion forward(Context& context, const Inputs& inputs, const Outputs& outputs,
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

}  // namespace tessera::attention
