// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/data.hpp"

/// Hidden states [B, H] and words' weights [H, V] in the key's layout, whose products are logits of
/// a language model.
namespace tessera::bench {

/// Normal with a few strong channels, as hidden states of language models have them.
HostTensor hidden_states(const ProblemKey& key, std::uint64_t seed);
/// Their products with such hidden states have a spread of `spread_of_logits`.
HostTensor weights(const ProblemKey& key, std::uint64_t seed);

/// Hidden states and words whose probabilities are like a trained model's.
struct Trained {
  HostTensor x, w;
};
Trained trained(const ProblemKey& key, const std::vector<std::int32_t>& labels);

}  // namespace tessera::bench
