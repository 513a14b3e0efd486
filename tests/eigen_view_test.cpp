// SPDX-License-Identifier: Apache-2.0
// Views of Eigen's matrices: element types, strides, and what does not compile. (What the compiler
// says of an element type without a view: compile_fail_test.py.)
#include <gtest/gtest.h>

#include "tessera/eigen.hpp"
#include "tessera/tessera.hpp"

namespace tessera {
namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Eigen::MatrixXf;

template <class Scalar>
using MatrixOf = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>;

template <class Expression>
constexpr bool has_view = requires(Expression&& e) {
  view(std::forward<Expression>(e));
};
template <class Expression>
constexpr bool has_mutable_view = requires(Expression&& e) {
  mutable_view(std::forward<Expression>(e));
};

/// Element (row, column) of a view, in float.
template <class T>
float at(const View& v, std::int64_t row, std::int64_t column = 0) {
  std::int64_t offset = row * v.strides()[0];
  if (v.rank() > 1) offset += column * v.strides()[1];
  return static_cast<float>(static_cast<const T*>(v.host_data())[offset]);
}

TEST(EigenView, StridesAreTheMatrixsOwn) {
  const MatrixXf columns = MatrixXf::Random(3, 5);
  const RowMajor rows = columns;
  EXPECT_EQ(view(columns).strides(), (Dims{1, 3}));
  EXPECT_EQ(view(rows).strides(), (Dims{5, 1}));
  EXPECT_EQ(view(columns.transpose()).extents(), (Dims{5, 3}));
  EXPECT_EQ(view(columns.transpose()).strides(), (Dims{3, 1}));
  const auto block = view(columns.block(1, 2, 2, 3));
  EXPECT_EQ(block.extents(), (Dims{2, 3}));
  const auto row = view(columns.row(1));
  EXPECT_EQ(row.extents(), (Dims{5}));
  EXPECT_EQ(row.strides(), (Dims{3}));
  const Eigen::VectorXf vector = columns.col(4);
  EXPECT_EQ(view(vector).extents(), (Dims{3}));
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(at<float>(view(vector), i), columns(i, 4));
    for (std::int64_t j = 0; j < 5; ++j) {
      EXPECT_EQ(at<float>(view(columns), i, j), columns(i, j));
      EXPECT_EQ(at<float>(view(rows), i, j), columns(i, j));
      EXPECT_EQ(at<float>(view(columns.transpose()), j, i), columns(i, j));
      if (i < 2 && j < 3) {
        EXPECT_EQ(at<float>(block, i, j), columns(i + 1, j + 2));
      }
    }
  }
  const std::vector<float> memory = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const auto every_other = view(Eigen::Map<const MatrixXf, 0, Eigen::Stride<6, 2>>(
      memory.data(), 3, 2, Eigen::Stride<6, 2>()));
  EXPECT_EQ(every_other.strides(), (Dims{2, 6}));
  EXPECT_EQ(at<float>(every_other, 2, 1), 10.0f);
}

TEST(EigenView, SixteenBitTypesOfBothLibraries) {
  const MatrixXf values = (MatrixXf(2, 2) << 1.5f, -2.0f, 0.25f, 3.0e-5f).finished();
  const MatrixOf<Eigen::bfloat16> brains = values.cast<Eigen::bfloat16>();
  const MatrixOf<Eigen::half> halves = values.cast<Eigen::half>();
  EXPECT_EQ(view(brains).dtype(), DType::bf16);
  EXPECT_EQ(view(halves).dtype(), DType::f16);
  for (std::int64_t i = 0; i < 2; ++i) {
    for (std::int64_t j = 0; j < 2; ++j) {
      EXPECT_EQ(at<bf16>(view(brains), i, j), static_cast<float>(brains(i, j)));
      EXPECT_EQ(at<f16>(view(halves), i, j), static_cast<float>(halves(i, j)));
    }
  }
  const Eigen::Array<bf16, 3, 1> ours = Eigen::Array<bf16, 3, 1>::Constant(bf16(2.0f));
  EXPECT_EQ(view(ours).dtype(), DType::bf16);
  MatrixOf<std::int64_t> labels(1, 1);
  const Eigen::VectorXi words(2);
  EXPECT_EQ(view(words).dtype(), DType::i32);
  EXPECT_EQ(mutable_view(labels).dtype(), DType::i64);
}

