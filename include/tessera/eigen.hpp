// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <type_traits>

#include "tessera/view.hpp"

/// Views of Eigen matrices and maps with direct access; nothing is copied. Not part of
/// tessera.hpp, so that users without Eigen need none.
namespace tessera {

namespace eigen_detail {
template <class V, class Matrix>
auto make(Matrix& m) {
  static_assert(Matrix::Flags & Eigen::DirectAccessBit, "the expression must own memory");
  using Dense = std::remove_cv_t<Matrix>;
  if constexpr (Dense::IsVectorAtCompileTime) {
    return V::host(m.data(), Dims{m.size()}, Dims{m.innerStride()});
  } else {
    const auto inner = static_cast<std::int64_t>(m.innerStride());
    const auto outer = static_cast<std::int64_t>(m.outerStride());
    return V::host(m.data(), Dims{m.rows(), m.cols()},
                   Dense::IsRowMajor ? Dims{outer, inner} : Dims{inner, outer});
  }
}
}  // namespace eigen_detail

/// A View of shape [rows, cols] ([n] for vectors) with the matrix's own strides.
template <class Matrix>
View view(const Matrix& m) {
  return eigen_detail::make<View>(m);
}

/// The same, writable.
template <class Matrix>
MutableView mutable_view(Matrix& m) {
  return eigen_detail::make<MutableView>(m);
}

}  // namespace tessera
