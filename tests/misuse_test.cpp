// SPDX-License-Identifier: Apache-2.0
// What is wrong of any loss: labels, options, shards, passes and execution, on every operator.
#include "tests/support/misuse.hpp"

namespace tessera::misuse {
namespace {

template <class Op>
std::vector<Case<Op>> label_cases() {
  using C = Call<Op>;
  return {
      {"LabelTooLarge",
       [](C& c) { c.labels[2] = 5; },
       {"labels: row 2 is 5", "0 to 4", "ignore_index is -100"},
       ErrorCode::label_out_of_range},
      {"LabelNegative",
       [](C& c) { c.labels[3] = -1; },
       {"labels: row 3 is -1"},
       ErrorCode::label_out_of_range},
      {"LabelIndexOfLeadingAxes",
       [](C& c) {
         c.set_leading({2, 2});
         c.labels[3] = 77;
       },
       {"row 3 (index [1, 1]) is 77"},
       ErrorCode::label_out_of_range},
      {"LabelWithAnotherIgnoreIndex",
       [](C& c) {
         c.options.ignore_index = 2;
         c.labels[0] = -100;
       },
       {"row 0 is -100", "ignore_index is 2"},
       ErrorCode::label_out_of_range},
  };
}

template <class Op>
std::vector<Case<Op>> option_cases() {
  using C = Call<Op>;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  return {
      {"SmoothingAboveOne",
       [](C& c) { c.options.label_smoothing = 1.5f; },
       {"label_smoothing is 1.5", "0 to 1"}},
      {"SmoothingBelowZero",
       [](C& c) { c.options.label_smoothing = -0.1f; },
       {"label_smoothing is -0.1"}},
      {"SmoothingNaN",
       [](C& c) { c.options.label_smoothing = nan_value; },
       {"label_smoothing is nan"}},
      {"NegativeCap",
       [](C& c) { c.options.logit_soft_cap = -30.0f; },
       {"logit_soft_cap is -30", "least is 0"}},
      {"NaNCap",
       [](C& c) { c.options.logit_soft_cap = nan_value; },
       {"logit_soft_cap is nan", "finite"}},
      {"InfiniteScale",
       [](C& c) { c.options.logit_scale = infinity; },
       {"logit_scale is inf", "finite"}},
      {"NaNZWeight",
       [](C& c) { c.options.logsumexp_weight = nan_value; },
       {"logsumexp_weight is nan", "finite"}},
      {"NoSuchReduction",
       [](C& c) { c.options.reduction = static_cast<Reduction>(9); },
       {"reduction is 9"}},
  };
}

template <class Op>
std::vector<Case<Op>> shard_cases() {
  using C = Call<Op>;
  if (!operators::description(OperatorTraits<Op>::name).has(Pass::forward_partial)) return {};
  std::vector<Case<Op>> cases = {
      {"OffsetWithoutTotal",
       [](C& c) { c.options.vocab_offset = 2; },
       {"vocab_offset is 2 without vocab_size_total"}},
      {"NegativeOffset",
       [](C& c) {
         c.options.vocab_offset = -1;
         c.options.vocab_size_total = 10;
       },
       {"vocab_offset is -1"}},
      {"NegativeTotal", [](C& c) { c.options.vocab_size_total = -5; }, {"vocab_size_total is -5"}},
      {"ShardBeyondTotal",
       [](C& c) {
         c.options.vocab_offset = 6;
         c.options.vocab_size_total = 10;
       },
       {"vocab_offset 6 and 5 columns", "vocab_size_total 10"}},
      {"ForwardOnAShard",
       [](C& c) {
         c.to_forward();
         c.options.vocab_size_total = 10;
       },
       {"vocab_size_total is 10", "forward_partial", "combine"}},
      {"ValueAndGradOnAShard",
       [](C& c) { c.options.vocab_size_total = 10; },
       {"vocab_size_total is 10", "forward_partial", "backward"}},
  };
  if constexpr (requires(C & c) { c.in.class_weight; }) {
    cases.push_back({"ShardClassWeightOfTheShardOnly",
                     [](C& c) {
                       c.pass = Pass::forward_partial;
                       c.options.vocab_size_total = 10;
                       c.in.class_weight = View::host(c.per_word.data(), {V});
                     },
                     {"class_weight has shape [5], expected [10]", "whole vocabulary"}});
  }
  return cases;
}

template <class Op>
std::vector<Case<Op>> pass_cases() {
  using C = Call<Op>;
  std::vector<Case<Op>> cases = {
      {"BackwardWithoutStatistics",
       [](C& c) {
         c.to_backward();
         c.in.lse = {};
       },
       {"neither statistics nor lse"}},
      {"DlossInForward",
       [](C& c) {
         c.to_forward();
         c.in.dloss = View::host(c.per_row.data(), {});
       },
       {"dloss is given", "backward and value_and_grad"}},
      {"DlseInForward",
       [](C& c) {
         c.to_forward();
         c.in.dlse = View::host(c.per_row.data(), {B});
       },
       {"dlse is given"}},
      {"SavedLseInValueAndGrad",
       [](C& c) { c.in.lse = View::host(c.per_row.data(), {B}); },
       {"lse is given", "backward alone"}},
      {"SavedStatisticsInForward",
       [](C& c) {
         c.to_forward();
         c.in.statistics = View::host(c.per_row.data(), {B, 2});
       },
       {"statistics is given", "backward alone"}},
      {"NoGradientInBackward",
       [](C& c) {
         c.to_backward();
         c.grad = {};
       },
       {"no gradient is asked for"}},
      {"NoGradientInValueAndGrad", [](C& c) { c.grad = {}; }, {"no gradient is asked for"}},
      {"NoOutputInForward",
       [](C& c) {
         c.to_forward();
         c.out = {};
       },
       {"no output is asked for"}},
  };
  // A gradient of what is not there.
  for (std::size_t i = 0; i < OperatorTraits<Op>::gradients.size(); ++i) {
    const auto& gradient = OperatorTraits<Op>::gradients[i];
    const auto& of = input_of(gradient);
    if (is_needed(of.reads)) continue;
    cases.push_back({std::string(gradient.name) + "_WithoutItsInput",
                     [&gradient, &of, i](C& c) {
                       c.grad.*gradient.view = c.gradient_view(i, c.extents(of.shape));
                     },
                     {gradient.name, std::string("no ") + of.name}});
  }
  return cases;
}

template <class Op>
std::vector<Case<Op>> execution_cases() {
  using C = Call<Op>;
  using Blocks = typename Op::BlockSizes;
  std::vector<Case<Op>> cases = {
      {"OldBlockSizeZero", [](C& c) { c.execution.block_size = 0; }, {"block_size is 0"}},
      {"OldBlockSizeDisagrees",
       [](C& c) {
         c.execution.block_sizes = Blocks{};
         c.execution.block_sizes->v_block_size = 256;
         c.execution.block_size = 512;
       },
       {"block_size is 512", "v_block_size is 256"}},
      {"UnknownImplementation",
       [](C& c) { c.execution.implementation = "cuda"; },
       {"unknown name \"cuda\"", "reference"}},
      {"UnknownImplementationLastInTheList",
       [](C& c) {
         c.execution.implementation = {"reference", "nope"};
       },
       {"unknown name \"nope\""}},
      {"NullEvent", [](C& c) { c.execution.wait_for = {nullptr}; }, {"wait_for[0] is null"}},
      {"QueueWithoutDevice",
       [](C& c) { c.execution.queue = reinterpret_cast<cl_command_queue>(some_memory()); },
       {"queue is given", "no device"},
       ErrorCode::foreign_context},
      {"EventWithoutDevice",
       [](C& c) { c.execution.wait_for = {reinterpret_cast<cl_event>(some_memory())}; },
       {"wait_for is given", "no device"},
       ErrorCode::foreign_context},
      {"WorkspaceWithGaps",
       [](C& c) { c.execution.workspace = MutableView::host(c.at(spare), {8}, {2}); },
       {"workspace", "has gaps"}},
  };
  for (const auto& axis : Blocks::axes()) {
    const std::pair<const char*, std::int64_t> wrong[] = {
        {"Zero", 0}, {"Negative", -8}, {"Huge", std::int64_t{1} << 40}};
    for (const auto& [name, value] : wrong) {
      cases.push_back({std::string(name) + "_" + axis.name,
                       [axis, size = value](C& c) {
                         c.execution.block_sizes = Blocks{};
                         *c.execution.block_sizes.*axis.value = size;
                       },
                       {axis.name + (" is " + std::to_string(value)), "1 to 2147483647"}});
    }
  }
  return cases;
}

std::vector<Refused> all_cases() {
  std::vector<Refused> all;
  for_each_loss([&]<class Op>(std::type_identity<Op>) {
    add_cases<Op>(all, label_cases<Op>());
    add_cases<Op>(all, option_cases<Op>());
    add_cases<Op>(all, shard_cases<Op>());
    add_cases<Op>(all, pass_cases<Op>());
    add_cases<Op>(all, execution_cases<Op>());
  });
  return all;
}

class CallMisuse : public testing::TestWithParam<Refused> {};
TEST_P(CallMisuse, IsRefused) { GetParam().expect(); }
INSTANTIATE_TEST_SUITE_P(All, CallMisuse, testing::ValuesIn(all_cases()), refused_name);

TEST(Misuse, TheCallThatEveryCaseBreaksIsCorrect) {
  Context context(ContextOptions{.host_only = true});
  for_each_loss([&]<class Op>(std::type_identity<Op>) {
    SCOPED_TRACE(OperatorTraits<Op>::name);
    Call<Op> call;
    call.execution.implementation = "reference";
    EXPECT_NO_THROW(call.run(context));
    EXPECT_FALSE(call.untouched());
  });
}

TEST(Misuse, QuestionsAnswerInsteadOfThrowing) {
  Context context(ContextOptions{.host_only = true});
  for_each_loss([&]<class Op>(std::type_identity<Op>) {
    SCOPED_TRACE(OperatorTraits<Op>::name);
    Call<Op> call;
    call.in.labels = View::host(call.labels.data(), {3});
    const auto why = why_unsupported(context, "reference", Pass::forward, call.in, {}, {});
    ASSERT_TRUE(why);
    EXPECT_NE(why->find("labels has shape [3]"), std::string::npos);
    EXPECT_THROW(why_unsupported(context, "cuda", Pass::forward, call.in, {}, {}), Error);
    // Whichever gradients it names.
    Call<Op> adds;
    adds.to_forward();
    test::set_accumulate(adds.grad.accumulate, test::grad_x_bit);
    const auto sum = why_unsupported(context, "reference", adds.pass, adds.in, adds.out, adds.grad);
    ASSERT_TRUE(sum);
    EXPECT_NE(sum->find("accumulate is set, but this pass computes no gradients"),
              std::string::npos);
    // Host pointers may be null in a question.
    typename Op::Inputs shapes;
    for (const auto& input : OperatorTraits<Op>::inputs) {
      if (!is_needed(input.reads)) continue;
      const DType type = input.types == ElementTypes::integer ? DType::i64 : DType::bf16;
      shapes.*input.view = View::host(nullptr, type, call.extents(input.shape));
    }
    EXPECT_EQ(why_unsupported(context, "reference", Pass::value_and_grad, shapes, {}, {}),
              std::nullopt);
  });
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
