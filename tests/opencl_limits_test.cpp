// SPDX-License-Identifier: Apache-2.0
// Devices with other limits (tests/layer) against the oracle: memory that is not shared with the
// host, small allocations, the least local memory and the smallest work-groups that OpenCL allows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "host/dispatch/knobs.hpp"
#include "host/opencl/runtime.hpp"
#include "tests/layer/layer_fixture.hpp"
#include "tests/support/operator_calls.hpp"

namespace tessera::test {
namespace {

class LimitsTest : public LayerFixture<::testing::TestWithParam<std::string>> {
 protected:
  static Context context() {
    return Context({.warning_handler = [](const std::string&) {}});
  }

  /// Odd sizes, two blocks in each extent, every optional input and output.
  static Case linear(const std::string& name, WLayout layout, DType type = DType::f32) {
    Case c;
    c.name = "limits_" + name +
             (layout == WLayout::hv   ? "_hv_"
              : layout == WLayout::vh ? "_vh_"
                                      : "_strided_") +
             to_string(type);
    c.b = 37;
    c.h = 33;
    c.v = 301;
    c.x_type = c.w_type = type;
    c.w_layout = layout;
    c.labels = Labels::some_ignored;
    c.bias = true;
    c.dlse = Cotangent::given;
    c.options.logsumexp_weight = 1e-2f;
    return c;
  }

  static void run_all(Context& device, const Case& c) {
    for (const Pass pass :
         {Pass::forward, Pass::backward, Pass::value_and_grad, Pass::forward_partial}) {
      EXPECT_TRUE(run_case(device, GetParam(), pass, c)) << to_string(pass);
    }
  }

  /// The same problem on logits, which lie as x does.
  static Case softmax(Case c) {
    c.name = "softmax_" + c.name;
    c.op = &test_operator<softmax_cross_entropy::Operator>();
    return c;
  }

  /// The same problem with a teacher: its layer (a KL, jsd), or its logits (jsd).
  static void run_distilled(Context& device, Case c,
                            std::initializer_list<std::size_t> teachings = {0, 4, 2}) {
    const std::string name = c.name;
    c.op = &test_operator<linear_distillation::Operator>();
    for (const std::size_t teaching : teachings) {
      c.name = "distilled_" + std::to_string(teaching) + "_" + name;
      c.teaching = teaching;
      for (const Pass pass : {Pass::forward, Pass::backward, Pass::value_and_grad}) {
        EXPECT_TRUE(run_case(device, GetParam(), pass, c)) << to_string(pass);
      }
    }
  }

  static bool is_cpu_family() { return GetParam() == "opencl.cpu"; }

