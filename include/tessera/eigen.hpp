// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "tessera/view.hpp"

/// Views of Eigen matrices, vectors, maps and blocks; nothing is copied. Not part of tessera.hpp,
/// so that users without Eigen need none.
namespace tessera {

namespace eigen_detail {

template <class Expression>
using Plain = std::remove_cvref_t<Expression>;

/// Only a reference to constant data may keep a copy of what it was given.
template <class Expression>
inline constexpr bool is_const_ref = false;
template <class Object, int options, class Stride>
inline constexpr bool is_const_ref<Eigen::Ref<const Object, options, Stride>> = true;

/// Matrices, arrays and `Ref<const ...>` hold elements that go when they go; maps, other references
/// and blocks look at elements that something else holds.
template <class Expression>
concept holds_elements =
    std::is_base_of_v<Eigen::PlainObjectBase<typename Plain<Expression>::PlainObject>,
                      Plain<Expression>> || is_const_ref<Plain<Expression>>;

/// A view of it is good for longer than the expression that makes it. `Expression` is what a
/// forwarding reference deduces: an lvalue reference for something that has a name.
template <class Expression>
concept outlives_the_view = std::is_lvalue_reference_v<Expression> || !holds_elements<Expression>;

/// Elements in memory, at strides: not a sum, a product or a cast, which are computed when read.
template <class Expression>
concept lies_in_memory = (Plain<Expression>::Flags & Eigen::DirectAccessBit) != 0;

template <class Expression>
concept writable = requires(Plain<Expression>& e) {
  { e.data() } -> std::same_as<typename Plain<Expression>::Scalar*>;
}
&&!std::is_const_v<std::remove_reference_t<Expression>>;

template <class Scalar>
constexpr DType dtype() {
  if constexpr (std::is_same_v<Scalar, Eigen::bfloat16>) {
    return DType::bf16;
  } else if constexpr (std::is_same_v<Scalar, Eigen::half>) {
    return DType::f16;
  } else {
    constexpr bool known = requires { dtype_of<Scalar>::value; };
    static_assert(known,
                  "tessera has views of float, Eigen::bfloat16, Eigen::half, tessera::bf16, "
                  "tessera::f16, std::int32_t and std::int64_t; cast the matrix to one of these");
    if constexpr (known) return dtype_of<Scalar>::value;
  }
}

template <class AnyView, class Expression>
AnyView make(Expression& e) {
  using Dense = std::remove_cv_t<Expression>;
  constexpr DType type = dtype<typename Dense::Scalar>();
  if constexpr (Dense::IsVectorAtCompileTime) {
    return AnyView::host(e.data(), type, Dims{e.size()}, Dims{e.innerStride()});
  } else {
    const auto inner = static_cast<std::int64_t>(e.innerStride());
    const auto outer = static_cast<std::int64_t>(e.outerStride());
    return AnyView::host(e.data(), type, Dims{e.rows(), e.cols()},
                         Dense::IsRowMajor ? Dims{outer, inner} : Dims{inner, outer});
  }
}

}  // namespace eigen_detail

/// A View of shape [rows, cols] ([n] for vectors) of a matrix, an array, a map, a reference, a
/// block or a transpose, with its own strides; element types as the static_assert above lists them.
///
/// The elements must outlive the view. A temporary matrix does not compile; a block or a transpose
/// of one does, since Eigen does not tell it from that of a matrix with a name: give it a name.
template <class Expression>
requires eigen_detail::outlives_the_view<Expression> && eigen_detail::lies_in_memory<Expression>
    View view(Expression&& expression) {
  return eigen_detail::make<View>(expression);
}

/// The same, writable: of what is not constant, e.g. `mutable_view(matrix.block(0, 0, 2, 3))`.
template <class Expression>
requires eigen_detail::outlives_the_view<Expression> && eigen_detail::lies_in_memory<Expression> &&
    eigen_detail::writable<Expression>
        MutableView mutable_view(Expression&& expression) {
  return eigen_detail::make<MutableView>(expression);
}

}  // namespace tessera
