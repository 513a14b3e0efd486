// SPDX-License-Identifier: Apache-2.0
// What opencl.cpu plans for devices of other vector widths and core counts, without running
// anything.
#include <gtest/gtest.h>

#include "host/engines/cpu.hpp"
#include "host/engines/shares.hpp"
#include "host/linear_cross_entropy/opencl/run.hpp"
#include "host/linear_cross_entropy/request.hpp"
#include "host/opencl/machines.hpp"
#include "host/opencl/runtime.hpp"
#include "tests/support/runner.hpp"
#include "tests/support/schedules.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

struct Question {
  Pass pass = Pass::value_and_grad;
  DType type = DType::f32;
  std::int64_t b = 64, h = 40, v = 1000;
  WLayout layout = WLayout::vh;
  std::optional<std::int64_t> b_block{};
  std::int64_t v_range = 0;  ///< 0: not given
};

/// A CPU with `lanes` and `units`, 64 MiB of cache and room for everything.
opencl::DeviceFacts cpu(std::int64_t lanes, std::int64_t units = 2) {
  opencl::DeviceFacts facts;
  facts.is_cpu = facts.zero_copy = true;
  facts.native_float_vector = lanes;
  facts.compute_units = units;
  facts.cache_bytes = std::int64_t{64} << 20;
  facts.global_memory_bytes = std::int64_t{8} << 30;
  facts.max_allocation_bytes = std::int64_t{2} << 30;
  return facts;
}

class OpenclPlan : public ::testing::Test {
 protected:
  /// What `use` returns of the question, as a validated call.
  template <class Use>
  auto with_request(const Question& q, const Use& use) {
    const auto shape = [](DType type, const Dims& extents, const Dims& strides = {}) {
      return View::host(nullptr, type, extents, strides);
    };
    LossOptions options;
    options.wants.grad_x = options.wants.grad_w = true;
    lce::ExecutionOptions execution;
    if (q.b_block) execution.block_sizes = lce::BlockSizes{*q.b_block, 64, 64};
    if (q.v_range > 0) execution.knobs = {{"v_range", q.v_range}};
    const Dims w_strides = q.layout == WLayout::vh ? Dims{1, q.h} : Dims{q.v, 1};
    const auto call = operators::bind<lce::Operator>(
        q.pass,
        {.x = shape(q.type, {q.b, q.h}),
         .labels = shape(DType::i32, {q.b}),
         .w = shape(q.type, {q.h, q.v}, w_strides),
         .statistics = q.pass == Pass::backward ? shape(DType::f32, {q.b, 2}) : View()},
        {}, {}, options, execution);
    return operators::with_checked(
        context_, call, operators::Form::question,
        [&](const auto& checked) { return use(lce::request_of(checked)); });
  }
  std::int64_t least(const Question& q, const opencl::DeviceFacts& facts) {
    const auto shapes = engines::make_cpu_shapes(facts, q.b, engines::DotBf16::none);
    return with_request(q, [&](const lce::Request& request) {
      return schedule::minimum_workspace_bytes(problems_of<lce::Problem>(request, shapes), facts);
    });
  }
  static schedule::Choice schedule_of(const lce::Request& request,
                                      const engines::EngineShapes& shapes,
                                      const opencl::DeviceFacts& facts) {
    return test::schedule_of<lce::Problem>(request, shapes, facts);
  }

  Context context_{{.host_only = true, .warning_handler = [](const std::string&) {}}};
};

/// Wherever there is a schedule with vectors of 8 there is one with vectors of 16.
TEST_F(OpenclPlan, LongerVectorsNeedNoMoreMemory) {
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::value_and_grad}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const WLayout layout : {WLayout::vh, WLayout::hv}) {
        for (const std::int64_t b : {1, 3, 8, 9, 16, 17, 64, 130}) {
          for (const std::int64_t h : {7, 40, 333}) {
            for (const std::int64_t v : {50, 1000, 5001}) {
              const Question q{pass, type, b, h, v, layout, {}};
              EXPECT_LE(least(q, cpu(16)), least(q, cpu(8)))
                  << to_string(pass) << ", " << to_string(type) << ", B " << b << ", H " << h
                  << ", V " << v;
            }
          }
        }
      }
    }
  }
}

