// SPDX-License-Identifier: Apache-2.0
// Hopper's matrix unit without one: each gate before it says why it is closed, and opencl.wgmma
// plans for machines that are not here.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "host/engines/wgmma_probe.hpp"
#include "host/linear_cross_entropy/opencl/run.hpp"
#include "host/linear_cross_entropy/request.hpp"
#include "host/linear_distillation/opencl/run.hpp"
#include "host/opencl/machines.hpp"
#include "host/opencl/program_cache.hpp"
#include "host/operators/bind.hpp"
#include "host/operators/matrix_unit.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/schedules.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

class WgmmaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!context_.has_device() || !runtime().facts().is_cpu) GTEST_SKIP() << "no OpenCL CPU";
  }
  opencl::Runtime& runtime() { return *opencl::runtime_of(context_.state()); }
  opencl::DeviceFacts& facts() { return runtime().facts_for_test(); }
  void pretend_to_be_one() {
    facts().architecture = "sm_90";
    facts().sub_group_sizes = {32};
    facts().local_memory_bytes = 48 << 10;
    facts().max_work_group_size = 384;
  }
  std::string reason() { return runtime().keep<engines::Wgmma>().verdict(runtime()).reason; }

  Context context_{{.warning_handler = [](const std::string&) {}}};
};

TEST_F(WgmmaTest, ThisDeviceIsNone) {
  EXPECT_EQ(reason(), "the device is not NVIDIA's sm_90: its architecture is unknown");
  EXPECT_EQ(operators::wgmma_state(context_), std::nullopt);
}

TEST_F(WgmmaTest, EachFactIsAsked) {
  pretend_to_be_one();
  // Later ones than sm_90 have another unit.
  for (const char* other : {"sm_80", "sm_100", "gfx942"}) {
    facts().architecture = other;
    EXPECT_EQ(reason(),
              std::string("the device is not NVIDIA's sm_90: its architecture is ") + other);
  }
  pretend_to_be_one();
  facts().sub_group_sizes = {16};
  EXPECT_EQ(reason(), "it needs warps of 32, the device has 16");
  pretend_to_be_one();
  facts().local_memory_bytes = 16 << 10;
  EXPECT_EQ(reason(), "it needs 49152 bytes of local memory, the device reports 16384");
  pretend_to_be_one();
  facts().max_work_group_size = 256;
  EXPECT_EQ(reason(), "it needs work-groups of 384, the device takes 256");
}

TEST_F(WgmmaTest, ADriverThatDoesNotTakeTheInstructionsIsAskedOnce) {
  pretend_to_be_one();
  const auto builds = runtime().programs().builds();
  const std::string closed = reason();
  EXPECT_TRUE(closed.starts_with("the driver does not take it: ")) << closed;
  EXPECT_NE(closed.find("engines/wgmma/probe.cl"), std::string::npos) << closed;
  EXPECT_EQ(closed.find('\n'), std::string::npos);
  EXPECT_EQ(operators::wgmma_state(context_), "closed: " + closed);
  EXPECT_EQ(runtime().programs().builds(), builds + 1);
}

/// An engine for any device, of calls whose lines begin at multiples of 16 bytes.
const bool has_picky_engine = [] {
  auto entry = engines::simt_engine();
  entry.name = "picky";
  entry.why_unsupported = [](const opencl::DeviceFacts&,
                             const engines::Operands& of) -> std::optional<std::string> {
    if (of.line_bytes == 16) return std::nullopt;
    return "lines at " + std::to_string(of.line_bytes);
  };
  engines::add_engine(std::move(entry));
  return true;
}();

