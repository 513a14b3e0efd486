// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "bench/arrays.hpp"

namespace tessera::bench {

/// The baseline `eigen.gemm`: bare Eigen products of a row's shape in f32, with the logits in
/// memory and no loss: x . w forward; with gradients also dz . w^T and x^T . dz. Each product is
/// cut into one piece per thread.
class EigenGemm {
 public:
  EigenGemm(const Row& row, int threads);
  ~EigenGemm();
  void run(const Views& views);
  const float* logits() const;
  /// Bytes beyond the operator's own arrays: the logits.
  std::int64_t extra_bytes() const;
  /// Why there is no such row, or empty.
  static std::string why_not(const Row& row);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::bench