/// With vectors of 16 a tile has 64 tokens, and fewer where that leaves enough less to multiply.
/// One vector of pairs of bf16 is too slow for that.
TEST_F(OpenclPlan, TilesFitTheTokens) {
  const auto tile_of = [](std::int64_t lanes, std::int64_t tokens,
                          engines::DotBf16 dot = engines::DotBf16::none) {
    return engines::make_cpu_shapes(cpu(lanes), tokens, dot).front()->tile_n();
  };
  struct Row {
    std::int64_t tokens, tile, of_pairs;
  };
  const Row of_16[] = {
      {1, 16, 16},   {16, 16, 16},  {17, 32, 32},  {32, 32, 32},  {33, 16, 64},
      {48, 16, 64},  {49, 64, 64},  {64, 64, 64},  {65, 16, 32},  {81, 32, 32},
      {96, 32, 32},  {104, 16, 64}, {113, 64, 64}, {160, 32, 32}, {265, 16, 32},
      {288, 32, 32}, {352, 64, 64}, {544, 64, 64}, {847, 64, 64}, {std::int64_t{1} << 31, 64, 64}};
  for (const auto& row : of_16) {
    EXPECT_EQ(tile_of(16, row.tokens), row.tile) << row.tokens;
    EXPECT_EQ(tile_of(16, row.tokens, engines::DotBf16::instruction), row.of_pairs) << row.tokens;
  }
  for (const std::int64_t tokens : {17, 20, 24, 96}) EXPECT_EQ(tile_of(8, tokens), 16) << tokens;
}

TEST_F(OpenclPlan, FewTokensMeetWAlongH) {
  const auto columns = [](std::int64_t lanes, std::int64_t tokens, DType type,
                          engines::Layout layout = engines::Layout::along_second) {
    const auto engine = engines::make_cpu_shapes(cpu(lanes), tokens, engines::DotBf16::none)[0];
    const auto options = engine->product_options(
        {.m = 1000, .n = tokens, .k = 40, .a = {type, layout}, .b = {type}});
    return dispatch::value_of(options, "ALONG_K").value_or(0);
  };
  const std::tuple<std::int64_t, std::int64_t, DType, int> asked[] = {
      {16, 1, DType::f32, 4},  {16, 5, DType::f32, 8},    {16, 9, DType::f32, 0},
      {8, 3, DType::f32, 4},   {8, 5, DType::f32, 0},     {4, 1, DType::f32, 0},
      {16, 1, DType::bf16, 1}, {16, 16, DType::bf16, 16}, {8, 9, DType::bf16, 0}};
  for (const auto& [lanes, tokens, type, expected] : asked) {
    EXPECT_EQ(columns(lanes, tokens, type), expected)
        << lanes << " lanes, " << tokens << " tokens, " << to_string(type);
  }
  EXPECT_EQ(columns(16, 4, DType::f32, engines::Layout::along_first), 0);
}

/// A w that is read where it lies needs tiles of logits as high as one that is packed does, and no
/// more: in each shape by itself.
TEST_F(OpenclPlan, OperandsReadInPlaceShrinkToo) {
  for (const std::int64_t lanes : {4, 8, 16}) {
    const auto facts = cpu(lanes);
    for (const auto& shape : engines::make_cpu_shapes(facts, 64, engines::DotBf16::none)) {
      const auto least = [&](WLayout layout) {
        return with_request({.layout = layout}, [&](const lce::Request& request) {
          return schedule::minimum_workspace_bytes(problems_of<lce::Problem>(request, {shape}),
                                                   facts);
        });
      };
      EXPECT_LE(least(WLayout::vh), least(WLayout::hv) * 5 / 4) << shape->tile_n() << " tokens";
    }
  }
}

