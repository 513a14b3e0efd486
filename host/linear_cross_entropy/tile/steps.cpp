// SPDX-License-Identifier: Apache-2.0
#include "host/linear_cross_entropy/tile/steps.hpp"

namespace tessera::linear_cross_entropy::tpu_tile {

void finish_logits(const Kernel& k, const Ref<float>& logits, const Ref<float>* bias,
                   std::int64_t valid) {
  const float scale = k.scale;
  const float cap = k.cap;
  const auto in_place = [&](const tile::MapCost& cost, const auto& f) {
    if (bias != nullptr) {
      tile::map(logits, cost, f, logits, *bias);
    } else {
      tile::map(logits, cost, f, logits, 0.0f);
    }
  };
  if (cap != 0.0f) {
    const float inverse = 1.0f / cap;
    in_place({4, 1}, [=](float z, float b) { return cap * tile::tanh((z + b) * scale * inverse); });
  } else if (bias != nullptr || scale != 1.0f) {
    in_place({2, 0}, [=](float z, float b) { return (z + b) * scale; });
  }
  const std::int64_t width = logits.extent(1);
  if (valid < width) tile::fill(logits.at(all, ds(valid, width - valid)), -infinity);
}

}  // namespace tessera::linear_cross_entropy::tpu_tile
