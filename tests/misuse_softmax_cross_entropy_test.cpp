// SPDX-License-Identifier: Apache-2.0
// What is wrong of softmax_cross_entropy alone: its logits, and a gradient that is partly in place.
#include "tests/support/misuse.hpp"

namespace tessera::misuse {
namespace {

using C = Call<softmax_cross_entropy::Operator>;

const std::vector<Case<C::Op>>& own_cases() {
  static const std::vector<Case<C::Op>> cases = {
      {"RankOfLogits",
       [](C& c) { c.in.logits = View::host(c.data("logits"), {}); },
       {"logits has no axes"}},
      {"PartlyInPlace",
       [](C& c) {
         c.in.logits = View::host(c.data("logits"), {3, V});
         c.in.labels = View::host(c.labels.data(), {3});
         c.out.lse = c.out_view(16, {3});
         c.grad.grad_logits = MutableView::host(c.data("logits") + V, {3, V});
       },
       {"grad_logits overlaps the input logits", "the very same view"}},
      {"InPlaceInAnotherType",
       [](C& c) {
         c.grad.grad_logits =
             MutableView::host(static_cast<void*>(c.data("logits")), DType::bf16, {B, V});
       },
       {"grad_logits overlaps the input logits", "the very same view"}},
      {"AccumulateInPlace",
       [](C& c) {
         c.grad.grad_logits = MutableView::host(c.data("logits"), {B, V});
         c.grad.accumulate = true;
       },
       {"accumulate", "grad_logits is the view logits"}},
  };
  return cases;
}

std::vector<Refused> all_cases() {
  std::vector<Refused> all;
  add_cases(all, own_cases());
  return all;
}

class SoftmaxMisuse : public testing::TestWithParam<Refused> {};
TEST_P(SoftmaxMisuse, IsRefused) { GetParam().expect(); }
INSTANTIATE_TEST_SUITE_P(All, SoftmaxMisuse, testing::ValuesIn(all_cases()), refused_name);

}  // namespace
}  // namespace tessera::misuse