/// Scratch is per work-group, and there are two for each core: where that is too much, fewer.
TEST_F(OpenclPlan, ManyCoresNeedLittleMoreMemory) {
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::value_and_grad}) {
    const std::int64_t few = least({.pass = pass}, cpu(16, 2));
    EXPECT_LE(least({.pass = pass}, cpu(16, 512)), few + few / 4) << to_string(pass);
  }
}

/// Cores that have no part of the rows divide the columns, in pieces that are worth packing rows
/// for.
TEST_F(OpenclPlan, ColumnsAreDividedWherePartsAreFew) {
  const auto engine = [](std::int64_t units) { return engines::make_cpu_engine(cpu(16, units)); };
  EXPECT_EQ(engine(2)->panels_per_group(4, 64), 64);
  EXPECT_EQ(engine(64)->panels_per_group(128, 64), 64);
  EXPECT_LE(engine(64)->panels_per_group(22, 64), 13);
  EXPECT_EQ(engine(64)->panels_per_group(22, 3), 3);
}

/// tests/machine_shares has the table of such plans.
TEST_F(OpenclPlan, ManyCoresHaveWork) {
  const auto facts = cpu(16, 64);
  const auto shapes = engines::make_cpu_shapes(facts, 4096, engines::DotBf16::none);
  for (const Pass pass : {Pass::backward, Pass::value_and_grad}) {
    const Question q{pass, DType::f32, 4096, 4096, 128256, WLayout::vh, {}};
    const auto launches = with_request(q, [&](const lce::Request& request) {
      return cost_of(schedule_of(request, shapes, facts)).products;
    });
    EXPECT_GT(engines::machine_share(launches), 0.95) << to_string(pass);
    // Each ends with cores that wait, which the share does not count.
    for (const auto& launch : launches) EXPECT_LE(launch.times, 100) << launch.kernel;
  }
}

/// The parts of a prediction, counted by hand. The cache has what two launches share.
TEST_F(OpenclPlan, CostCountsProductsBytesAndLaunches) {
  const auto facts = cpu(16, 2);
  const double b = 512, h = 2048, v = 32768, w = 4 * h * v;
  const auto ask = [&](Pass pass, std::int64_t v_range, const opencl::DeviceFacts& of) {
    const auto shapes = engines::make_cpu_shapes(of, 512, engines::DotBf16::none);
    return with_request(
        {pass, DType::f32, 512, 2048, 32768, WLayout::vh, {}, v_range},
        [&](const lce::Request& request) { return cost_of(schedule_of(request, shapes, of)); });
  };
  const auto rates = engines::make_cpu_engine(facts)->rates({});
  const auto forward = ask(Pass::forward, 0, facts);
  ASSERT_EQ(forward.products.size(), 1u);
  EXPECT_EQ(forward.products[0].bytes, w) << "one pass over w";
  EXPECT_EQ(forward.products[0].flops, 2 * b * h * v);
  EXPECT_DOUBLE_EQ(forward.multiply, 2 * b * h * v / (rates.flops * forward.products[0].share));
  EXPECT_GE(forward.bytes, w + 8 * b * h) << "x is read and packed";
  EXPECT_LE(forward.bytes, w + 9 * b * h) << "and slices have statistics";
  EXPECT_DOUBLE_EQ(forward.memory, forward.bytes / rates.bytes);
  EXPECT_DOUBLE_EQ(forward.launches, 4 * rates.launch) << "pack, multiply, merge twice";

  const auto both = ask(Pass::value_and_grad, 1024, facts);
  ASSERT_EQ(both.products.size(), 3u);
  EXPECT_EQ(both.products[0].bytes, w + 4 * b * v) << "logits wait in memory";
  EXPECT_EQ(both.products[1].bytes, w) << "grad_w is written";
  EXPECT_EQ(both.products[2].bytes, w) << "w is read again; sums of grad_x stay in the cache";
  // Half as wide: a launch of dz, of grad_w and of grad_x more for each range.
  const auto narrow = ask(Pass::value_and_grad, 512, facts);
  EXPECT_NEAR(narrow.launches - both.launches, 3 * 32 * rates.launch, 1e-9);
  // Sums of grad_x that the cache does not hold are read and written by each range.
  auto small = facts;
  small.cache_bytes = 4 << 20;
  const double sums = 4 * b * (h + 6);  // a tile may write a strip more
  EXPECT_NEAR(ask(Pass::value_and_grad, 1024, small).products[2].bytes, w + 63 * sums, 1.0);
  EXPECT_NEAR(ask(Pass::value_and_grad, 512, small).products[2].bytes, w + 127 * sums, 1.0);
  // What is left of V beside whole ranges is no whole one.
  EXPECT_EQ(ask(Pass::value_and_grad, 1000, facts).products[1].flops, 2 * b * h * v);
  // So is dz of more columns than the next launch finds in the cache.
  EXPECT_EQ(ask(Pass::value_and_grad, 2048, facts).products[1].bytes, w + 4 * b * v);
}

