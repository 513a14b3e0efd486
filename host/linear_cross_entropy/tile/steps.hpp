// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <string>

#include "host/linear_cross_entropy/tile/kernel.hpp"

// What the two kernels of the loss share. Each step is a vector operation on whole blocks.
namespace tessera::linear_cross_entropy::tpu_tile {

using tile::all;
using tile::BlockSpec;
using tile::column;
using tile::ds;
using tile::Ref;

inline constexpr float infinity = std::numeric_limits<float>::infinity();

/// An operand that a call may do without: then a scalar stays in HBM, which nobody copies.
template <class T>
class Optional {
 public:
  Optional(tile::Machine& machine, const std::optional<tile::Array<T>>& array,
           const std::string& name)
      : given_(array.has_value()),
        array_(array ? *array : machine.empty_ref<T>("no " + name, {1})) {}
  bool given() const { return given_; }
  const tile::Array<T>& array() const { return array_; }
  BlockSpec spec(const BlockSpec& blocks) const { return given_ ? blocks : BlockSpec::in_hbm(); }

 private:
  bool given_;
  tile::Array<T> array_;
};

/// logits = cap * tanh(scale * (logits + bias) / cap), in place; columns from `valid` on, which are
/// behind the vocabulary, become -Inf. `bias` may be null.
void finish_logits(const Kernel& k, const Ref<float>& logits, const Ref<float>* bias,
                   std::int64_t valid);

}  // namespace tessera::linear_cross_entropy::tpu_tile
