// SPDX-License-Identifier: Apache-2.0
// Why a plan has the schedule that it has: the schedules that were looked at, on machines that are
// not here. Nothing is compiled.
#include <gtest/gtest.h>

#include "tessera/tessera.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;
namespace norm = rms_norm;

struct Question {
  Pass pass = Pass::value_and_grad;
  std::int64_t b = 512, h = 1024, v = 32768;
  DType type = DType::f32;
  std::optional<std::size_t> workspace{};
  std::optional<lce::BlockSizes> blocks{};
  const char* implementation = "opencl";
};

Plan plan_for(const char* machine, const Question& q) {
  Context context({.plan_for = machine});
  lce::Inputs inputs{.x = View::host(nullptr, q.type, {q.b, q.h}),
                     .labels = View::host(nullptr, DType::i32, {q.b}),
                     .w = View::host(nullptr, q.type, {q.h, q.v}, {1, q.h})};
  if (q.pass == Pass::backward) inputs.statistics = View::host(nullptr, DType::f32, {q.b, 2});
  LossOptions options;
  options.wants.grad_x = options.wants.grad_w = true;
  return lce::plan(context, q.pass, inputs, {}, {}, options,
                   {.implementation = q.implementation,
                    .block_sizes = q.blocks,
                    .workspace_bytes = q.workspace});
}

const ConsideredSchedule& taken(const Plan& plan) {
  const auto& all = plan.considered;
  const auto found =
      std::find_if(all.begin(), all.end(), [](const auto& one) { return one.is_taken; });
  EXPECT_NE(found, all.end());
  return found == all.end() ? all.front() : *found;
}

TEST(OpenclExplain, OneScheduleIsTakenAndEachHasAReason) {
  for (const char* machine : {"cpu-64", "h100"}) {
    for (const Pass pass : {Pass::forward, Pass::backward, Pass::value_and_grad}) {
      for (const DType type : {DType::f32, DType::bf16}) {
        for (const std::int64_t b : {1, 512, 4096}) {
          SCOPED_TRACE(std::string(machine) + " " + to_string(pass) + " " + to_string(type) +
                       " B " + std::to_string(b));
          const Plan plan = plan_for(machine, {.pass = pass, .b = b, .type = type});
          EXPECT_EQ(plan.considered.size(), pass == Pass::forward ? 1u : 7u);
          int count = 0;
          for (const auto& one : plan.considered) {
            count += one.is_taken;
            EXPECT_FALSE(one.name.empty());
            EXPECT_FALSE(one.logits.empty());
            EXPECT_FALSE(one.reason.empty()) << one.name;
            EXPECT_GE(one.predicted_share, 0.0) << one.name;
            EXPECT_LE(one.predicted_share, 1.0) << one.name;
            EXPECT_EQ(one.predicted_share > 0.0, !one.launches.empty()) << one.name;
            EXPECT_EQ(one.predicted_seconds() > 0.0, !one.launches.empty()) << one.name;
          }
          EXPECT_EQ(count, 1);
          EXPECT_EQ(taken(plan).name, plan.dispatch.schedule);
          EXPECT_EQ(taken(plan).workspace_bytes, plan.workspace_bytes);
        }
      }
    }
  }
}

/// Of no element, with a teacher, and without products.
TEST(OpenclExplain, EveryOperatorIsPlanned) {
  for (const char* machine : {"cpu-8", "h100"}) {
    for (const auto& [b, h] : {std::pair<std::int64_t, std::int64_t>{0, 64}, {64, 0}, {1, 1}}) {
      const Plan plan = plan_for(machine, {.b = b, .h = h, .v = 1});
      EXPECT_EQ(taken(plan).name, plan.dispatch.schedule) << machine << " B " << b << " H " << h;
      EXPECT_LE(taken(plan).predicted_share, 1.0) << machine << " B " << b << " H " << h;
    }
    Context context({.plan_for = machine});
    const auto array = [](std::int64_t rows, std::int64_t columns) {
      return View::host(nullptr, DType::f32, {rows, columns});
    };
    const View labels = View::host(nullptr, DType::i32, {64});
    const Plan distillation = linear_distillation::plan(
        context, Pass::value_and_grad,
        {.x = array(64, 32),
         .w = array(32, 1000),
         .teacher_x = array(64, 48),
         .teacher_w = array(48, 1000),
         .labels = labels},
        {}, {}, {.loss = {.wants = {.grad_x = true}}}, {.implementation = "opencl"});
    EXPECT_EQ(taken(distillation).name, distillation.dispatch.schedule);
    const Plan softmax = softmax_cross_entropy::plan(context, Pass::forward,
                                                     {.logits = array(64, 1000), .labels = labels},
                                                     {}, {}, {}, {.implementation = "opencl"});
    EXPECT_EQ(taken(softmax).name, softmax.dispatch.schedule);
  }
}