TEST(EigenView, WritesReachTheBlock) {
  MatrixXf e = MatrixXf::Zero(4, 5);
  const MutableView block = mutable_view(e.block(1, 2, 2, 3));
  EXPECT_EQ(block.extents(), (Dims{2, 3}));
  EXPECT_EQ(block.strides(), (Dims{1, 4}));
  static_cast<float*>(block.host_data())[1 * 1 + 2 * 4] = 7.0f;
  EXPECT_EQ(e(2, 4), 7.0f);
  EXPECT_EQ(mutable_view(e.row(3)).strides(), (Dims{4}));
  EXPECT_EQ(mutable_view(e.transpose()).extents(), (Dims{5, 4}));
  Eigen::Matrix<Eigen::half, 2, 2> halves;
  EXPECT_EQ(mutable_view(halves.leftCols(1)).dtype(), DType::f16);
  EXPECT_EQ(mutable_view(Eigen::Map<MatrixXf>(e.data(), 2, 2)).host_data(), e.data());
}

/// The whole operator over Eigen's types: a gradient into a block of a larger matrix.
TEST(EigenView, ThroughTheOperator) {
  Context context({.host_only = true, .warning_handler = [](const std::string&) {}});
  const Eigen::Matrix<Eigen::bfloat16, Eigen::Dynamic, Eigen::Dynamic> x =
      MatrixXf::Random(6, 4).cast<Eigen::bfloat16>();
  const MatrixXf w = MatrixXf::Random(4, 9);
  const Eigen::VectorXi labels = Eigen::VectorXi::LinSpaced(6, 0, 5);
  const linear_cross_entropy::Inputs in{.x = view(x), .labels = view(labels), .w = view(w)};
  const auto owned = linear_cross_entropy::value_and_grad(context, in);
  MatrixXf wide = MatrixXf::Constant(6, 20, -1.0f);
  linear_cross_entropy::value_and_grad(context, in, {},
                                       {.grad_w = mutable_view(wide.block(1, 3, 4, 9))}, {})
      .wait();
  EXPECT_EQ(wide.block(1, 3, 4, 9),
            Eigen::Map<const MatrixXf>(owned.grad_w.as<float>().data(), 4, 9));
  EXPECT_EQ(wide.sum() - wide.block(1, 3, 4, 9).sum(), -1.0f * (6 * 20 - 4 * 9));
}

// What a temporary holds is gone before the view is used; what it looks at stays.
using Block = Eigen::Block<MatrixXf>;
using Map = Eigen::Map<MatrixXf>;
using ConstMap = Eigen::Map<const MatrixXf>;
using Sum = decltype(std::declval<MatrixXf&>() + std::declval<MatrixXf&>());
static_assert(has_view<MatrixXf&> && has_view<const MatrixXf&>);
static_assert(!has_view<MatrixXf> && !has_view<const MatrixXf>);
static_assert(!has_view<Eigen::ArrayXf> && !has_view<Eigen::Matrix3f>);
static_assert(has_view<Block> && has_view<Map> && has_view<ConstMap>);
static_assert(has_view<Eigen::Ref<MatrixXf>> && has_view<Eigen::Ref<const MatrixXf>&>);
static_assert(!has_view<Eigen::Ref<const MatrixXf>>, "it may hold a copy");
static_assert(!has_view<Sum&> && !has_view<Sum>, "computed when read");
static_assert(has_mutable_view<MatrixXf&> && has_mutable_view<Block> && has_mutable_view<Map>);
static_assert(!has_mutable_view<MatrixXf> && !has_mutable_view<const MatrixXf&>);
static_assert(!has_mutable_view<ConstMap> && !has_mutable_view<const Block&>);
static_assert(!has_mutable_view<Eigen::Block<const MatrixXf>>);
static_assert(!has_mutable_view<Eigen::Ref<const MatrixXf>&>);

// The same of the library's own.
template <class Tensor>
constexpr bool tensor_has_view = requires(Tensor&& t) {
  std::forward<Tensor>(t).view();
};
template <class Tensor>
constexpr bool tensor_has_mutable_view = requires(Tensor&& t) {
  std::forward<Tensor>(t).mutable_view();
};
static_assert(std::is_convertible_v<std::vector<float>&, View>);
static_assert(std::is_convertible_v<const std::vector<float>&, View>);
static_assert(!std::is_convertible_v<std::vector<float>, View>);
static_assert(!std::is_convertible_v<const std::vector<float>, View>);
static_assert(!std::is_convertible_v<std::vector<float>, MutableView>);
static_assert(tensor_has_view<HostTensor&> && tensor_has_view<const HostTensor&>);
static_assert(!tensor_has_view<HostTensor> && !tensor_has_view<const HostTensor>);
static_assert(tensor_has_mutable_view<HostTensor&> && !tensor_has_mutable_view<HostTensor>);
static_assert(!tensor_has_mutable_view<const HostTensor&>);

}  // namespace
}  // namespace tessera