  /// How value_and_grad of the case would run.
  static Dispatch planned(Context& device, const Case& c) {
    const auto shape = [](DType type, const Dims& extents, const Dims& strides = {}) {
      return View::host(nullptr, type, extents, strides);
    };
    const Dims w_strides = c.w_layout == WLayout::vh ? Dims{1, c.h} : Dims{c.v, 1};
    const auto execution = execution_options<linear_cross_entropy::Operator>(GetParam(), c);
    linear_cross_entropy::Gradients gradients;
    set_accumulate(gradients.accumulate, c.accumulate);
    return linear_cross_entropy::plan(device, Pass::value_and_grad,
                                      {.x = shape(c.x_type, {c.b, c.h}),
                                       .labels = shape(DType::i32, {c.b}),
                                       .w = shape(c.w_type, {c.h, c.v}, w_strides),
                                       .bias = shape(DType::f32, {c.v})},
                                      {}, gradients, {}, execution)
        .dispatch;
  }
  static std::int64_t chunk_rows(const Dispatch& dispatch) {
    return dispatch::value_of(dispatch.knobs, "chunk_rows").value_or(0);
  }
};

/// On devices that work on host memory value_and_grad keeps logits where grad_w will be.
TEST_P(LimitsTest, LogitsWaitWhereGradWWillBe) {
  // Which schedules lie between two workspaces depends on the cores; with two of them, all of
  // these.
  layer_.limit("compute_units", 2);
  Context device = context();
  const auto plan_of = [&](const Case& c) { return planned(device, c); };
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const WLayout layout : {WLayout::vh, WLayout::hv}) {
      Case c = linear(layout == WLayout::vh ? "in_grad_w" : "in_grad_w_hv", layout, type);
      c.labels = Labels::uniform;  // as many rows count as the plan below expects
      c.b = 130;
      c.h = type == DType::f32 ? 400 : 800;
      c.v = layout == WLayout::vh ? 641 : 640;  // whole blocks of columns
      EXPECT_EQ(plan_of(c).schedule, "one_chunk_in_grad_w");
      run_case(device, GetParam(), Pass::value_and_grad, c);
      // Less and less: parts of H, then also chunks of rows in forward. Where logits lie in more
      // than half of H there are no parts, but chunks in ranges.
      c.workspace_bytes = std::size_t{4} << 20;
      const auto shrink_until = [&](const std::string& schedule, std::int64_t rows) {
        SCOPED_TRACE(schedule + ", " + to_string(type) + ", " + plan_of(c).schedule);
        while (plan_of(c).schedule != schedule || chunk_rows(plan_of(c)) > rows) {
          *c.workspace_bytes -= *c.workspace_bytes / 16;
        }
        run_case(device, GetParam(), Pass::value_and_grad, c);
      };
      shrink_until("h_outer_in_grad_w", c.b + 64);
      shrink_until("h_outer_in_grad_w", c.b - 1);
      c.h = type == DType::f32 ? 200 : 400;
      c.name += "_half";
      *c.workspace_bytes = std::size_t{4} << 20;
      shrink_until("v_outer_in_grad_w", c.b - 1);
      c.h /= 2;  // room for less than all tokens
      c.v *= 3;
      c.name += "_partly";
      *c.workspace_bytes = std::size_t{4} << 20;
      shrink_until("one_chunk_partly_in_grad_w", c.b + 64);
      c.h *= 2;
      c.v /= 3;
      // Only what grad_w holds keeps it from being used.
      c.workspace_bytes.reset();
      c.name += "_others_accumulated";
      c.accumulate = grad_x_bit | grad_bias_bit;
      EXPECT_TRUE(plan_of(c).schedule.ends_with("in_grad_w")) << plan_of(c).schedule;
      run_case(device, GetParam(), Pass::value_and_grad, c);
      c.accumulate = grad_w_bit;
      EXPECT_FALSE(plan_of(c).schedule.ends_with("in_grad_w")) << plan_of(c).schedule;
      run_case(device, GetParam(), Pass::value_and_grad, c);
      // What must be kept, or has no room, is not written over.
      c.workspace_bytes.reset();
      c.accumulate = true;
      c.name += "_accumulated";
      run_case(device, GetParam(), Pass::value_and_grad, c);
      c.accumulate = false;
      c.v = 641;
      c.h += 1;  // columns of 16 bits then begin where no f32 does
      c.name += "_odd";
      EXPECT_EQ(plan_of(c).schedule.ends_with("in_grad_w"), layout == WLayout::vh);
      run_case(device, GetParam(), Pass::value_and_grad, c);
    }
  }
}

TEST_P(LimitsTest, MemoryThatIsNotShared) {
  layer_.limit("host_unified", 0);
  Context device = context();
  for (const DType type : {DType::f32, DType::bf16}) {
    Case c = linear("staged", type == DType::f32 ? WLayout::vh : WLayout::hv, type);
    run_all(device, c);
    run_all(device, softmax(c));
    run_distilled(device, c);
    // Gaps around rows stay as they were; what is added to travels there and back.
    c.name += "_padded";
    c.x_layout = XLayout::padded;
    c.w_layout = c.w_layout == WLayout::vh ? WLayout::vh_padded : WLayout::hv_padded;
    c.strided_outputs = true;
    c.accumulate = true;
    run_all(device, c);
    run_all(device, softmax(c));
    c.name += "_in_place";
    c.accumulate = false;
    c.in_place = true;
    run_all(device, softmax(c));
    c = linear("strided", WLayout::strided, type);
    c.x_layout = XLayout::shifted;
    run_all(device, c);
  }
  EXPECT_GT(layer_.bytes("enqueue_write"), 0) << "nothing was copied to the device";
  EXPECT_GT(layer_.bytes("enqueue_read"), 0) << "nothing was copied from the device";
}