/// Buffers of one shape and type, which differ in where they begin alone.
TEST_F(WgmmaTest, EachCallsLinesAreAsked) {
  constexpr std::int64_t b = 4, h = 16, v = 32;
  const std::vector<bf16> x(b * h, bf16(0.5f));
  const std::vector<std::int32_t> labels(b, 1);
  std::vector<float> loss(b);
  const cl::Buffer memory(runtime().context(), CL_MEM_READ_WRITE, 2 * h * v + 64);
  cl::CommandQueue(runtime().context(), runtime().device())
      .enqueueFillBuffer(memory, cl_uchar{0}, 0, 2 * h * v + 64);
  const auto why_not = [&](std::int64_t offset) -> std::string {
    const Dispatch dispatch =
        lce::forward(context_,
                     {.x = View::host(x.data(), {b, h}),
                      .labels = View::host(labels.data(), {b}),
                      .w = View::device(memory(), offset, DType::bf16, {h, v}, {1, h})},
                     {.loss = MutableView::host(loss.data(), {b})}, {.reduction = Reduction::none},
                     {.implementation = {"opencl.picky", "opencl.simt"}})
            .dispatch();
    return dispatch.refused.empty() ? "" : dispatch.refused.front().reason;
  };
  EXPECT_EQ(why_not(0), "");
  EXPECT_EQ(why_not(2), "lines at 2");
  EXPECT_EQ(why_not(16), "");
  EXPECT_EQ(why_not(24), "lines at 8");
}

// ---- plans ----

/// A call on a machine that is not here.
struct Question {
  const char* machine = "h100";
  Pass pass = Pass::value_and_grad;
  std::int64_t b = 512, h = 1024, v = 32768;
  DType x = DType::bf16, w = DType::bf16;
  Dims w_strides{1, 1024};
  bool bias = false;
  lce::ExecutionOptions execution{};
  std::function<void(opencl::DeviceFacts&)> change{};
};

lce::Inputs inputs_of(const Question& q) {
  const bool saved = q.pass == Pass::backward;
  return {.x = View::host(nullptr, q.x, {q.b, q.h}),
          .labels = View::host(nullptr, DType::i32, {q.b}),
          .w = View::host(nullptr, q.w, {q.h, q.v}, q.w_strides),
          .bias = q.bias ? View::host(nullptr, DType::f32, {q.v}) : View(),
          .statistics = saved ? View::host(nullptr, DType::f32, {q.b, 2}) : View()};
}

LossOptions options_of(const Question& q) {
  LossOptions options;
  options.wants.grad_x = options.wants.grad_w = true;
  options.wants.grad_bias = q.bias;
  return options;
}

Plan plan_of(const Question& q) {
  Context context({.plan_for = q.machine, .warning_handler = [](const std::string&) {}});
  if (q.change) q.change(opencl::runtime_of(context.state())->facts_for_test());
  return lce::plan(context, q.pass, inputs_of(q), {}, {}, options_of(q), q.execution);
}

std::string why_refused(const Plan& plan) {
  for (const auto& refused : plan.dispatch.refused) {
    if (refused.implementation == "opencl.wgmma") return refused.reason;
  }
  return "not refused";
}

TEST(WgmmaPlan, OfHopperAlone) {
  for (const std::int64_t gib : {80, 141}) {
    const Plan plan = plan_of({.change = [=](auto& facts) {
      facts.global_memory_bytes = gib << 30;
      facts.max_allocation_bytes = gib << 28;
    }});
    EXPECT_EQ(plan.dispatch.implementation, "opencl.wgmma") << gib;
    EXPECT_EQ(why_refused(plan), "not refused");
  }
  for (const char* other : {"sm_80", "sm_89", "sm_93", "sm_100", "sm_120"}) {
    const Plan plan = plan_of({.change = [=](auto& facts) { facts.architecture = other; }});
    EXPECT_EQ(plan.dispatch.implementation, "opencl.mma");
    EXPECT_EQ(why_refused(plan),
              std::string("the device is not NVIDIA's sm_90: its architecture is ") + other);
  }
  const Plan plan = plan_of({.change = [](auto& facts) { facts.unit_local_bytes = 100 << 10; }});
  EXPECT_EQ(plan.dispatch.implementation, "opencl.mma");
  EXPECT_EQ(why_refused(plan),
            "it needs 232448 bytes of local memory in a compute unit, the device has 102400");
}

