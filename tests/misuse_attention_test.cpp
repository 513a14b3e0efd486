// SPDX-License-Identifier: Apache-2.0
// Calls that attention refuses; those of every operator are in misuse_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tessera/attention.hpp"
#include "tests/support/expect_error.hpp"

namespace tessera::test {
namespace {

constexpr float untouched = -7.0f;

/// A correct call of 4 heads over 2, 3 queries, 5 keys, D 6 and E 2 in a batch of 2, with every
/// argument; a case breaks one thing.
struct AttentionMisuseCall {
  std::vector<float> numbers = std::vector<float>(16384, 1.0f);
  std::vector<std::int64_t> lengths = std::vector<std::int64_t>(64, 2);
  std::vector<std::int32_t> short_lengths = {5, 2};
  std::vector<float> y = std::vector<float>(256, untouched);
  std::vector<float> lse = std::vector<float>(256, untouched);
  attention::Inputs in{.q = input({2, 4, 3, 6}),
                       .k = input({2, 2, 5, 6}),
                       .v = input({2, 2, 5, 2}),
                       .bias = input({2, 4, 3, 5}),
                       .kv_lengths = View::host(lengths.data(), {2}),
                       .sinks = input({4}),
                       .alibi_slopes = input({4})};
  attention::Outputs out{.y = MutableView::host(y.data(), {2, 4, 3, 2}),
                         .lse = MutableView::host(lse.data(), {2, 4, 3})};
  attention::Options options{};
  attention::ExecutionOptions execution{};