/// w and grad_w of 158 kB (f32) against allocations of 64 KiB, and a teacher's w of 183 kB. Scratch
/// is not split: small blocks keep it below.
TEST_P(LimitsTest, MatricesBeyondTheLargestAllocation) {
  for (const bool shared : {true, false}) {
    layer_.reset();
    layer_.limit("max_allocation", 64 * 1024);
    if (!shared) layer_.limit("host_unified", 0);
    Context device = context();
    for (const WLayout layout : {WLayout::vh, WLayout::hv, WLayout::strided}) {
      Case c = linear("split", layout);
      c.v = 1201;
      c.block_sizes = {64, 64, 64};
      run_all(device, c);
      if (layout == WLayout::vh) run_distilled(device, c, {0, 4});
      // Later chunks of rows add to what earlier ones left in the pieces of grad_w.
      c.name += "_chunks";
      c.b = 150;
      run_all(device, c);
      c.name += "_accumulate";
      c.accumulate = true;
      run_all(device, c);
    }
  }
}

/// x in two parts, the second of which begins within a word of two rows.
TEST_P(LimitsTest, PairsOfRowsInTwoAllocations) {
  if (!is_cpu_family()) GTEST_SKIP() << "multiplies no pairs";
  layer_.limit("max_allocation", 64 * 1024);
  Context device = context();
  opencl::runtime_of(device.state())->facts_for_test().bf16_products =
      opencl::Bf16Products::emulated;
  Case c = linear("pairs_of_rows", WLayout::vh, DType::bf16);
  c.b = 150;  // 75 and 75
  c.h = 219;
  c.gradients = grad_w_bit | grad_bias_bit;  // sums of grad_x alone would be larger than x
  c.block_sizes = {64, 64, 64};
  for (const Labels labels : {Labels::uniform, Labels::some_ignored}) {
    c.labels = labels;
    c.name += "_labels";
    run_all(device, c);
  }
}

/// Allocations too small for any schedule are an error that says so, not a demand for workspace;
/// what it says would do does.
TEST_P(LimitsTest, AllocationsTooSmallForScratch) {
  const Case c = linear("least_allocation", WLayout::hv);
  const std::vector<float> x(static_cast<std::size_t>(c.b * c.h));
  const std::vector<float> w(static_cast<std::size_t>(c.h * c.v));
  const std::vector<std::int32_t> labels(static_cast<std::size_t>(c.b));
  const auto refusal = [&](Pass pass) -> std::string {
    Context device = context();
    linear_cross_entropy::ExecutionOptions execution;
    execution.implementation = GetParam();
    try {
      linear_cross_entropy::plan(device, pass,
                                 {.x = View::host(x.data(), {c.b, c.h}),
                                  .labels = View(labels),
                                  .w = View::host(w.data(), {c.h, c.v}),
                                  .bias = View::host(w.data(), {c.v})},
                                 {}, {}, c.options, execution);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
      return error.what();
    }
    return {};
  };
  for (const Pass pass : {Pass::forward, Pass::value_and_grad}) {
    SCOPED_TRACE(to_string(pass));
    long long allocation = 1024;  // of 33 x 37 f32 that are packed in tiles of 16 tokens at least
    layer_.limit("max_allocation", allocation);
    const std::string first = refusal(pass);
    EXPECT_NE(first.find("maximum allocation of 1024"), std::string::npos) << first;
    const char* words = "the least that any needs is ";
    const auto at = first.find(words);
    ASSERT_NE(at, std::string::npos) << first;
    allocation = std::stoll(first.substr(at + std::string(words).size()));
    layer_.limit("max_allocation", allocation - 128);  // what the search leaves open
    EXPECT_NE(refusal(pass), "");
    layer_.limit("max_allocation", allocation);
    EXPECT_EQ(refusal(pass), "");
    EXPECT_LE(allocation, 64 * 1024);
    Context device = context();
    EXPECT_TRUE(run_case(device, GetParam(), pass, c));
  }
}

/// Logits of 44.5 kB are split by rows.
TEST_P(LimitsTest, LogitsBeyondTheLargestAllocation) {
  for (const bool shared : {true, false}) {
    layer_.reset();
    layer_.limit("max_allocation", 16 * 1024);
    if (!shared) layer_.limit("host_unified", 0);
    Context device = context();
    run_all(device, softmax(linear("rows", WLayout::vh)));
  }
}

