// SPDX-License-Identifier: Apache-2.0
// Problems with many options at once on opencl.wgmma, in an interpreter
// (tests/ptx): more than scripts/test.sh has time for.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/ptx_fixture.hpp"
#include "tests/support/random.hpp"

namespace tessera::test {
namespace {

/// Extents whose lines of w begin at multiples of 16 bytes.
void mix_extents(Case& c, Random& random) {
  c.w_layout = random.one_of({WLayout::vh, WLayout::hv, WLayout::vh_padded, WLayout::hv_padded});
  c.place = random.one_of({Place::host, Place::aligned_device});
  c.b = random.one_of({1, 7, 63, 128, 129, 141, 200, 257, 300, 390});
  c.h = random.one_of({2, 7, 63, 65, 129, 200, 263, 393});
  c.v = random.one_of({1, 7, 63, 256, 257, 300, 521, 777, 1001});
  const std::int64_t blocks = random.one_of({1, 2, 8, 9, 17, 33, 41, 65, 100});
  if (c.w_layout == WLayout::vh) c.h = 8 * blocks;
  if (c.w_layout == WLayout::hv) c.v = 8 * blocks;
  if (c.w_layout == WLayout::vh_padded) c.h = 8 * blocks - 3;
  if (c.w_layout == WLayout::hv_padded) c.v = 8 * blocks - 5;
  const bool is_padded = c.w_layout == WLayout::vh_padded || c.w_layout == WLayout::hv_padded;
  if (is_padded) c.place = Place::aligned_device;
  if (random.once_in(3)) {
    c.x_layout = random.one_of({XLayout::padded, XLayout::column, XLayout::shifted,
                                XLayout::leading3, XLayout::vector, XLayout::broadcast});
  }
  if (c.x_layout == XLayout::shifted || c.x_layout == XLayout::leading3) c.b = 36;
  if (c.x_layout == XLayout::vector) c.b = 1;
}

void mix_loss(Case& c, Random& random) {
  c.side_type = random.one_of({DType::f32, DType::bf16});
  c.label_type = random.one_of({DType::i32, DType::i64});
  c.class_weight = random.once_in(3);
  c.bias = random.once_in(3);
  c.targets = random.one_of(
      {Targets::labels, Targets::labels, Targets::one_pair, Targets::pairs, Targets::dense});
  const bool one_row = c.x_layout == XLayout::vector || c.x_layout == XLayout::broadcast;
  if (c.targets != Targets::dense && !one_row && random.once_in(2)) {
    c.labels = random.one_of({Labels::some_ignored, Labels::some_ignored, Labels::all_ignored});
  }
  if (c.x_layout == XLayout::dense && c.targets == Targets::labels && random.once_in(4)) {
    c.data = random.one_of({Data::dominating, Data::all_negative, Data::equal, Data::rising});
  }
  c.weight = random.one_of({Weights::none, Weights::positive, Weights::signed_and_zero});
  LossOptions& o = c.options;
  o.logsumexp_weight = random.one_of({0.0f, 1e-2f});
  o.logit_scale = random.one_of({1.0f, 0.7f, 1.5f});
  o.logit_soft_cap = random.one_of({0.0f, 0.0f, 3.0f});
  o.label_smoothing = random.one_of({0.0f, 0.2f, 1.0f});
  o.reduction = random.one_of({Reduction::mean, Reduction::sum, Reduction::none});
  c.outputs = random.one_of({all_outputs | own_outputs, 0u, unsigned{argmax_bit | entropy_bit}});
  c.strided_outputs = random.once_in(3);
}

void mix_gradients(Case& c, Random& random) {
  constexpr unsigned both = grad_x_bit | grad_w_bit;
  c.gradients = random.one_of<unsigned>({both, both, grad_x_bit, grad_w_bit});
  c.dloss = random.one_of({Cotangent::none, Cotangent::given});
  c.dlse = random.one_of({Cotangent::none, Cotangent::given});
  c.from_lse = random.once_in(3);
  c.accumulate = random.one_of({0u, 0u, c.gradients});
  if (random.once_in(2)) c.grad_x_type = random.one_of({DType::f32, DType::bf16, DType::f16});
  if (random.once_in(2)) c.grad_w_type = random.one_of({DType::f32, DType::bf16, DType::f16});
  if (random.once_in(3)) {
    c.grad_w_layout = random.one_of({WLayout::hv, WLayout::vh_padded, WLayout::strided});
  }
}

/// A teacher is a second layer, whose H is another, or its logits.
void give_teacher(Case& c, Random& random) {
  c.op = &test_operator<linear_distillation::Operator>();
  c.side_type = DType::bf16;
  c.class_weight = false;
  c.data = Data::gaussian;
  // The lines of its w are of other bytes where H is no multiple of 8.
  c.teaching = c.w_layout == WLayout::vh_padded ? random.one_of({2, 5, 7})
                                                : random.one_of({0, 1, 2, 3, 4, 5, 6, 7, 8});
}

Case mixed(std::uint64_t number) {
  Random random(number);
  Case c;
  c.name = "mixed_" + std::to_string(number);
  c.seed = number;
  c.x_type = c.w_type = DType::bf16;
  mix_extents(c, random);
  mix_loss(c, random);
  mix_gradients(c, random);
  if (random.once_in(5)) give_teacher(c, random);
  if (random.once_in(3)) c.knobs = {{"stages", 3}};
  return c;
}

Pass pass_of(const Case& c, Random& random) {
  const bool has_shards = c.place == Place::host && c.op->has_shards(c);
  const Pass pass = random.one_of({Pass::forward, Pass::backward, Pass::value_and_grad,
                                   Pass::value_and_grad, Pass::forward_partial});
  return pass == Pass::forward_partial && !has_shards ? Pass::forward : pass;
}

class WgmmaMixed : public PtxTest {};

TEST_F(WgmmaMixed, AgreesWithTheOracle) {
  constexpr std::uint64_t cases = 300;
  std::set<std::string> schedules;
  for (std::uint64_t number = 1; number <= cases; ++number) {
    Case c = mixed(number);
    if (!is_wanted(c.name)) continue;
    Random random(1000 + number);
    const Pass pass = pass_of(c, random);
    SCOPED_TRACE(c.name);
    driver_.seed(number);
    driver_.fact("compute_units", random.one_of({1, 2, 5, 132}));
    Context context(quiet());
    // Logits may wait in grad_w, of which each schedule makes something else.
    auto& facts = opencl::runtime_of(context.state())->facts_for_test();
    facts.zero_copy = c.place == Place::aligned_device && random.once_in(2);
    if (random.once_in(3)) {
      // Between what it takes and the least that it accepts.
      const Plan plan = plan_case(context, hoppers_unit, pass, c);
      const auto spare =
          std::max<std::int64_t>(0, plan.workspace_bytes - plan.minimum_workspace_bytes);
      c.workspace_bytes = static_cast<std::size_t>(plan.minimum_workspace_bytes +
                                                   spare / 8 * random.one_of({0, 1, 2, 4, 6}));
    }
    EXPECT_TRUE(run_case(context, hoppers_unit, pass, c));
    EXPECT_EQ(driver_.fault(), "");
    schedules.insert(plan_case(context, hoppers_unit, pass, c).dispatch.schedule);
    forget(c);
    if (HasFailure()) return;
  }
  if (!wants_all()) return;
  for (const char* name : {"streamed", "one_chunk", "chunked", "v_outer", "one_chunk_in_grad_w"}) {
    EXPECT_TRUE(schedules.contains(name)) << name;
  }
}

}  // namespace
}  // namespace tessera::test