/// Its products are launches beside the student's, once for every pass over the logits.
TEST(OpenclExplain, ATeachersLayerIsPlanned) {
  for (const char* machine : {"cpu-8", "h100"}) {
    for (const Pass pass : {Pass::forward, Pass::backward, Pass::value_and_grad}) {
      SCOPED_TRACE(std::string(machine) + " " + to_string(pass));
      Context context({.plan_for = machine});
      const auto array = [](std::int64_t rows, std::int64_t columns) {
        return View::host(nullptr, DType::f32, {rows, columns});
      };
      constexpr std::int64_t b = 512, v = 8192, h = 256, teacher_h = 320;
      const bool saved = pass == Pass::backward;
      const Plan plan = linear_distillation::plan(
          context, pass,
          {.x = array(b, h),
           .w = array(h, v),
           .teacher_x = array(b, teacher_h),
           .teacher_w = array(teacher_h, v),
           .statistics = saved ? array(b, 2) : View(),
           .divergence_statistics = saved ? array(b, 5) : View()},
          {}, {}, {.alpha = 1.0f, .loss = {.wants = {.grad_x = true, .grad_w = true}}},
          {.implementation = "opencl"});
      double student = 0.0, teacher = 0.0;
      for (const auto& one : taken(plan).launches) {
        if (one.kernel == "teacher") teacher += one.flops;
        if (one.kernel == "forward" || one.kernel == "gradient") student += one.flops;
      }
      EXPECT_GE(teacher, 2.0 * b * v * teacher_h);
      EXPECT_DOUBLE_EQ(teacher * h, student * teacher_h);
    }
  }
}

/// Rows fill the machine by themselves, or are cut, or shared by more work-items.
TEST(OpenclExplain, RowsAreCutByWhatRunsAtOnce) {
  const auto array = [](std::int64_t rows, std::int64_t columns) {
    return View::host(nullptr, DType::f32, {rows, columns});
  };
  const auto softmax = [&](const char* machine, Pass pass, std::int64_t b) {
    Context context({.plan_for = machine});
    const View labels = View::host(nullptr, DType::i32, {b});
    return softmax_cross_entropy::plan(context, pass, {.logits = array(b, 50257), .labels = labels},
                                       {}, {}, {}, {.implementation = "opencl"});
  };
  const auto rms = [&](const char* machine, std::int64_t b) {
    Context context({.plan_for = machine});
    return norm::plan(context, Pass::backward,
                      {.x = array(b, 4096),
                       .scale = View::host(nullptr, DType::f32, {4096}),
                       .dy = array(b, 4096)},
                      {}, {}, {}, {.implementation = "opencl"});
  };
  const auto reported = [](const std::vector<NamedValue>& all, std::string_view name) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.name == name; });
    return found == all.end() ? -1 : found->value;
  };
  // Whole rows save a look at the logits, where there are eight for each core.
  EXPECT_EQ(softmax("cpu-64", Pass::value_and_grad, 520).dispatch.schedule, "row_by_row");
  const Plan few = softmax("cpu-64", Pass::value_and_grad, 16);
  EXPECT_EQ(few.dispatch.schedule, "streamed");
  EXPECT_EQ(taken(few).launches.front().groups, 512);
  EXPECT_EQ(few.considered.front().predicted_share, 0.25);
  const Plan cut = softmax("h100", Pass::forward, 512);
  EXPECT_EQ(cut.considered.size(), 1u);
  EXPECT_GT(taken(cut).predicted_share, 0.9);
  EXPECT_EQ(taken(cut).launches.front().groups, 512 * reported(cut.dispatch.knobs, "slices"));

  // As many groups as there are rows, or several rows each; never more sums than that.
  EXPECT_EQ(reported(rms("h100", 512).dispatch.knobs, "group"), 256);
  EXPECT_LE(reported(rms("h100", 65536).dispatch.knobs, "group"), 128);
  EXPECT_EQ(taken(rms("cpu-64", 512)).launches.front().groups, 64);
  EXPECT_EQ(taken(rms("cpu-192", 512)).reason, "each row is one group's, of which 192 run at once");
  for (const char* machine : {"cpu-192", "h100"}) {
    const Plan none = rms(machine, 0);
    EXPECT_EQ(taken(none).launches.front().groups, 0) << machine;
  }
}