/// What OpenCL 1.2's full profile promises, and the smallest work-group that simt takes.
TEST_P(LimitsTest, TheLeastLocalMemoryAndWorkGroup) {
  layer_.limit("local_memory", 32 * 1024);
  layer_.limit("max_work_group", 64);
  layer_.limit("compute_units", 1);
  Context device = context();
  run_all(device, linear("least", WLayout::vh));
  run_all(device, softmax(linear("least", WLayout::vh)));
  run_distilled(device, linear("least", WLayout::vh));
}

TEST_P(LimitsTest, ManyComputeUnits) {
  layer_.limit("compute_units", 512);
  Context device = context();
  run_all(device, linear("many_units", WLayout::hv));
  run_all(device, softmax(linear("many_units", WLayout::hv)));
  run_distilled(device, linear("many_units", WLayout::hv));
}

/// The layer refuses what CUDA does.
TEST_P(LimitsTest, MoreRowsThanASecondAxisTakes) {
  if (is_cpu_family()) GTEST_SKIP() << "the same kernels";
  Context device = context();
  Case c = linear("many_rows", WLayout::vh);
  c.b = 66000;
  c.h = 3;
  c.v = 5;
  EXPECT_TRUE(run_case(device, GetParam(), Pass::value_and_grad, c));
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::value_and_grad}) {
    EXPECT_TRUE(run_case(device, GetParam(), pass, softmax(c))) << to_string(pass);
  }
}
TEST_P(LimitsTest, MoreColumnsThanASecondAxisTakes) {
  if (is_cpu_family()) GTEST_SKIP() << "the same kernels";
  Context device = context();
  Case c = linear("many_columns", WLayout::vh, DType::bf16);
  c.b = 70;
  c.h = 3;
  c.v = 66000;
  c.knobs = {{"chunk_rows", 64}};
  // A device on which it would not be quicker to form the logits again.
  auto& facts = opencl::runtime_of(device.state())->facts_for_test();
  facts.unit_gflops = 1;
  facts.memory_gbs = 1000;
  EXPECT_EQ(planned(device, c).schedule, "chunked_f32_grad_w");
  EXPECT_TRUE(run_case(device, GetParam(), Pass::value_and_grad, c));
}

/// Panels of x by columns, of which a work-item takes 16, in more groups than a second axis has.
/// (Of random numbers sums as long have errors that hide everything.)
TEST_P(LimitsTest, AHiddenSizeOfMoreGroupsThanASecondAxisTakes) {
  if (!is_cpu_family()) GTEST_SKIP() << "the test above has its kernels";
  layer_.limit("native_float_vector", 4);
  Context device = context();
  constexpr std::int64_t h = 65535 * 16 * 4 + 5;
  const auto count = static_cast<std::size_t>(h);
  const std::vector<float> x(count, 1.0f), w(2 * count, 0.0f);
  const std::vector<std::int32_t> labels = {1};
  std::vector<float> grad_w(2 * count), loss(1);
  linear_cross_entropy::ExecutionOptions execution;
  execution.implementation = GetParam();
  execution.workspace_bytes = std::size_t{1} << 30;
  linear_cross_entropy::value_and_grad(
      device,
      {.x = View::host(x.data(), DType::f32, {1, h}),
       .labels = View(labels),
       .w = View::host(w.data(), DType::f32, {h, 2}, Dims{1, h})},
      {.loss = MutableView::host(loss.data(), DType::f32, {})},
      {.grad_w = MutableView::host(grad_w.data(), DType::f32, {h, 2}, Dims{1, h})}, {}, execution)
      .wait();
  const auto half = grad_w.begin() + h;
  EXPECT_EQ(std::count(grad_w.begin(), half, 0.5f), h);
  EXPECT_EQ(std::count(half, grad_w.end(), -0.5f), h);
}

/// Three blocks of rows and two of classes, which a group each counts and sums.
TEST_P(LimitsTest, RowsOfSeveralBlocks) {
  Context device = context();
  Case c = linear("blocks", WLayout::vh);
  c.b = 2500;
  c.h = 3;
  c.v = 1100;
  c.class_weight = true;
  c.weight = Weights::positive;
  // On one core a row's 1100 columns are summed one after the other, more than entropy allows for.
  c.outputs &= ~static_cast<unsigned>(entropy_bit);
  c.options.label_smoothing = 0.1f;
  for (const Reduction reduction : {Reduction::sum, Reduction::mean}) {
    c.options.reduction = reduction;
    c.name = fmt::format("limits_blocks_{}", static_cast<int>(reduction));
    EXPECT_TRUE(run_case(device, GetParam(), Pass::value_and_grad, c));
  }
}