/// A GPU waits for launches, and its memory takes dz faster than its products make it.
TEST_F(OpenclPlan, GpusHaveFewLaunches) {
  for (const char* name : {"h100", "mi300x"}) {
    const auto& facts = opencl::machine_of(name).facts;
    std::vector<std::string> notes;
    for (const std::int64_t b : {512, 16384}) {
      const auto shapes = engines::engine_entry("simt").shapes(facts, {.n = b}, nullptr, notes);
      const Question q{Pass::backward, DType::f32, b, 2304, 256000, WLayout::vh, {}};
      std::int64_t launches = 0;
      for (const auto& one : with_request(q, [&](const lce::Request& request) {
             return cost_of(schedule_of(request, shapes, facts)).products;
           })) {
        launches += one.times;
      }
      EXPECT_LE(launches, 150) << name << " B " << b;
    }
  }
}

/// The device's cache has 64 MiB.
TEST_F(OpenclPlan, AGradWThatTheCacheHoldsIsNotStreamed) {
  const auto facts = cpu(16);
  const auto shapes = engines::make_cpu_shapes(facts, 64, engines::DotBf16::none);
  const auto streams = [&](DType type, std::int64_t v) {
    const Question q{Pass::value_and_grad, type, 64, 2048, v, WLayout::vh, {}};
    return with_request(q, [&](const lce::Request& request) {
      const lce::Problem problem(request, shapes.front());
      return problem.streams_grad_w(schedule_of(request, shapes, facts).schedule);
    });
  };
  EXPECT_TRUE(streams(DType::f32, 16384));
  EXPECT_FALSE(streams(DType::bf16, 16384));
  EXPECT_TRUE(streams(DType::bf16, 16385));
  EXPECT_FALSE(streams(DType::f32, 8192));
}

/// Of grad_w as [H, V], which parts of a range divide along its lines.
TEST_F(OpenclPlan, PartsOfARangeAreOfWholeLines) {
  const auto facts = cpu(16);
  for (const DType type : {DType::f32, DType::bf16}) {
    const Question q{Pass::value_and_grad, type, 512, 2048, 32768, WLayout::hv, {}};
    const auto shapes = engines::make_cpu_shapes(facts, q.b, engines::DotBf16::none);
    const auto choice = with_request(
        q, [&](const lce::Request& asked) { return schedule_of(asked, shapes, facts); });
    const auto& s = choice.schedule;
    const auto& engine = choice.problem->engine();
    const std::int64_t strips = engines::ceil_div(s.at.columns, engine.strip());
    const auto& cut = s.steps.products[linear::of_grad_w].cut;
    const std::int64_t parts = engine.parts(s.at.columns, cut, s.shrink);
    EXPECT_EQ(strips % parts, 0) << to_string(type) << ", " << s.at.columns << " columns";
    const std::int64_t columns = strips / parts * engine.strip();
    EXPECT_EQ(columns * static_cast<std::int64_t>(size_of(type)) % 64, 0)
        << to_string(type) << ", " << s.at.columns << " columns";
  }
}

