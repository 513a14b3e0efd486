// SPDX-License-Identifier: Apache-2.0
// What is wrong of linear_cross_entropy alone: x against w, its option, gradients over inputs.
#include "tests/support/misuse.hpp"

namespace tessera::misuse {
namespace {

using C = Call<linear_cross_entropy::Operator>;

const std::vector<Case<C::Op>>& shape_cases() {
  static const std::vector<Case<C::Op>> cases = {
      {"RankOfX", [](C& c) { c.in.x = View::host(c.data("x"), {}); }, {"x has no axes"}},
      {"RankOfW",
       [](C& c) { c.in.w = View::host(c.data("w"), {15}); },
       {"w has shape [15]", "[H, V]"}},
      {"HiddenSizes",
       [](C& c) {
         c.in.w = View::host(c.data("w"), {2, V});
       },
       {"w has shape [2, 5]", "x has shape [4, 3]", "first axis of w must be H"}},
      {"WeightAsStored",
       [](C& c) {
         c.in.w = View::host(c.data("w"), {V, H});
       },
       {"w has shape [5, 3]", "strides {1, H}"}},
      {"NoVocabulary",
       [](C& c) {
         c.in.w = View::host(c.data("w"), {H, 0});
       },
       {"0 columns", "4 rows"}},
      {"RowsTimesColumnsOverflow",
       [](C& c) {
         const std::int64_t n = std::int64_t{1} << 40;
         c.in.x = View::host(c.data("x"), {n, H}, {0, 1});
         c.in.w = View::host(c.data("w"), {H, n}, {1, 0});
         c.in.labels = View::host(c.labels.data(), {n}, {0});
       },
       {"rows * columns", "1099511627776 * 1099511627776"}},
      {"OutputOverInput",
       [](C& c) {
         c.grad.grad_x = MutableView::host(c.data("x"), {B, H});
       },
       {"grad_x overlaps the input x"}},
      {"WorkspaceOverW",
       [](C& c) { c.execution.workspace = MutableView::host(c.data("w"), {H * V}); },
       {"workspace overlaps the input w"}},
  };
  return cases;
}

const std::vector<Case<C::Op>>& filter_cases() {
  static const std::vector<Case<C::Op>> cases = {
      {"FilterNegative",
       [](C& c) { c.execution.gradient_filter_eps = -0.25f; },
       {"gradient_filter_eps is -0.25", "its range is 0 to below 1"}},
      {"FilterNaN",
       [](C& c) { c.execution.gradient_filter_eps = nan_value; },
       {"gradient_filter_eps is nan"}},
      {"FilterInfinite",
       [](C& c) { c.execution.gradient_filter_eps = std::numeric_limits<float>::infinity(); },
       {"gradient_filter_eps is inf"}},
      {"FilterOne",
       [](C& c) {
         c.to_backward();
         c.execution.gradient_filter_eps = 1.0f;
       },
       {"gradient_filter_eps is 1", "below 1"}},
      {"DzDtype",
       [](C& c) {
         c.to_backward();
         c.execution.dz_dtype = DType::f16;
       },
       {"dz_dtype is f16", "f32, or bf16"}},
      {"DzDtypeInForward", [](C& c) { c.execution.dz_dtype = DType::i32; }, {"dz_dtype is i32"}},
  };
  return cases;
}

std::vector<Refused> all_cases() {
  std::vector<Refused> all;
  add_cases(all, shape_cases());
  add_cases(all, filter_cases());
  return all;
}

class LinearMisuse : public testing::TestWithParam<Refused> {};
TEST_P(LinearMisuse, IsRefused) { GetParam().expect(); }
INSTANTIATE_TEST_SUITE_P(All, LinearMisuse, testing::ValuesIn(all_cases()), refused_name);

TEST(LinearMisuse, AWeightByStridesIsNone) {
  Context context(ContextOptions{.host_only = true});
  C call;
  call.in.w = View::host(nullptr, DType::bf16, {H, V}, {1, H});
  EXPECT_EQ(why_unsupported(context, "reference", Pass::value_and_grad, call.in, {}, {}),
            std::nullopt);
}

}  // namespace
}  // namespace tessera::misuse
