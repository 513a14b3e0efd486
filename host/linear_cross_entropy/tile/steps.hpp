// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>

#include "host/linear_cross_entropy/tile/kernel.hpp"
#include "host/operators/tile_machine.hpp"

// What the two kernels of the loss share. Each step is a vector operation on whole blocks.
namespace tessera::linear_cross_entropy::tpu_tile {

using operators::Optional;
using tile::all;
using tile::BlockSpec;
using tile::column;
using tile::ds;
using tile::Ref;

inline constexpr float infinity = std::numeric_limits<float>::infinity();

/// logits = cap * tanh(scale * (logits + bias) / cap), in place; columns from `valid` on, which are
/// behind the vocabulary, become -Inf. `bias` may be null.
void finish_logits(const Kernel& k, const Ref<float>& logits, const Ref<float>* bias,
                   std::int64_t valid);

}  // namespace tessera::linear_cross_entropy::tpu_tile