TEST_P(LimitsTest, AGpu) {
  layer_.limit("device_type", CL_DEVICE_TYPE_GPU);
  Context device = context();
  const Case c = linear("gpu", WLayout::vh);
  const float number = 1.0f;
  const std::int32_t label = 0;
  const auto refusal = linear_cross_entropy::why_unsupported(device, GetParam(), Pass::forward,
                                                             {.x = View::host(&number, {1, 1}),
                                                              .labels = View::host(&label, {1}),
                                                              .w = View::host(&number, {1, 1})},
                                                             {}, {});
  if (is_cpu_family()) {
    ASSERT_TRUE(refusal.has_value());
    EXPECT_NE(refusal->find("not a CPU"), std::string::npos) << *refusal;
    return;
  }
  ASSERT_FALSE(refusal.has_value()) << *refusal;
  run_all(device, c);
  run_all(device, softmax(c));
  run_distilled(device, c);
}

/// Six tiles of grad_x on a thousand slots: its products are divided along the vocabulary too. The
/// last range has columns for the first part alone.
TEST_P(LimitsTest, AGpuWithMoreSlotsThanTiles) {
  if (is_cpu_family()) GTEST_SKIP() << "no GPU";
  layer_.limit("device_type", CL_DEVICE_TYPE_GPU);
  layer_.limit("compute_units", 132);
  Context device = context();
  Case c = linear("parts", WLayout::vh);
  c.v = 1100;
  c.knobs = {{"v_range", 1024}};
  for (const Pass pass : {Pass::backward, Pass::value_and_grad}) {
    EXPECT_TRUE(run_case(device, GetParam(), pass, c)) << to_string(pass);
  }
  Case whole = linear("parts", WLayout::hv, DType::bf16);
  whole.v = 1100;
  EXPECT_TRUE(run_case(device, GetParam(), Pass::value_and_grad, whole));
}

/// A teacher's logits are not read in parts.
TEST_P(LimitsTest, TeacherLogitsBeyondTheLargestAllocation) {
  layer_.limit("max_allocation", 64 * 1024);
  Context device = context();
  const std::vector<float> numbers(1 << 20);
  linear_distillation::Options options;
  options.alpha = 1.0f;
  const auto refusal = [&](std::int64_t rows) {
    return linear_distillation::why_unsupported(
        device, GetParam(), Pass::forward,
        {.x = View::host(numbers.data(), {rows, 2}),
         .w = View::host(numbers.data(), {2, 1024}),
         .teacher_logits = View::host(numbers.data(), {rows, 1024})},
        {}, {}, options);
  };
  EXPECT_EQ(refusal(16), std::nullopt);
  const auto reason = refusal(17);
  ASSERT_TRUE(reason.has_value());
  EXPECT_NE(reason->find("teacher_logits reaches over 69632 bytes"), std::string::npos) << *reason;
  EXPECT_NE(reason->find("fewer rows"), std::string::npos) << *reason;
}

/// A device below what simt needs: refused with the numbers, and nothing fails later.
TEST_P(LimitsTest, TooSmallForTheFamily) {
  layer_.limit("local_memory", 16 * 1024);
  Context device = context();
  const Case c = linear("too_small", WLayout::vh);
  if (GetParam() != "opencl.simt") {
    run_all(device, c);
    return;
  }
  const float number = 1.0f;
  const std::int32_t label = 0;
  const linear_cross_entropy::Inputs inputs{.x = View::host(&number, {1, 1}),
                                            .labels = View::host(&label, {1}),
                                            .w = View::host(&number, {1, 1})};
  try {
    linear_cross_entropy::forward(device, inputs, {}, {.implementation = GetParam()});
    ADD_FAILURE() << "it ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("16384"), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, LimitsTest,
    testing::ValuesIn(implementations_of<linear_cross_entropy::Operator>(is_on_opencl)),
    [](const auto& family) { return family.param.substr(7); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LimitsTest);

}  // namespace
}  // namespace tessera::test
