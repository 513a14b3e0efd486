// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <string>
#include <type_traits>

#include "host/linear_cross_entropy/tile.hpp"

// What the two kernels of the loss share. Each step is a vector operation on whole tiles.
namespace tessera::linear_cross_entropy::tile_loss {

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
      : given_(array.has_value()), array_(array ? *array : machine.empty<T>("no " + name, {1})) {}
  explicit operator bool() const { return given_; }
  const tile::Array<T>& array() const { return array_; }
  BlockSpec spec(const BlockSpec& blocks) const { return given_ ? blocks : BlockSpec::in_hbm(); }

 private:
  bool given_;
  tile::Array<T> array_;
};

/// logits = cap * tanh(scale * (logits + bias) / cap), in place; columns from `valid` on, which are
/// behind the vocabulary, become -Inf. `bias` is a ref, or 0.
template <class Bias>
void finish_logits(const Kernel& k, const Ref<float>& logits, const Bias& bias,
                   std::int64_t valid) {
  const float scale = k.scale;
  const float cap = k.cap;
  if (cap != 0.0f) {
    const float inverse = 1.0f / cap;
    tile::map(
        logits, {4, 1},
        [=](float z, float b) { return cap * tile::tanh((z + b) * scale * inverse); }, logits,
        bias);
  } else if (!std::is_same_v<Bias, float> || scale != 1.0f) {
    tile::map(
        logits, {2, 0}, [=](float z, float b) { return (z + b) * scale; }, logits, bias);
  }
  if (valid < logits.extent(1)) {
    tile::fill(logits.at(all, ds(valid, logits.extent(1) - valid)), -infinity);
  }
}

}  // namespace tessera::linear_cross_entropy::tile_loss