  View input(const Dims& extents) const { return View::host(numbers.data(), extents); }
};

struct AttentionMistake {
  const char* name;
  std::function<void(AttentionMisuseCall&)> breaks;
  std::vector<std::string> says;
  ErrorCode code = ErrorCode::invalid_argument;
};

using Bad = AttentionMisuseCall;
constexpr auto type = [](View& view, DType to) {
  view = View::host(view.host_data(), to, view.extents());
};
const float infinity = std::numeric_limits<float>::infinity();

const AttentionMistake mistakes[] = {
    // Heads.
    {"heads that are no multiple",
     [](Bad& b) {
       b.in.k = b.in.v = b.input({2, 3, 5, 6});
     },
     {"q has shape [2, 4, 3, 6] and k has shape [2, 3, 5, 6]: the 4 heads of q, axis -3, must be a "
      "multiple of the 3 of k, so that each group of them shares one; give views with heads before "
      "tokens"}},
    {"more heads of k",
     [](Bad& b) {
       b.in.k = b.in.v = b.input({2, 8, 5, 6});
     },
     {"q has shape [2, 4, 3, 6] and k has shape [2, 8, 5, 6]: the 4 heads of q, axis -3, must be a "
      "multiple of the 8 of k, so that each group of them shares one; give views with heads before "
      "tokens"}},
    {"no heads of k",
     [](Bad& b) {
       b.in.k = b.in.v = b.input({2, 0, 5, 6});
     },
     {"q has shape [2, 4, 3, 6] and k has shape [2, 0, 5, 6]: the 4 heads of q, axis -3, must be a "
      "multiple of the 0 of k, so that each group of them shares one; give views with heads before "
      "tokens"}},
    {"heads of v",
     [](Bad& b) {
       b.in.v = b.input({2, 4, 5, 2});
     },
     {"v has shape [2, 4, 5, 2] but k has shape [2, 2, 5, 6]: axis -3 of v must be K, axis -3 of "
      "k"}},
    // Extents.
    {"D of k",
     [](Bad& b) {
       b.in.k = b.input({2, 2, 5, 7});
     },
     {"k has shape [2, 2, 5, 7] but q has shape [2, 4, 3, 6]: the last axis of k must be D, the "
      "last axis of q"}},
    {"D of 0",
     [](Bad& b) {
       b.in.q = b.input({2, 4, 3, 0});
       b.in.k = b.input({2, 2, 5, 0});
     },
     {"q has shape [2, 4, 3, 0]; its last axis must be 1 to 512"}},
    {"D of 513",
     [](Bad& b) {
       b.in.q = b.input({2, 4, 3, 513});
       b.in.k = b.input({2, 2, 5, 513});
     },
     {"q has shape [2, 4, 3, 513]; its last axis must be 1 to 512"}},
    {"E of 0",
     [](Bad& b) {
       b.in.v = b.input({2, 2, 5, 0});
       b.out.y = MutableView::host(b.y.data(), {2, 4, 3, 0});
     },
     {"v has shape [2, 2, 5, 0]; its last axis must be 1 to 512"}},
    {"E of 513",
     [](Bad& b) {
       b.in.v = b.input({2, 2, 5, 513});
       b.out.y = {};
     },
     {"v has shape [2, 2, 5, 513]; its last axis must be 1 to 512"}},
    {"T of v",
     [](Bad& b) {
       b.in.v = b.input({2, 2, 4, 2});
     },
     {"v has shape [2, 2, 4, 2] but k has shape [2, 2, 5, 6]: axis -2 of v must be T, axis -2 of "
      "k"}},
    {"batch of k",
     [](Bad& b) {
       b.in.k = b.input({1, 2, 5, 6});
     },
     {"k has shape [1, 2, 5, 6], expected [2, 2, 5, 6]: the leading axes are [2], those of q [2, "
      "4, 3, 6]; give both the same"}},
    {"batch of v",
     [](Bad& b) {
       b.in.v = b.input({3, 2, 5, 2});
     },
     {"v has shape [3, 2, 5, 2], expected [2, 2, 5, 2]: the leading axes are [2], those of q [2, "
      "4, 3, 6]; give both the same"}},
    {"no batch of k",
     [](Bad& b) {
       b.in.k = b.input({2, 5, 6});
     },
     {"k has shape [2, 5, 6], expected [2, 2, 5, 6]: the leading axes are [2], those of q [2, 4, "
      "3, 6]; give both the same"}},
    {"rank of q",
     [](Bad& b) {
       b.in.q = b.input({3, 6});
     },
     {"q has shape [3, 6], expected [..., Q, S, D]"}},
    {"rank of k",
     [](Bad& b) {
       b.in.k = b.input({5, 6});
     },
     {"k has shape [5, 6], expected [..., K, T, D]"}},
    {"q of no axes",
     [](Bad& b) { b.in.q = b.input({}); },
     {"q has no axes; it has shape [..., Q, S, D], the last axis is D"}},
    {"tokens before heads",
     [](Bad& b) {
       b.in.bias = {};
       b.in.k = b.input({2, 5, 2, 6});
       b.in.v = b.input({2, 5, 2, 2});
     },
     {"q has shape [2, 4, 3, 6] and k has shape [2, 5, 2, 6]: the 4 heads of q, axis -3, must be a "
      "multiple of the 5 of k, so that each group of them shares one; give views with heads before "
      "tokens"}},
    // Missing.
    {"no q", [](Bad& b) { b.in.q = {}; }, {"q is not given; it has shape [..., Q, S, D]"}},
    {"no k", [](Bad& b) { b.in.k = {}; }, {"k is not given; it has shape [..., K, T, D]"}},
    {"no v", [](Bad& b) { b.in.v = {}; }, {"v is not given; it has shape [..., K, T, E]"}},
    {"no output", [](Bad& b) { b.out = {}; }, {"no output is asked for; give at least one view"}},
    {"q without memory",
     [](Bad& b) {
       b.in.q = View::host(nullptr, DType::f32, {2, 4, 3, 6});
     },
     {"q has 144 elements but a null pointer; give host memory or a cl_mem"}},
    // Bias.
    {"keys of the bias",
     [](Bad& b) {
       b.in.bias = b.input({2, 4, 3, 6});
     },
     {"bias has shape [2, 4, 3, 6], expected [2, 4, 3, 5], or 1 in the place of any of its axes "
      "([...|1, Q|1, S|1, T|1])"}},
    {"queries of the bias",
     [](Bad& b) {
       b.in.bias = b.input({2, 4, 2, 5});
     },
     {"bias has shape [2, 4, 2, 5], expected [2, 4, 3, 5], or 1 in the place of any of its axes "
      "([...|1, Q|1, S|1, T|1])"}},
    {"heads of the bias",
     [](Bad& b) {
       b.in.bias = b.input({2, 2, 3, 5});
     },
     {"bias has shape [2, 2, 3, 5], expected [2, 4, 3, 5], or 1 in the place of any of its axes "
      "([...|1, Q|1, S|1, T|1])"}},
    {"batch of the bias",
     [](Bad& b) {
       b.in.bias = b.input({3, 4, 3, 5});
     },
     {"bias has shape [3, 4, 3, 5], expected [2, 4, 3, 5], or 1 in the place of any of its axes "
      "([...|1, Q|1, S|1, T|1])"}},
    {"rank of the bias",
     [](Bad& b) {
       b.in.bias = b.input({3, 5});
     },
     {"bias has shape [3, 5], expected [2, 4, 3, 5], or 1 in the place of any of its axes ([...|1, "
      "Q|1, S|1, T|1])"}},
    {"a mask of bytes",
     [](Bad& b) { type(b.in.bias, DType::i32); },
     {"bias has type i32; supported: f32, bf16 or f16"}},
    // Options.
    {"a negative cap",
     [](Bad& b) { b.options.logit_soft_cap = -1.0f; },
     {"logit_soft_cap is -1; the least is 0, which turns it off"}},
    {"a cap that is NaN",
     [](Bad& b) { b.options.logit_soft_cap = std::nanf(""); },
     {"logit_soft_cap is nan; give a finite number"}},
    {"an infinite cap",
     [](Bad& b) { b.options.logit_soft_cap = infinity; },
     {"logit_soft_cap is inf; give a finite number"}},
    {"a scale that is NaN",
     [](Bad& b) { b.options.scale = std::nanf(""); },
     {"scale is nan; give a finite number"}},
    {"an infinite scale",
     [](Bad& b) { b.options.scale = -infinity; },
     {"scale is -inf; give a finite number"}},
    {"window_left",
     [](Bad& b) { b.options.window_left = -2; },
     {"window_left is -2; the least is -1, which sees all of them"}},
    {"window_right",
     [](Bad& b) { b.options.window_right = -100; },
     {"window_right is -100; the least is -1, which sees all of them"}},
    {"causal",
     [](Bad& b) { b.options.causal = static_cast<attention::Causal>(3); },
     {"causal is 3; give no, lower_right or upper_left"}},
    // Lengths.
    {"a negative length",
     [](Bad& b) { b.lengths[1] = -1; },
     {"kv_lengths of sequence 1 is -1; give 0 to 5, the number of keys T"}},
    {"a length beyond T",
     [](Bad& b) { b.lengths[0] = 6; },
     {"kv_lengths of sequence 0 is 6; give 0 to 5, the number of keys T"}},
    {"a length beyond T in i32",
     [](Bad& b) {
       b.short_lengths[1] = 7;
       b.in.kv_lengths = View::host(b.short_lengths.data(), {2});
     },
     {"kv_lengths of sequence 1 is 7; give 0 to 5, the number of keys T"}},
    {"lengths that are numbers",
     [](Bad& b) { type(b.in.kv_lengths, DType::f32); },
     {"kv_lengths has type f32; supported: i32 or i64"}},
    {"another count of lengths",
     [](Bad& b) { b.in.kv_lengths = View::host(b.lengths.data(), {1}); },
     {"kv_lengths has shape [1], expected [2]: the leading axes are [2], those of q [2, 4, 3, 6]; "
      "give both the same"}},
    {"a length for each query",
     [](Bad& b) {
       b.in.kv_lengths = View::host(b.lengths.data(), {2, 1});
     },
     {"kv_lengths has shape [2, 1], expected [2]: the leading axes are [2], those of q [2, 4, 3, "
      "6]; give both the same"}},
    // Per head.
    {"sinks of k's heads",
     [](Bad& b) { b.in.sinks = b.input({2}); },
     {"sinks has shape [2], expected [4]: [Q], where Q is axis -3 of q [2, 4, 3, 6]"}},
    {"sinks of a batch",
     [](Bad& b) {
       b.in.sinks = b.input({2, 4});
     },
     {"sinks has shape [2, 4], expected [4]: [Q], where Q is axis -3 of q [2, 4, 3, 6]"}},
    {"slopes of another count",
     [](Bad& b) { b.in.alibi_slopes = b.input({5}); },
     {"alibi_slopes has shape [5], expected [4]: [Q], where Q is axis -3 of q [2, 4, 3, 6]"}},
    {"slopes that are integers",
     [](Bad& b) { type(b.in.alibi_slopes, DType::i64); },
     {"alibi_slopes has type i64; supported: f32, bf16 or f16"}},
    // Outputs.
    {"y of another shape",
     [](Bad& b) {
       b.out.y = MutableView::host(b.y.data(), {2, 4, 3, 6});
     },
     {"y has shape [2, 4, 3, 6], expected [2, 4, 3, 2]: [..., Q, S, E], where E is the last axis "
      "of v [2, 2, 5, 2]"}},
    {"lse of another shape",
     [](Bad& b) {
       b.out.lse = MutableView::host(b.lse.data(), {2, 4, 3, 1});
     },
     {"lse has shape [2, 4, 3, 1], expected [2, 4, 3]: [..., Q, S], where S is axis -2 of q [2, 4, "
      "3, 6]"}},
    {"lse in 16 bits",
     [](Bad& b) {
       b.out.lse = MutableView::host(b.lse.data(), DType::bf16, {2, 4, 3});
     },
     {"lse has type bf16; supported: f32"}},
    {"y of integers",
     [](Bad& b) {
       b.out.y = MutableView::host(b.y.data(), DType::i32, {2, 4, 3, 2});
     },
     {"y has type i32; supported: f32, bf16 or f16"}},
    {"y over q",
     [](Bad& b) {
       b.out.y = MutableView::host(b.numbers.data(), {2, 4, 3, 2});
     },
     {"y overlaps the input q in memory; outputs must be apart from inputs"}},
    {"y over v alone",
     [](Bad& b) {
       b.in.v = View::host(b.y.data() + 8, {2, 2, 5, 2});
     },
     {"y overlaps the input v in memory; outputs must be apart from inputs"}},
    {"lse over y",
     [](Bad& b) {
       b.out.lse = MutableView::host(b.y.data() + 40, {2, 4, 3});
     },
     {"y and lse overlap in memory; outputs must be apart from each other"}},
    {"lse over the lengths",
     [](Bad& b) {
       b.out.lse = MutableView::host(reinterpret_cast<float*>(b.lengths.data()), {2, 4, 3});
     },
     {"lse overlaps the input kv_lengths in memory; outputs must be apart from inputs"}},
    {"y in one place",
     [](Bad& b) {
       b.out.y = b.out.y.reshaped({2, 4, 3, 2}, {0, 0, 0, 1});
     },
     {"y with extents [2, 4, 3, 2] and strides [0, 0, 0, 1] has elements that share memory; an "
      "output needs strides that keep them apart"}},
    {"a stride below 0",
     [](Bad& b) {
       b.in.k = b.in.k.reshaped({2, 2, 5, 6}, {60, 30, -6, 1});
     },
     {"k has strides [60, 30, -6, 1]; axis 2 is negative, the least is 0; copy the array or "
      "reverse the other operands"}},
    // Execution.
    {"a block of no queries",
     [](Bad& b) {
       b.execution.block_sizes = attention::BlockSizes{0, 16};
     },
     {"q_block_size is 0; block sizes are 1 to 2147483647"}},
    {"a block of fewer keys than none",
     [](Bad& b) {
       b.execution.block_sizes = attention::BlockSizes{16, -4};
     },
     {"kv_block_size is -4; block sizes are 1 to 2147483647"}},
    {"a knob",
     [](Bad& b) {
       b.execution.knobs = {{"splits", 2}};
     },
     {"knobs: eigen has no \"splits\", but parts, threads, lanes; leave it out, or name the "
      "implementation that has it"}},
    {"an implementation",
     [](Bad& b) { b.execution.implementation = "flash"; },
     {"implementation: unknown name \"flash\"; known are opencl, eigen, reference"}},
};

TEST(AttentionMisuse, EachMistakeIsOneErrorThatNamesIt) {
  Context context(ContextOptions{.host_only = true, .warning_handler = [](const auto&) {}});
  for (const auto& mistake : mistakes) {
    SCOPED_TRACE(mistake.name);
    Bad call;
    call.execution.implementation = "eigen";
    mistake.breaks(call);
    const auto numbers = call.numbers;
    expect_error(mistake.code, mistake.says, [&] {
      attention::forward(context, call.in, call.out, call.options, call.execution).wait();
    });
    EXPECT_EQ(call.numbers, numbers);
    for (const auto* array : {&call.y, &call.lse}) {
      EXPECT_EQ(std::count(array->begin(), array->end(), untouched), 256);
    }
  }
}

TEST(AttentionMisuse, APassThatItDoesNotHave) {
  Context context(ContextOptions{.host_only = true});
  const Bad call;
  for (const Pass pass : {Pass::backward, Pass::value_and_grad, Pass::forward_partial}) {
    const auto why = attention::why_unsupported(context, "eigen", pass, call.in, {}, {});
    ASSERT_TRUE(why);
    EXPECT_NE(why->find("has no such pass; it has forward"), std::string::npos) << *why;
  }
}

}  // namespace
}  // namespace tessera::test
