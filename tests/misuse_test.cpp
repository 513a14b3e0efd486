// SPDX-License-Identifier: Apache-2.0
#include "tests/support/misuse.hpp"

namespace tessera::misuse {
namespace {

const std::vector<Case>& call_cases() {
  static const std::vector<Case> cases = {
      // Labels.
      {"LabelTooLarge",
       [](Call& c) { c.a.labels[2] = 5; },
       {"labels: row 2 is 5", "0 to 4", "ignore_index is -100"},
       ErrorCode::label_out_of_range},
      {"LabelNegative",
       [](Call& c) { c.a.labels[3] = -1; },
       {"labels: row 3 is -1"},
       ErrorCode::label_out_of_range},
      {"LabelIndexOfLeadingAxes",
       [](Call& c) {
         c.in.x = View::host(c.a.x.data(), {2, 2, H});
         c.in.labels = View::host(c.a.labels.data(), {2, 2});
         c.out.lse = c.a.out_view(16, {2, 2});
         c.grad.grad_x = c.a.out_view(64, {2, 2, H});
         c.a.labels[3] = 77;
       },
       {"row 3 (index [1, 1]) is 77"},
       ErrorCode::label_out_of_range},
      {"LabelWithAnotherIgnoreIndex",
       [](Call& c) {
         c.options.ignore_index = 2;
         c.a.labels[0] = -100;
       },
       {"row 0 is -100", "ignore_index is 2"},
       ErrorCode::label_out_of_range},
      // Options.
      {"SmoothingAboveOne",
       [](Call& c) { c.options.label_smoothing = 1.5f; },
       {"label_smoothing is 1.5", "0 to 1"}},
      {"SmoothingBelowZero",
       [](Call& c) { c.options.label_smoothing = -0.1f; },
       {"label_smoothing is -0.1"}},
      {"SmoothingNaN",
       [](Call& c) { c.options.label_smoothing = nan_value; },
       {"label_smoothing is nan"}},
      {"NegativeCap",
       [](Call& c) { c.options.logit_soft_cap = -30.0f; },
       {"logit_soft_cap is -30", "least is 0"}},
      {"NaNCap",
       [](Call& c) { c.options.logit_soft_cap = nan_value; },
       {"logit_soft_cap is nan", "finite"}},
      {"InfiniteScale",
       [](Call& c) { c.options.logit_scale = std::numeric_limits<float>::infinity(); },
       {"logit_scale is inf", "finite"}},
      {"NaNZWeight",
       [](Call& c) { c.options.logsumexp_weight = nan_value; },
       {"logsumexp_weight is nan", "finite"}},
      {"NoSuchReduction",
       [](Call& c) { c.options.reduction = static_cast<Reduction>(9); },
       {"reduction is 9"}},
      // Shards.
      {"OffsetWithoutTotal",
       [](Call& c) { c.options.vocab_offset = 2; },
       {"vocab_offset is 2 without vocab_size_total"}},
      {"NegativeOffset",
       [](Call& c) {
         c.options.vocab_offset = -1;
         c.options.vocab_size_total = 10;
       },
       {"vocab_offset is -1"}},
      {"NegativeTotal",
       [](Call& c) { c.options.vocab_size_total = -5; },
       {"vocab_size_total is -5"}},
      {"ShardBeyondTotal",
       [](Call& c) {
         c.options.vocab_offset = 6;
         c.options.vocab_size_total = 10;
       },
       {"vocab_offset 6 and 5 columns", "vocab_size_total 10"}},
      {"ForwardOnAShard",
       [](Call& c) {
         c.to_forward();
         c.options.vocab_size_total = 10;
       },
       {"vocab_size_total is 10", "forward_partial", "combine"}},
      {"ValueAndGradOnAShard",
       [](Call& c) { c.options.vocab_size_total = 10; },
       {"vocab_size_total is 10", "forward_partial", "backward"}},
      {"ShardClassWeightOfTheShardOnly",
       [](Call& c) {
         c.pass = Pass::forward_partial;
         c.options.vocab_size_total = 10;
         c.in.class_weight = View::host(c.a.per_word.data(), {V});
       },
       {"class_weight has shape [5], expected [10]", "whole vocabulary"}},
      // Passes.
      {"BackwardWithoutStatistics",
       [](Call& c) {
         c.to_backward();
         c.in.lse = {};
       },
       {"neither statistics nor lse"}},
      {"DlossInForward",
       [](Call& c) {
         c.to_forward();
         c.in.dloss = View::host(c.a.per_row.data(), {});
       },
       {"dloss is given", "backward and value_and_grad"}},
      {"DlseInForward",
       [](Call& c) {
         c.to_forward();
         c.in.dlse = View::host(c.a.per_row.data(), {B});
       },
       {"dlse is given"}},
      {"SavedLseInValueAndGrad",
       [](Call& c) { c.in.lse = View::host(c.a.per_row.data(), {B}); },
       {"lse is given", "backward alone"}},
      {"SavedStatisticsInForward",
       [](Call& c) {
         c.to_forward();
         c.in.statistics = View::host(c.a.per_row.data(), {B, 2});
       },
       {"statistics is given", "backward alone"}},
      {"GradBiasWithoutBias",
       [](Call& c) { c.grad.grad_bias = c.a.out_view(256, {V}); },
       {"grad_bias", "no bias"}},
      {"NoGradientInBackward",
       [](Call& c) {
         c.to_backward();
         c.grad = {};
       },
       {"no gradient is asked for"}},
      {"NoGradientInValueAndGrad", [](Call& c) { c.grad = {}; }, {"no gradient is asked for"}},
      {"NoOutputInForward",
       [](Call& c) {
         c.to_forward();
         c.out = {};
       },
       {"no output is asked for"}},
      // Execution.
      {"ZeroBlock",
       [](Call& c) { c.execution.block_sizes = lce::BlockSizes{.h_block_size = 0}; },
       {"h_block_size is 0", "1 to 2147483647"}},
      {"NegativeBlock",
       [](Call& c) { c.execution.block_sizes = lce::BlockSizes{.b_block_size = -8}; },
       {"b_block_size is -8"}},
      {"HugeBlock",
       [](Call& c) {
         c.execution.block_sizes = lce::BlockSizes{.v_block_size = std::int64_t{1} << 40};
       },
       {"v_block_size is 1099511627776"}},
      {"OldBlockSizeZero", [](Call& c) { c.execution.block_size = 0; }, {"block_size is 0"}},
      {"FilterNegative",
       [](Call& c) { c.execution.gradient_filter_eps = -0.25f; },
       {"gradient_filter_eps is -0.25", "from 0 "}},
      {"FilterNaN",
       [](Call& c) { c.execution.gradient_filter_eps = nan_value; },
       {"gradient_filter_eps is nan"}},
      {"FilterInfinite",
       [](Call& c) { c.execution.gradient_filter_eps = std::numeric_limits<float>::infinity(); },
       {"gradient_filter_eps is inf"}},
      {"FilterOne",
       [](Call& c) {
         c.to_backward();
         c.execution.gradient_filter_eps = 1.0f;
       },
       {"gradient_filter_eps is 1", "below 1"}},
      {"OldBlockSizeDisagrees",
       [](Call& c) {
         c.execution.block_sizes = lce::BlockSizes{.v_block_size = 256};
         c.execution.block_size = 512;
       },
       {"block_size is 512", "v_block_size is 256"}},
      {"UnknownImplementation",
       [](Call& c) { c.execution.implementation = "cuda"; },
       {"unknown name \"cuda\"", "reference"}},
      {"UnknownImplementationLastInTheList",
       [](Call& c) {
         c.execution.implementation = {"reference", "nope"};
       },
       {"unknown name \"nope\""}},
      {"NullEvent", [](Call& c) { c.execution.wait_for = {nullptr}; }, {"wait_for[0] is null"}},
      {"QueueWithoutDevice",
       [](Call& c) { c.execution.queue = reinterpret_cast<cl_command_queue>(some_memory()); },
       {"queue is given", "no device"},
       ErrorCode::foreign_context},
      {"EventWithoutDevice",
       [](Call& c) { c.execution.wait_for = {reinterpret_cast<cl_event>(some_memory())}; },
       {"wait_for is given", "no device"},
       ErrorCode::foreign_context},
      {"DeviceInputWithoutDevice",
       [](Call& c) {
         c.in.w = View::device(some_memory(), 0, DType::f32, {H, V});
       },
       {"w is device memory", "no device"},
       ErrorCode::foreign_context},
      {"DeviceOutputWithoutDevice",
       [](Call& c) { c.out.lse = MutableView::device(some_memory(), 0, DType::f32, {B}); },
       {"lse is device memory"},
       ErrorCode::foreign_context},
      {"DeviceOffsetNegative",
       [](Call& c) {
         c.in.w = View::device(some_memory(), -4, DType::f32, {H, V});
       },
       {"w has byte offset -4"}},
      {"DeviceOffsetMisaligned",
       [](Call& c) {
         c.in.w = View::device(some_memory(), 6, DType::f32, {H, V});
       },
       {"w has byte offset 6", "multiple of 4"}},
  };
  return cases;
}

const std::vector<Case>& softmax_cases() {
  static const std::vector<Case> cases = {
      {"NoLogits", [](Call& c) { c.soft.logits = {}; }, {"logits is not given"}},
      {"RankOfLogits",
       [](Call& c) { c.soft.logits = View::host(c.a.z.data(), {}); },
       {"logits has no axes"}},
      {"IntegerLogits",
       [](Call& c) {
         c.soft.logits = View::host(c.a.labels.data(), {2, 2});
       },
       {"logits has type i32"}},
      {"LabelsLength",
       [](Call& c) { c.soft.labels = View::host(c.a.labels.data(), {3}); },
       {"labels has shape [3], expected [4]", "logits [4, 5]"}},
      {"GradShape",
       [](Call& c) {
         c.soft_grad.grad_logits = c.a.out_view(192, {V, B});
       },
       {"grad_logits has shape [5, 4], expected [4, 5]"}},
      {"PartlyInPlace",
       [](Call& c) {
         c.soft.logits = View::host(c.a.z.data(), {3, V});
         c.soft.labels = View::host(c.a.labels.data(), {3});
         c.out.lse = c.a.out_view(16, {3});
         c.soft_grad.grad_logits = MutableView::host(c.a.z.data() + V, {3, V});
       },
       {"grad_logits overlaps the input logits", "the very same view"}},
      {"InPlaceInAnotherType",
       [](Call& c) {
         c.soft_grad.grad_logits =
             MutableView::host(static_cast<void*>(c.a.z.data()), DType::bf16, {B, V});
       },
       {"grad_logits overlaps the input logits", "the very same view"}},
      {"AccumulateInPlace",
       [](Call& c) {
         c.soft_grad.grad_logits = MutableView::host(c.a.z.data(), {B, V});
         c.soft_grad.accumulate = true;
       },
       {"accumulate", "grad_logits is the view logits"}},
      {"LabelTooLarge",
       [](Call& c) { c.a.labels[1] = 9; },
       {"labels: row 1 is 9"},
       ErrorCode::label_out_of_range},
      {"ForwardOnAShard",
       [](Call& c) {
         c.to_forward();
         c.options.vocab_size_total = 10;
       },
       {"forward_partial"}},
      {"NoGradient", [](Call& c) { c.soft_grad = {}; }, {"no gradient is asked for"}},
      {"ZeroBlock",
       [](Call& c) { c.soft_execution.block_sizes = sce::BlockSizes{.v_block_size = 0}; },
       {"v_block_size is 0"}},
  };
  return cases;
}

class CallMisuse : public testing::TestWithParam<Case> {};
TEST_P(CallMisuse, IsRefused) { expect_refused(GetParam(), false); }
INSTANTIATE_TEST_SUITE_P(All, CallMisuse, testing::ValuesIn(call_cases()),
                         [](const auto& i) { return std::string(i.param.name); });

class SoftmaxMisuse : public testing::TestWithParam<Case> {};
TEST_P(SoftmaxMisuse, IsRefused) { expect_refused(GetParam(), true); }
INSTANTIATE_TEST_SUITE_P(All, SoftmaxMisuse, testing::ValuesIn(softmax_cases()),
                         [](const auto& i) { return std::string(i.param.name); });

TEST(Misuse, TheCallThatEveryCaseBreaksIsCorrect) {
  Context context(ContextOptions{.host_only = true});
  for (bool softmax : {false, true}) {
    Call call;
    call.execution.implementation = call.soft_execution.implementation = "reference";
    EXPECT_NO_THROW(call.run(context, softmax));
    EXPECT_FALSE(call.a.untouched());
  }
}

TEST(Misuse, QuestionsAnswerInsteadOfThrowing) {
  Context context(ContextOptions{.host_only = true});
  Call call;
  call.in.labels = View::host(call.a.labels.data(), {3});
  const auto why = lce::why_unsupported(context, "reference", Pass::forward, call.in, {}, {});
  ASSERT_TRUE(why);
  EXPECT_NE(why->find("labels has shape [3]"), std::string::npos);
  EXPECT_THROW(lce::why_unsupported(context, "cuda", Pass::forward, call.in, {}, {}), Error);
  // Host pointers may be null in a question.
  const lce::Inputs shapes{.x = View::host(nullptr, DType::bf16, {B, H}),
                           .labels = View::host(nullptr, DType::i64, {B}),
                           .w = View::host(nullptr, DType::bf16, {H, V}, {1, H})};
  EXPECT_EQ(lce::why_unsupported(context, "reference", Pass::value_and_grad, shapes, {}, {}),
            std::nullopt);
}

TEST(Misuse, ContextOptionsAreChecked) {
  EXPECT_THROW(Context(ContextOptions{.threads = -1}), Error);
  EXPECT_THROW(Context(ContextOptions{.device = "x", .host_only = true}), Error);
  EXPECT_THROW(Context(nullptr, nullptr), Error);
  EXPECT_THROW(Context::from_queue(nullptr), Error);
  try {
    Context context(ContextOptions{.device = "no such device anywhere"});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::device_not_found);
    EXPECT_NE(std::string(error.what()).find("no such device anywhere"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::misuse