/// Where the default workspace is too small for the sums of grad_x, the call gets what its fastest
/// shape needs, not the least that any could run with.
TEST_F(OpenclPlan, TheDefaultWorkspaceIsAWish) {
  const Question q{Pass::backward, DType::bf16, 8192, 4096, 128256, WLayout::vh, {}};
  const auto facts = cpu(16);
  const auto shapes = engines::make_cpu_shapes(facts, q.b, engines::DotBf16::none);
  const auto choice = with_request(q, [&](lce::Request asked) {
    asked.gradients.accumulate = true;  // so that the memory of grad_w cannot serve
    return schedule_of(asked, shapes, facts);
  });
  EXPECT_EQ(choice.problem->engine().tile_n(), shapes.front()->tile_n());
  EXPECT_GT(choice.schedule.scratch_words * 4, std::int64_t{64} << 20);
  EXPECT_LT(choice.schedule.scratch_words * 4, std::int64_t{1} << 30) << "a quarter of the logits";
}

/// The rule for a caller's blocks is the same whatever the width, and so is what takes them.
TEST_F(OpenclPlan, BlocksAreLegalAtEveryWidth) {
  for (const std::int64_t lanes : {4, 8, 16}) {
    const auto facts = cpu(lanes);
    const auto shapes = engines::make_cpu_shapes(facts, 64, engines::DotBf16::none);
    const auto schedule_with = [&](std::int64_t block) {
      return with_request({.b_block = block}, [&](const lce::Request& request) {
        return schedule_of(request, shapes, facts);
      });
    };
    for (const std::int64_t block : {8, 16, 24, 32, 48, 64}) {
      const auto choice = schedule_with(block);
      EXPECT_EQ(choice.schedule.blocks.n, block) << lanes << " lanes";
      EXPECT_EQ(block % choice.problem->engine().tile_n(), 0) << lanes << " lanes, " << block;
    }
    for (const std::int64_t block : {1, 4, 12, 63}) {
      try {
        schedule_with(block);
        ADD_FAILURE() << block << " was taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_NE(std::string(error.what()).find("multiple of 8"), std::string::npos)
            << error.what();
      }
    }
  }
}

/// The softmax operator's too.
TEST_F(OpenclPlan, SlicesOfSoftmaxAreLegalAtEveryWidth) {
  Context context({.warning_handler = [](const std::string&) {}});
  auto* runtime = opencl::runtime_of(context.state());
  if (runtime == nullptr || !runtime->facts().is_cpu) GTEST_SKIP() << "no OpenCL CPU";
  Case c;
  c.name = "softmax_slices";
  c.op = &test_operator<softmax_cross_entropy::Operator>();
  c.b = 5;
  c.v = 101;
  for (const std::int64_t lanes : {4, 8, 16}) {
    runtime->facts_for_test().native_float_vector = lanes;
    for (const std::int64_t block : {8, 24, 32, 104}) {
      c.block_sizes = lce::BlockSizes{64, 64, block};
      EXPECT_TRUE(run_case(context, "opencl.cpu", Pass::value_and_grad, c)) << lanes << " lanes";
    }
    softmax_cross_entropy::ExecutionOptions execution;
    execution.implementation = "opencl.cpu";
    execution.block_sizes = softmax_cross_entropy::BlockSizes{64, 12};
    try {
      softmax_cross_entropy::plan(context, Pass::forward,
                                  {.logits = View::host(nullptr, DType::f32, {5, 101}),
                                   .labels = View::host(nullptr, DType::i32, {5})},
                                  {}, {}, {}, execution);
      ADD_FAILURE() << "12 columns were taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("multiple of 8"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace tessera::test
