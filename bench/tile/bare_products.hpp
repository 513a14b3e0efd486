// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

namespace tessera::bench {

/// The loss's matrix products and nothing else, through Eigen in f32, row-major: what the fused
/// loss on the tile machine is compared with.
class BareProducts {
 public:
  /// Each product is cut into one piece per thread. 0: one per hardware thread.
  BareProducts(std::int64_t b, std::int64_t h, std::int64_t v, int threads);
  ~BareProducts();
  /// logits = x . w, of [b, h] and [h, v]
  void forward(const float* x, const float* w);
  /// forward; dx = logits . w', dw = x' . logits
  void backward(const float* x, const float* w, float* dx, float* dw);
  const float* logits() const;
  int threads() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::bench
