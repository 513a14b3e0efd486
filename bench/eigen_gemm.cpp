// SPDX-License-Identifier: Apache-2.0
// This unit alone is compiled for the machine it is built on, so its Eigen must not meet another.
#define Eigen Eigen_native
#define EIGEN_DONT_PARALLELIZE
#include "bench/eigen_gemm.hpp"

#include <Eigen/Core>

#include "bench/operator.hpp"
#include "bench/pieces.hpp"

namespace tessera::bench {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Input = Eigen::Map<const Matrix>;
using Output = Eigen::Map<Matrix>;

const float* of(const View& view) { return static_cast<const float*>(view.host_data()); }
float* of(const MutableView& view) { return static_cast<float*>(view.host_data()); }

}  // namespace

struct EigenGemm::Impl {
  Row row;
  std::int64_t threads;
  Matrix logits;
};

EigenGemm::EigenGemm(const Row& row, int threads) : impl_(new Impl{row, threads, {}}) {
  impl_->logits.resize(row.problem.shape['B'], row.problem.shape['V']);
}
EigenGemm::~EigenGemm() = default;

const float* EigenGemm::logits() const { return impl_->logits.data(); }
std::int64_t EigenGemm::extra_bytes() const {
  return impl_->logits.size() * static_cast<std::int64_t>(sizeof(float));
}

std::string EigenGemm::why_not(const Row& row) {
  if (auto reason = row.problem.op->why_no_products(); !reason.empty()) return reason;
  if (row.problem.x != DType::f32 || row.problem.w != DType::f32)
    return "Eigen multiplies f32 only";
  return "";
}

void EigenGemm::run(const Views& views) {
  const auto [b, h, v] = impl_->row.problem.layer();
  const bool vh = impl_->row.problem.w_is_vh;
  Matrix& logits = impl_->logits;
  const Input x(of(views.inputs["x"]), b, h);
  const Input w(of(views.inputs["w"]), vh ? v : h, vh ? h : v);
  in_pieces(v, impl_->threads, [&](std::int64_t first, std::int64_t count) {
    if (vh) {
      logits.middleCols(first, count).noalias() = x * w.middleRows(first, count).transpose();
    } else {
      logits.middleCols(first, count).noalias() = x * w.middleCols(first, count);
    }
  });
  if (const auto& view = views.outputs["grad_x"]) {
    Output grad_x(of(view), b, h);
    in_pieces(h, impl_->threads, [&](std::int64_t first, std::int64_t count) {
      if (vh) {
        grad_x.middleCols(first, count).noalias() = logits * w.middleCols(first, count);
      } else {
        grad_x.middleCols(first, count).noalias() = logits * w.middleRows(first, count).transpose();
      }
    });
  }
  if (const auto& view = views.outputs["grad_w"]) {
    Output grad_w(of(view), vh ? v : h, vh ? h : v);
    in_pieces(v, impl_->threads, [&](std::int64_t first, std::int64_t count) {
      if (vh) {
        grad_w.middleRows(first, count).noalias() = logits.middleCols(first, count).transpose() * x;
      } else {
        grad_w.middleCols(first, count).noalias() = x.transpose() * logits.middleCols(first, count);
      }
    });
  }
}

}  // namespace tessera::bench