TEST(WgmmaPlan, WhatItDoesNotMultiplyIsServedByAnother) {
  constexpr DType f16 = DType::f16, f32 = DType::f32;
  constexpr const char *mma = "opencl.mma", *simt = "opencl.simt";
  struct Row {
    Question question;
    const char *serves, *reason;
  };
  for (const auto& [question, serves, reason] :
       {Row{{.x = f16, .w = f16}, mma, "has f16 by f16; opencl.mma serves"},
        {{.w = f32}, simt, "has f32 by bf16; opencl.simt serves"},
        {{.x = f32, .w = f32}, simt, "has f32 by f32"},
        {{.bias = true}, simt, "dz of grad_bias and of dz_dtype f32); opencl.simt serves"},
        {{.execution = {.dz_dtype = f32}}, simt, "dz_dtype f32"},
        {{.execution = {.gradient_filter_eps = 0.1f}}, mma, "gradient_filter_eps"},
        {{.w_strides = {2, 2048}}, mma, "no lines of elements"},
        {{.w_strides = {1, 1}}, mma, "no lines of elements"},
        {{.h = 1, .w_strides = {1, 1}}, mma, "at multiples of 2 bytes, it needs multiples of 16"},
        {{.h = 7, .w_strides = {1, 7}}, mma, "at multiples of 2 bytes"},
        {{.h = 4097, .w_strides = {1, 4097}}, mma, "at multiples of 2 bytes"},
        {{.h = 1020, .w_strides = {1, 1024}}, mma, "at multiples of 8 bytes"},
        {{.v = 32764, .w_strides = {32764, 1}}, mma, "at multiples of 8 bytes"},
        {{.b = 0, .h = 0, .w_strides = {1, 0}}, mma, "no lines of elements"}}) {
    const Plan plan = plan_of(question);
    EXPECT_EQ(plan.dispatch.implementation, serves) << reason;
    EXPECT_NE(why_refused(plan).find(reason), std::string::npos) << why_refused(plan);
  }
  // H may be anything where V is along the lines, and dz where it is not asked for.
  for (const Question& served :
       {Question{.h = 4097, .v = 32768, .w_strides = {32768, 1}},
        {.pass = Pass::forward, .bias = true, .execution = {.dz_dtype = f32}},
        {.h = 8, .v = 1, .w_strides = {1, 8}}}) {
    EXPECT_EQ(plan_of(served).dispatch.implementation, "opencl.wgmma")
        << why_refused(plan_of(served));
  }
  // A teacher's w is read as the student's is.
  Context context({.plan_for = "h100", .warning_handler = [](const std::string&) {}});
  for (const auto& [h, serves] : {std::pair<std::int64_t, std::string>{48, "wgmma"}, {44, "mma"}}) {
    const auto array = [](std::int64_t rows, std::int64_t columns, Dims strides = {}) {
      return View::host(nullptr, DType::bf16, {rows, columns}, strides);
    };
    const Plan plan = linear_distillation::plan(context, Pass::forward,
                                                {.x = array(64, 32),
                                                 .w = array(32, 1000, {1, 32}),
                                                 .teacher_x = array(64, h),
                                                 .teacher_w = array(h, 1000, {1, h})},
                                                {}, {}, {.alpha = 1.0f});
    EXPECT_EQ(plan.dispatch.implementation, "opencl." + serves) << why_refused(plan);
  }
}

TEST(WgmmaPlan, LinesAreThoseThatKernelsGet) {
  const auto memory = reinterpret_cast<cl_mem>(std::uintptr_t{64});
  const auto device = [&](std::int64_t offset, const Dims& extents, const Dims& strides) {
    return linear::line_bytes(View::device(memory, offset, DType::bf16, extents, strides));
  };
  EXPECT_EQ(device(0, {1024, 50}, {1, 1024}), 16);
  EXPECT_EQ(device(2, {1024, 50}, {1, 1024}), 2);
  EXPECT_EQ(device(8, {1024, 50}, {1, 1024}), 8);
  EXPECT_EQ(device(48, {1024, 50}, {1, 1024}), 16);
  EXPECT_EQ(device(0, {1023, 50}, {1, 1024}), 16) << "lines may be shorter than their steps";
  EXPECT_EQ(device(0, {1024, 50}, {1, 1025}), 2);
  EXPECT_EQ(device(0, {1001, 48}, {56, 1}), 16);
  EXPECT_EQ(device(0, {1001, 48}, {50, 1}), 4);
  EXPECT_EQ(device(0, {1001, 48}, {96, 2}), 0);
  EXPECT_EQ(device(0, {1024, 50}, {1, 0}), 0) << "one column, again and again";
  EXPECT_EQ(device(0, {1024, 1}, {1, std::int64_t{1} << 40}), 0);
  // Host memory may begin anywhere, and is staged line behind line.
  const auto host = [](const Dims& extents, const Dims& strides) {
    return linear::line_bytes(View::host(nullptr, DType::bf16, extents, strides));
  };
  EXPECT_EQ(host({1024, 50}, {1, 1025}), 16);
  EXPECT_EQ(host({1023, 50}, {1, 1024}), 2);
  EXPECT_EQ(host({1001, 48}, {50, 1}), 16);
  EXPECT_EQ(host({1024, 1}, {1, 1025}), 2) << "a single line is as it lies";
}

