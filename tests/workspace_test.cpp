// SPDX-License-Identifier: Apache-2.0
// Bounded memory: from what a plan takes by default down to the least that it says is enough, every
// streaming implementation runs and agrees with the oracle, and below that it says so. All numbers
// are the plan's own: they differ with vector widths, cores and threads.
#include <gtest/gtest.h>

#include <algorithm>

#ifdef TESSERA_OPENCL
#include "host/dispatch/context_state.hpp"
#include "host/engines/engine.hpp"
#endif
#include "tests/support/expect_error.hpp"
#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

class Workspace : public ImplementationTest {
 protected:
  void SetUp() override {
    if (tiny()) GTEST_SKIP() << "compiles every shape of an engine";
    ImplementationTest::SetUp();
  }

  /// Of which a caller's blocks have whole numbers on this engine, in its narrowest shape; 0: any.
  static std::int64_t unit_of_tokens() {
#ifdef TESSERA_OPENCL
    const std::string family = "opencl.";
    if (!GetParam().starts_with(family)) return 0;
    std::vector<std::string> notes;
    const auto& facts = opencl::runtime_of(shared_context().state())->facts();
    const auto shapes = engines::engine_entry(GetParam().substr(family.size()))
                            .shapes(facts, {.n = 64}, nullptr, notes);
    return shapes.back()->rule().n_multiple;
#else
    return 0;
#endif
  }

  static Plan plan_of(Context& context, Pass pass, const Case& c) {
    return plan_case(context, GetParam(), pass, c);
  }

  /// Runs the case with less and less memory; the least.
  static std::int64_t shrink(Context& context, Pass pass, Case c) {
    SCOPED_TRACE(c.name + ", " + to_string(pass));
    c.workspace_bytes.reset();
    const Plan plan = plan_of(context, pass, c);
    const std::int64_t least = plan.minimum_workspace_bytes;
    EXPECT_LE(least, plan.workspace_bytes);
    for (std::int64_t bytes = plan.workspace_bytes;; bytes = std::max(bytes / 3, least)) {
      c.workspace_bytes = static_cast<std::size_t>(bytes);
      const Plan bounded = plan_of(context, pass, c);
      EXPECT_LE(bounded.workspace_bytes, bytes) << bounded.dispatch.schedule;
      run_case(context, GetParam(), pass, c);
      if (bytes == least) break;
    }
    // On eigen to the byte; else the least is found by halving, to some lines of a cache.
    c.workspace_bytes = static_cast<std::size_t>(least - (GetParam() == "eigen" ? 1 : 512));
    expect_error(ErrorCode::workspace_too_small, {std::to_string(least)},
                 [&] { plan_of(context, pass, c); });
    return least;
  }

  /// 64 tokens, 40 elements, 1000 words: logits of 256,000 bytes.
  static Case small(const std::string& name, WLayout layout, DType type) {
    Case c;
    c.name = "workspace_" + name;
    c.b = 64;
    c.h = 40;
    c.v = 1000;
    c.x_type = c.w_type = type;
    c.w_layout = layout;
    c.bias = true;
    return c;
  }
};

TEST_P(Workspace, FromTheDefaultDownToTheLeast) {
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::value_and_grad}) {
    for (const Case& c :
         {small("vh", WLayout::vh, DType::f32), small("hv", WLayout::hv, DType::f32),
          small("vh_bf16", WLayout::vh, DType::bf16), small("hv_bf16", WLayout::hv, DType::bf16)}) {
      // A quarter of the logits, on every device.
      EXPECT_LE(shrink(shared_context(), pass, c), 65536) << c.name;
    }
  }
}

TEST_P(Workspace, FromTheDefaultDownToTheLeastOfSoftmax) {
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::value_and_grad}) {
    Case c = small("softmax", WLayout::vh, DType::f32);
    c.op = &test_operator<softmax_cross_entropy::Operator>();
    EXPECT_LE(shrink(shared_context(), pass, c), 16384);
    // Few rows of many words are cut into slices.
    c.name += "_long";
    c.b = 3;
    c.v = 70'001;
    EXPECT_LE(shrink(shared_context(), pass, c), 16384);
  }
}

/// Without workspace_bytes: the block says how much there is.
TEST_P(Workspace, ALentBlockOfTheLeastIsEnough) {
  for (const Pass pass : {Pass::forward, Pass::value_and_grad}) {
    const Case c = small("lent", WLayout::vh, DType::f32);
    Context& context = shared_context();
    const std::int64_t least = plan_of(context, pass, c).minimum_workspace_bytes;
    const Expected& e = expected_of(c);
    Arguments arguments(context, c, e.problem);
    Results results(context, c, e, pass, GetParam());
    // Whole elements of two bytes. There are canaries behind it.
    Argument block = make_argument(context, Place::host, DType::bf16, {(least + 1) / 2});
    block.storage->upload();
    lce::ExecutionOptions execution;
    execution.implementation = GetParam();
    execution.workspace = block.mutable_view();
    run_views<lce::Operator>(context, pass, arguments.inputs<lce::Operator>(pass),
                             results.outputs(), results.gradients<lce::Operator>(arguments),
                             c.options, execution)
        .wait();
    EXPECT_EQ(block.storage->download(), "") << "beside the lent block";
    results.check(arguments);
  }
}

/// Scratch of its own for each of many threads is no reason to refuse.
TEST_P(Workspace, ManyThreadsShareWhatThereIs) {
  Context many({.threads = 48, .warning_handler = [](const std::string&) {}});
  const Case c = small("threads", WLayout::vh, DType::f32);
  EXPECT_LE(shrink(many, Pass::value_and_grad, c), 65536);
  Case logits = c;
  logits.name += "_softmax";
  logits.op = &test_operator<softmax_cross_entropy::Operator>();
  EXPECT_LE(shrink(many, Pass::value_and_grad, logits), 16384);
}

/// Blocks that the caller gives are kept; what is left shrinks around them.
TEST_P(Workspace, AroundTheCallersBlocks) {
  // 48 tokens are three tiles of the narrowest shape, and none of a wider one.
  for (const std::int64_t b : {64, 48}) {
    Case c = small("blocks_" + std::to_string(b), WLayout::vh, DType::f32);
    c.block_sizes = lce::BlockSizes{b, 16, 64};
    if (unit_of_tokens() > 0 && b % unit_of_tokens() != 0) continue;
    const std::int64_t least = shrink(shared_context(), Pass::value_and_grad, c);
    c.workspace_bytes = static_cast<std::size_t>(least);
    const Dispatch dispatch = plan_of(shared_context(), Pass::value_and_grad, c).dispatch;
    EXPECT_EQ(dispatch.block_source, BlockSource::caller);
    ASSERT_EQ(dispatch.block_sizes.size(), 3u);
    EXPECT_EQ(dispatch.block_sizes[0].value, b);
    // An engine whose steps are all of H says so.
    const bool takes_all = GetParam() == "opencl.simt" || GetParam() == "opencl.plain";
    EXPECT_GE(dispatch.block_sizes[1].value, takes_all ? c.h : 16);
    EXPECT_EQ(dispatch.block_sizes[2].value, 64);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Workspace,
                         testing::ValuesIn(implementations_of<lce::Operator>(streams)),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Workspace);

}  // namespace
}  // namespace tessera::test
