// SPDX-License-Identifier: Apache-2.0
// This unit alone is compiled for the machine it is built on, so its Eigen must not meet another.
#define Eigen Eigen_native
#define EIGEN_DONT_PARALLELIZE
#include "bench/tile/bare_products.hpp"

#include <Eigen/Core>
#include <thread>

#include "bench/pieces.hpp"

namespace tessera::bench {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Input = Eigen::Map<const Matrix>;
using Output = Eigen::Map<Matrix>;

}  // namespace

struct BareProducts::Impl {
  std::int64_t b, h, v;
  int threads;
  Matrix logits;
};

BareProducts::BareProducts(std::int64_t b, std::int64_t h, std::int64_t v, int threads) {
  const auto hardware = static_cast<int>(std::thread::hardware_concurrency());
  const int count = threads > 0 ? threads : hardware > 0 ? hardware : 1;
  impl_.reset(new Impl{b, h, v, count, {}});
  impl_->logits.setZero(b, v);
}
BareProducts::~BareProducts() = default;

const float* BareProducts::logits() const { return impl_->logits.data(); }
int BareProducts::threads() const { return impl_->threads; }

void BareProducts::forward(const float* x_data, const float* w_data) {
  const Input x(x_data, impl_->b, impl_->h), w(w_data, impl_->h, impl_->v);
  in_pieces(impl_->v, impl_->threads, [&](std::int64_t first, std::int64_t count) {
    impl_->logits.middleCols(first, count).noalias() = x * w.middleCols(first, count);
  });
}

void BareProducts::backward(const float* x_data, const float* w_data, float* dx_data,
                            float* dw_data) {
  forward(x_data, w_data);
  const Input x(x_data, impl_->b, impl_->h), w(w_data, impl_->h, impl_->v);
  Output dx(dx_data, impl_->b, impl_->h), dw(dw_data, impl_->h, impl_->v);
  in_pieces(impl_->h, impl_->threads, [&](std::int64_t first, std::int64_t count) {
    dx.middleCols(first, count).noalias() = impl_->logits * w.middleRows(first, count).transpose();
  });
  in_pieces(impl_->v, impl_->threads, [&](std::int64_t first, std::int64_t count) {
    dw.middleCols(first, count).noalias() = x.transpose() * impl_->logits.middleCols(first, count);
  });
}

}  // namespace tessera::bench