std::int64_t knob(const Plan& plan, std::string_view name) {
  const auto& knobs = plan.dispatch.knobs;
  const auto found = std::ranges::find(knobs, name, &NamedValue::name);
  return found == knobs.end() ? -1 : found->value;
}

TEST(WgmmaPlan, OneRangeAndOneChunkWhereMemoryAllows) {
  struct Shape {
    std::int64_t b, h, v, tiles;  ///< of a group of forward
  };
  for (const auto& [b, h, v, tiles] : {Shape{8192, 4096, 128256, 7},
                                       {4096, 2048, 32768, 8},
                                       {512, 2048, 32768, 4},
                                       {128, 2048, 8192, 1}}) {
    SCOPED_TRACE(b);
    Question q{.b = b, .h = h, .v = v, .w_strides = {1, h}};
    Plan plan = plan_of(q);
    EXPECT_EQ(plan.dispatch.schedule, "one_chunk");
    EXPECT_EQ(knob(plan, "chunk_rows"), b);
    EXPECT_EQ(knob(plan, "v_range"), v);
    EXPECT_LE(plan.workspace_bytes, std::int64_t{4300} << 20);
    EXPECT_EQ(knob(plan, "slices"), engines::ceil_div(v, 256 * tiles));
    q.pass = Pass::forward;
    plan = plan_of(q);
    EXPECT_EQ(knob(plan, "chunk_rows"), b);
    EXPECT_EQ(knob(plan, "slices"), engines::ceil_div(v, 256 * tiles));
  }
}

class WgmmaSchedule : public ::testing::Test {
 protected:
  /// Returns what `use` does of the request and its schedule.
  template <class Use>
  auto with_schedule(const Question& q, const Use& use) {
    const auto call =
        operators::bind<lce::Operator>(q.pass, inputs_of(q), {}, {}, options_of(q), q.execution);
    return operators::with_checked(
        context_, call, operators::Form::question, [&](const auto& checked) {
          const lce::Request request = lce::request_of(checked);
          return use(request, schedule_of<lce::Problem>(request, shapes_, facts_));
        });
  }

  static const schedule::Step& step_of(const schedule::Schedule& s, int kernel) {
    const auto& list = s.steps.list;
    return *std::find_if(list.begin(), list.end(),
                         [&](const auto& step) { return step.kernel == kernel; });
  }

  Context context_{{.host_only = true, .warning_handler = [](const std::string&) {}}};
  opencl::DeviceFacts facts_ = opencl::machine_of("h100").facts;
  std::vector<std::string> notes_;
  engines::EngineShapes shapes_ =
      engines::engine_entry("wgmma").shapes(facts_, {}, nullptr, notes_);
};

/// Blocks of 64 elements along the vocabulary are written whole: scratch has room for the last, and
/// no range begins in the midst of one.
TEST_F(WgmmaSchedule, DzHasWholeBlocks) {
  for (const Pass pass : {Pass::backward, Pass::value_and_grad}) {
    for (const std::int64_t v : {8, 1000, 5048, 32768}) {
      for (const std::size_t mib : {4, 16, 4096}) {
        Question q{.pass = pass, .b = 700, .h = 333, .v = v, .w_strides = {v, 1}};
        q.execution.workspace_bytes = mib << 20;
        SCOPED_TRACE(std::string(to_string(pass)) + " V " + std::to_string(v) + " MiB " +
                     std::to_string(mib));
        with_schedule(q, [&](const lce::Request& request, const schedule::Choice& choice) {
          const lce::Problem problem(request, choice.problem->shared_engine());
          const auto& engine = problem.engine();
          const auto& s = choice.schedule;
          const schedule::Arena arena(s.steps, s.shrink, engine);
          const std::int64_t rows = problem.held_rows(s), range = s.at.columns;
          const std::int64_t columns = s.keeps_results() ? v : range;
          EXPECT_EQ(arena.words(linear::region::dz),
                    rows * engines::round_up(columns, 64) / (s.keeps_results() ? 1 : 2));
          EXPECT_TRUE(range % 256 == 0 || range == v) << range;
          EXPECT_EQ(problem.x_part_columns(step_of(s, linear::grad_x), range) % 64, 0);
          EXPECT_EQ(engine.panel_rows(range) % 64, 0);
          for (const auto& step : s.steps.list) {
            // Slices of whole tiles, or one of all columns.
            if (step.kernel != linear::gradient || step.name == nullptr) continue;
            EXPECT_TRUE(step.order.slice % 256 == 0) << step.order.slice;
          }
          // x for logits and for grad_w, lines of both at multiples of 16 bytes, in 16 bits.
          const std::int64_t line = engines::round_up(333, 8) / 2;
          const std::int64_t packed = arena.words(linear::region::packed_rows);
          const std::int64_t apart = arena.words(linear::region::packed_columns);
          EXPECT_GE(packed, s.at.rows * line);
          EXPECT_GE(apart > 0 ? apart : packed, rows * line);
          return true;
        });
      }
    }
  }
}