/// With as much memory as a schedule is said to need it is taken, and with less it is not.
TEST(OpenclExplain, WhatIsSaidToBeNeededIsEnough) {
  for (const char* machine : {"cpu-8", "h100"}) {
    Question q;
    q.workspace = plan_for(machine, q).minimum_workspace_bytes;
    int found = 0;
    for (const auto& one : plan_for(machine, q).considered) {
      if (one.reason.find("of scratch, and") == std::string::npos) continue;
      SCOPED_TRACE(std::string(machine) + " " + one.name + ": " + one.reason);
      ++found;
      Question enough = q;
      enough.workspace = static_cast<std::size_t>(one.workspace_bytes);
      // Of ways of one name the first is meant, or what stands before it fits by then.
      const Plan plan = plan_for(machine, enough);
      bool is_possible = false;
      for (const auto& other : plan.considered) {
        is_possible |= other.logits == one.logits && other.predicted_share > 0.0;
      }
      EXPECT_TRUE(is_possible);
    }
    EXPECT_GE(found, 2) << machine;
  }
}

/// Where only narrow tiles have room, a way may be none with the wide ones.
TEST(OpenclExplain, TilesOfTheCallMayBeNarrowerThanTheBest) {
  for (const std::int64_t h : {7, 17, 33, 40}) {
    Question q{.b = 16, .h = h, .v = 1000};
    q.workspace = plan_for("cpu-8", q).minimum_workspace_bytes;
    const Plan plan = plan_for("cpu-8", q);
    EXPECT_EQ(taken(plan).name, plan.dispatch.schedule) << h;
  }
}

TEST(OpenclExplain, ReasonsAreThoseOfTheCall) {
  const auto reason = [](const Plan& plan, const char* name) {
    for (const auto& one : plan.considered) {
      if (one.name == name) return one.reason;
    }
    return std::string("no ") + name;
  };
  const Plan cpu = plan_for("cpu-64", {});
  EXPECT_EQ(taken(cpu).name, "one_chunk_in_grad_w");
  EXPECT_EQ(taken(cpu).reason, "the first that is possible");
  EXPECT_EQ(reason(cpu, "v_outer"), "comes after one_chunk_in_grad_w");
  EXPECT_EQ(reason(cpu, "one_chunk_partly_in_grad_w"), "grad_w has room for all logits");
  EXPECT_EQ(reason(plan_for("cpu-64", {.b = 4096}), "one_chunk_in_grad_w"),
            "grad_w has no room for the logits of all rows that count");
  EXPECT_EQ(reason(plan_for("h100", {}), "one_chunk_in_grad_w"),
            "the device does not work on host memory");
  EXPECT_EQ(reason(plan_for("h100", {.pass = Pass::backward}), "one_chunk"),
            "no pass over all logits comes before the gradients");
}

