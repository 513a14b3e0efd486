// SPDX-License-Identifier: Apache-2.0
#include "tests/support/misuse.hpp"

namespace tessera::misuse {
namespace {

const std::vector<Case>& view_cases() {
  static const std::vector<Case> cases = {
      // Views.
      {"NoX", [](Call& c) { c.in.x = {}; }, {"x is not given"}},
      {"NoW", [](Call& c) { c.in.w = {}; }, {"w is not given"}},
      {"NoLabels", [](Call& c) { c.in.labels = {}; }, {"labels is not given"}},
      {"NullX",
       [](Call& c) {
         c.in.x = View::host(static_cast<float*>(nullptr), {B, H});
       },
       {"x has 12 elements", "null pointer"}},
      {"NullGradW",
       [](Call& c) {
         c.grad.grad_w = MutableView::host(static_cast<float*>(nullptr), {H, V});
       },
       {"grad_w has 15 elements", "null pointer"}},
      {"NullClMem",
       [](Call& c) {
         c.in.w = View::device(nullptr, 0, DType::f32, {H, V});
       },
       {"w has 15 elements", "null pointer"}},
      {"NegativeExtent",
       [](Call& c) {
         c.in.x = View::host(c.a.x.data(), {-4, H}, {H, 1});
       },
       {"x has extents [-4, 3]", "axis 0 is negative"}},
      {"NegativeStride",
       [](Call& c) {
         c.in.w = View::host(c.a.w.data(), {H, V}, {V, -1});
       },
       {"w has strides [5, -1]", "axis 1 is negative"}},
      {"MisalignedX",
       [](Call& c) {
         c.in.x = View::host(misaligned(c.a.x.data()), {1, H});
       },
       {"x has address", "not aligned to 4 bytes", "f32"}},
      {"AddressesAreHexadecimal",
       [](Call& c) {
         const std::uintptr_t nowhere = 0x12ab5601;
         c.in.w = View::host(reinterpret_cast<const float*>(nowhere), {H, V});
       },
       {"w has address 0x12ab5601, which is not aligned to 4 bytes, the size of f32"}},
      {"MisalignedLoss",
       [](Call& c) { c.out.loss = MutableView::host(misaligned(c.a.out(0)), {}); },
       {"loss has address", "not aligned to 4"}},
      {"ReachOverflows",
       [](Call& c) {
         c.in.x = View::host(c.a.x.data(), {B, H}, {std::int64_t{1} << 62, 1});
       },
       {"x with extents [4, 3]", "4611686018427387904", "beyond 2^63"}},
      {"ExtentsOverflow",
       [](Call& c) {
         c.in.x = View::host(c.a.x.data(), {std::int64_t{1} << 40, std::int64_t{1} << 40}, {0, 0});
       },
       {"x's extents", "1099511627776", "exceeds 2^63"}},
      {"RowsTimesColumnsOverflow",
       [](Call& c) {
         const std::int64_t n = std::int64_t{1} << 40;
         c.in.x = View::host(c.a.x.data(), {n, H}, {0, 1});
         c.in.w = View::host(c.a.w.data(), {H, n}, {1, 0});
         c.in.labels = View::host(c.a.labels.data(), {n}, {0});
       },
       {"rows * columns", "1099511627776 * 1099511627776"}},
      // Types.
      {"IntegerX",
       [](Call& c) {
         c.in.x = View::host(c.a.labels.data(), {1, 4});
       },
       {"x has type i32", "f32, bf16 or f16"}},
      {"IntegerW",
       [](Call& c) {
         c.in.w = View::host(c.a.w.data(), DType::i32, {H, V});
       },
       {"w has type i32"}},
      {"FloatLabels",
       [](Call& c) { c.in.labels = View::host(c.a.x.data(), {B}); },
       {"labels has type f32", "i32 or i64"}},
      {"Bf16Loss",
       [](Call& c) { c.out.loss = c.a.out_view(0, {}, DType::bf16); },
       {"loss has type bf16", "supported: f32"}},
      {"I64Argmax",
       [](Call& c) { c.out.argmax = c.a.out_view(256, {B}, DType::i64); },
       {"argmax has type i64", "supported: i32"}},
      {"F16Statistics",
       [](Call& c) {
         c.out.statistics = c.a.out_view(256, {B, 2}, DType::f16);
       },
       {"statistics has type f16", "supported: f32"}},
      {"IntegerGradX",
       [](Call& c) {
         c.grad.grad_x = c.a.out_view(64, {B, H}, DType::i32);
       },
       {"grad_x has type i32"}},
      {"IntegerBias",
       [](Call& c) { c.in.bias = View::host(c.a.w.data(), DType::i32, {V}); },
       {"bias has type i32"}},
      {"Bf16SavedLse",
       [](Call& c) {
         c.to_backward();
         c.in.lse = View::host(c.a.per_row.data(), DType::bf16, {B});
       },
       {"lse has type bf16", "supported: f32"}},
      // Shapes.
      {"RankOfX", [](Call& c) { c.in.x = View::host(c.a.x.data(), {}); }, {"x has no axes"}},
      {"RankOfW",
       [](Call& c) { c.in.w = View::host(c.a.w.data(), {15}); },
       {"w has shape [15]", "[H, V]"}},
      {"HiddenSizes",
       [](Call& c) {
         c.in.w = View::host(c.a.w.data(), {2, V});
       },
       {"w has shape [2, 5]", "x has shape [4, 3]", "first axis of w must be H"}},
      {"WeightAsStored",
       [](Call& c) {
         c.in.w = View::host(c.a.w.data(), {V, H});
       },
       {"w has shape [5, 3]", "strides {1, H}"}},
      {"LabelsLength",
       [](Call& c) { c.in.labels = View::host(c.a.labels.data(), {3}); },
       {"labels has shape [3], expected [4]", "leading axes of x [4, 3]"}},
      {"LabelsRank",
       [](Call& c) {
         c.in.labels = View::host(c.a.labels.data(), {2, 2});
       },
       {"labels has shape [2, 2], expected [4]"}},
      {"LeadingAxes",
       [](Call& c) {
         c.in.x = View::host(c.a.x.data(), {2, 2, H});
         c.in.labels = View::host(c.a.labels.data(), {4});
       },
       {"labels has shape [4], expected [2, 2]", "x [2, 2, 3]"}},
      {"NoVocabulary",
       [](Call& c) {
         c.in.w = View::host(c.a.w.data(), {H, 0});
       },
       {"0 columns", "4 rows"}},
      {"WeightShape",
       [](Call& c) { c.in.weight = View::host(c.a.per_row.data(), {5}); },
       {"weight has shape [5], expected [4]"}},
      {"BiasShape",
       [](Call& c) { c.in.bias = View::host(c.a.per_word.data(), {4}); },
       {"bias has shape [4], expected [5]"}},
      {"ClassWeightShape",
       [](Call& c) { c.in.class_weight = View::host(c.a.per_word.data(), {6}); },
       {"class_weight has shape [6], expected [5]"}},
      {"LossShapeOfMean",
       [](Call& c) { c.out.loss = c.a.out_view(0, {B}); },
       {"loss has shape [4], expected []", "reduction mean"}},
      {"LossShapeOfNone",
       [](Call& c) { c.options.reduction = Reduction::none; },
       {"loss has shape [], expected [4]", "reduction none"}},
      {"LseShape",
       [](Call& c) {
         c.out.lse = c.a.out_view(16, {B, 1});
       },
       {"lse has shape [4, 1], expected [4]"}},
      {"StatisticsShape",
       [](Call& c) {
         c.out.statistics = c.a.out_view(256, {2, B});
       },
       {"statistics has shape [2, 4], expected [4, 2]"}},
      {"GradXShape",
       [](Call& c) {
         c.grad.grad_x = c.a.out_view(64, {H, B});
       },
       {"grad_x has shape [3, 4], expected [4, 3]"}},
      {"GradWShape",
       [](Call& c) {
         c.grad.grad_w = c.a.out_view(128, {V, H});
       },
       {"grad_w has shape [5, 3], expected [3, 5]"}},
      {"GradBiasShape",
       [](Call& c) {
         c.in.bias = View::host(c.a.per_word.data(), {V});
         c.grad.grad_bias = c.a.out_view(256, {4});
       },
       {"grad_bias has shape [4], expected [5]"}},
      {"DlossShapeOfMean",
       [](Call& c) { c.in.dloss = View::host(c.a.per_row.data(), {B}); },
       {"dloss has shape [4], expected []", "reduction mean"}},
      {"DlossShapeOfNone",
       [](Call& c) {
         c.options.reduction = Reduction::none;
         c.out.loss = c.a.out_view(0, {B});
         c.in.dloss = View::host(c.a.per_row.data(), {});
       },
       {"dloss has shape [], expected [4]", "reduction none"}},
      {"DlseShape",
       [](Call& c) { c.in.dlse = View::host(c.a.per_row.data(), {2}); },
       {"dlse has shape [2], expected [4]"}},
      {"SavedLseShape",
       [](Call& c) {
         c.to_backward();
         c.in.lse = View::host(c.a.per_row.data(), {2});
       },
       {"lse has shape [2], expected [4]"}},
      {"SavedStatisticsShape",
       [](Call& c) {
         c.to_backward();
         c.in.statistics = View::host(c.a.per_row.data(), {B});
       },
       {"statistics has shape [4], expected [4, 2]"}},
      // Overlaps.
      {"OutputsOverlap",
       [](Call& c) { c.out.lse = c.a.out_view(0, {B}); },
       {"loss and lse overlap"}},
      {"GradientsOverlap",
       [](Call& c) {
         c.grad.grad_w = c.a.out_view(108, {H, V});
       },
       {"grad_x and grad_w overlap"}},
      {"OutputOverInput",
       [](Call& c) {
         c.grad.grad_x = MutableView::host(c.a.x.data(), {B, H});
       },
       {"grad_x overlaps the input x"}},
      {"OutputOverLabels",
       [](Call& c) { c.out.argmax = MutableView::host(c.a.labels.data(), {B}); },
       {"argmax overlaps the input labels"}},
      {"ColumnsInterleaveAndTouch",
       [](Call& c) {
         c.out.lse = MutableView::host(c.a.out(256), {B}, {3});
         c.out.entropy = MutableView::host(c.a.out(256 + 12), {B}, {2});
       },
       {"lse and entropy overlap"}},
      {"OutputOverItself",
       [](Call& c) {
         c.grad.grad_w = MutableView::host(c.a.out(128), {H, V}, {0, 1});
       },
       {"grad_w with extents [3, 5] and strides [0, 1]", "share memory"}},
      {"WorkspaceOverInput",
       [](Call& c) { c.execution.workspace = MutableView::host(c.a.w.data(), {H * V}); },
       {"workspace overlaps the input w"}},
      {"WorkspaceWithGaps",
       [](Call& c) { c.execution.workspace = MutableView::host(c.a.out(256), {8}, {2}); },
       {"workspace", "has gaps"}},
  };
  return cases;
}

class ViewMisuse : public testing::TestWithParam<Case> {};
TEST_P(ViewMisuse, IsRefused) { expect_refused(GetParam(), false); }
INSTANTIATE_TEST_SUITE_P(All, ViewMisuse, testing::ValuesIn(view_cases()),
                         [](const auto& i) { return std::string(i.param.name); });

TEST(Misuse, InterleavedOutputsOfOneAllocationAreFine) {
  Context context(ContextOptions{.host_only = true});
  Call call;
  call.execution.implementation = "reference";
  call.out.lse = MutableView::host(call.a.out(256), {B}, {2});
  call.out.entropy = MutableView::host(call.a.out(260), {B}, {2});
  EXPECT_NO_THROW(call.run(context, false));
}

}  // namespace
}  // namespace tessera::misuse