TEST_F(WgmmaSchedule, PiecesOfWHaveWholeBlocks) {
  Question q{.b = 128, .h = 1024, .v = 32768, .w_strides = {1, 1024}};
  facts_.max_allocation_bytes = 20 << 20;
  with_schedule(q, [](const auto&, const schedule::Choice& choice) {
    EXPECT_EQ(choice.schedule.piece, 10240);
    return true;
  });
  facts_.max_allocation_bytes = 100 << 10;
  expect_error(ErrorCode::out_of_memory,
               {"102400", "50 columns", "opencl.wgmma takes multiples of 64"},
               [&] { with_schedule(q, [](const auto&, const auto&) { return true; }); });
}

/// A group has up to 8 tiles, and one where slots would wait: then they divide k too.
TEST_F(WgmmaSchedule, GroupsHaveSeveralTiles) {
  const auto expect_groups = [&](const Question& q, std::int64_t of_w, std::int64_t of_x,
                                 std::int64_t x_parts) {
    with_schedule(q, [&](const lce::Request&, const schedule::Choice& choice) {
      const auto& engine = choice.problem->engine();
      const auto& s = choice.schedule;
      const auto& to_w = s.steps.products[linear::of_grad_w].cut;
      const auto& to_x = s.steps.products[linear::of_grad_x].cut;
      EXPECT_EQ(engine.parts(s.at.columns, to_w, 1), of_w);
      EXPECT_EQ(engine.parts(s.at.depth, to_x, 1), of_x);
      EXPECT_EQ(step_of(s, linear::grad_x).order.k_parts, x_parts);
      EXPECT_EQ(to_x.k_step, 16384) << "words of two";
      EXPECT_EQ(to_w.k_step, engines::all_of_k);
      return true;
    });
  };
  // On 132 slots: 128 strips by 16 panels; 8 by 32 and by 4.
  expect_groups({.b = 4096, .h = 2048, .w_strides = {1, 2048}}, 16, 8, 1);
  expect_groups({.b = 512, .h = 2048, .w_strides = {1, 2048}}, 16, 8, 4);
}

TEST_F(WgmmaSchedule, ProgramsThatMultiplyArePatched) {
  for (const Pass pass : {Pass::backward, Pass::value_and_grad}) {
    const Question q{.pass = pass};
    with_schedule(q, [](const lce::Request& request, const schedule::Choice& choice) {
      const lce::Problem problem(request, choice.problem->shared_engine());
      const auto programs = linear::programs_of(problem, choice.schedule);
      for (const auto& [program, kernel] : linear::kernels_of(programs)) {
        const bool multiplies =
            kernel == "forward" || kernel == "gradient" || kernel == "grad_w" || kernel == "grad_x";
        EXPECT_EQ(program.patched_items, multiplies ? 384 : 0) << kernel;
        EXPECT_EQ(program.engine, "wgmma") << kernel;
        EXPECT_EQ(program.options.find("-DLANES=1 -DTILE_M=256 -DTILE_N=128 -DSTAGES=4 "), 0u)
            << kernel;
      }
      return true;
    });
  }
}

}  // namespace
}  // namespace tessera::test