/// Matrix units serve what is bf16 alone, from sm_80 on; for the rest their refusal says why.
TEST(OpenclExplain, MatrixUnitsServeWhatIsBf16) {
  const auto plan_of = [](const char* machine, DType x, DType w, LossOptions options,
                          std::optional<DType> dz = std::nullopt, bool bias = false,
                          const char* implementation = "opencl") {
    Context context({.plan_for = machine, .warning_handler = [](const std::string&) {}});
    options.wants.grad_x = options.wants.grad_w = true;
    options.wants.grad_bias = bias;
    return lce::plan(context, Pass::value_and_grad,
                     {.x = View::host(nullptr, x, {512, 1024}),
                      .labels = View::host(nullptr, DType::i32, {512}),
                      .w = View::host(nullptr, w, {1024, 32768}, {1, 1024}),
                      .bias = bias ? View::host(nullptr, DType::bf16, {32768}) : View()},
                     {}, {}, options, {.implementation = implementation, .dz_dtype = dz})
        .dispatch;
  };
  const auto bf16 = DType::bf16, f32 = DType::f32;
  const auto knob = [](const Dispatch& of, std::string_view name) {
    const auto found = std::find_if(of.knobs.begin(), of.knobs.end(),
                                    [&](const auto& one) { return one.name == name; });
    return found == of.knobs.end() ? -1 : found->value;
  };
  for (const auto& [asked, served, columns] :
       {std::tuple{"opencl", "opencl.wgmma", 128}, {"opencl.mma", "opencl.mma", 256}}) {
    const Dispatch h100 = plan_of("h100", bf16, bf16, {}, {}, false, asked);
    EXPECT_EQ(h100.implementation, served);
    EXPECT_EQ(knob(h100, "tile_columns"), columns);
    EXPECT_EQ(h100.notes, std::vector<std::string>{"dz is rounded to bf16"});
  }
  // No more local memory than its driver reports.
  const Dispatch a100 = plan_of("a100", bf16, bf16, {});
  EXPECT_EQ(a100.implementation, "opencl.mma");
  EXPECT_EQ(knob(a100, "tile_rows"), 64);
  for (const auto& other :
       {plan_of("h100", f32, bf16, {}), plan_of("h100", bf16, f32, {}),
        plan_of("h100", bf16, bf16, {}, f32), plan_of("h100", bf16, bf16, {}, {}, true),
        plan_of("mi300x", bf16, bf16, {}), plan_of("a770", bf16, bf16, {})}) {
    EXPECT_EQ(other.implementation, "opencl.simt");
    for (const char* unit : {"opencl.wgmma", "opencl.mma"}) {
      const auto refused = std::find_if(other.refused.begin(), other.refused.end(),
                                        [&](const auto& r) { return r.implementation == unit; });
      ASSERT_NE(refused, other.refused.end());
      EXPECT_FALSE(refused->reason.empty());
    }
  }
}

/// Without a caller's blocks there is nothing to note; with them what has no effect is, and the
/// plan reports what was used.
TEST(OpenclExplain, BlocksWithoutEffectAreNoted) {
  const auto blocks_of = [](const Plan& plan) {
    lce::BlockSizes blocks;
    from_named(plan.dispatch.block_sizes, blocks);
    return blocks;
  };
  EXPECT_EQ(plan_for("h100", {}).dispatch.notes, std::vector<std::string>{});
  Question q{.blocks = lce::BlockSizes{256, 32, 2048}};
  Plan plan = plan_for("h100", q);
  EXPECT_EQ(plan.dispatch.notes,
            (std::vector<std::string>{
                "h_block_size = 32 has no effect: opencl.simt sums all of H at once",
                "b_block_size = 256 has no effect: the schedule one_chunk takes 512 rows "
                "at a time"}));
  EXPECT_EQ(blocks_of(plan).b_block_size, 512);
  EXPECT_EQ(blocks_of(plan).h_block_size, 1024);
  EXPECT_EQ(blocks_of(plan).v_block_size, 2048);
  // What is reported can be given.
  q.blocks = blocks_of(plan);
  const Plan again = plan_for("h100", q);
  EXPECT_EQ(again.dispatch.notes, std::vector<std::string>{});
  EXPECT_EQ(again.dispatch.block_sizes, plan.dispatch.block_sizes);
  // On a CPU h_block_size is a step, and b_block_size bounds the chunks of forward.
  q = {.pass = Pass::forward, .blocks = lce::BlockSizes{256, 32, 2048}};
  plan = plan_for("cpu-8", q);
  EXPECT_EQ(plan.dispatch.notes, std::vector<std::string>{});
  EXPECT_EQ(blocks_of(plan).b_block_size, 256);
  EXPECT_EQ(blocks_of(plan).h_block_size, 32);
}

}  // namespace
}  // namespace tessera::test
