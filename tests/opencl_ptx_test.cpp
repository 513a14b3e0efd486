// SPDX-License-Identifier: Apache-2.0
// The library on a device of NVIDIA's whose kernels run in an interpreter (tests/ptx): the real
// instructions of opencl.mma, the patched build, and the gates before Hopper's matrix unit.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/support/ptx_fixture.hpp"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;

/// bf16, with as much at once as opencl.mma serves.
Case rich(const char* name, WLayout layout, std::int64_t b, std::int64_t h, std::int64_t v) {
  Case c;
  c.name = std::string("ptx_") + name;
  c.b = b;
  c.h = h;
  c.v = v;
  c.x_type = c.w_type = DType::bf16;
  c.w_layout = layout;
  c.bias = true;
  c.gradients = grad_x_bit | grad_w_bit;
  c.labels = Labels::some_ignored;
  c.dlse = Cotangent::given;
  return c;
}

std::vector<Case> rich_cases() {
  std::vector<Case> cases{rich("capped", WLayout::vh, 37, 70, 301),
                          rich("smoothed", WLayout::hv, 141, 131, 265)};
  cases[0].options.logit_soft_cap = 3.0f;
  cases[0].options.logit_scale = 1.5f;
  cases[0].weight = Weights::signed_and_zero;
  cases[0].accumulate = true;
  cases[1].options.label_smoothing = 0.2f;
  cases[1].class_weight = true;
  cases[1].options.reduction = Reduction::none;
  cases[1].dloss = Cotangent::given;
  return cases;
}

/// Tiles of grad_w that are whole, which mma stores by 16 bytes where those begin right, and tiles
/// that are not.
std::vector<Case> whole_tiles() {
  std::vector<Case> cases{rich("added", WLayout::vh, 5, 128, 136),
                          rich("along_v", WLayout::hv, 5, 128, 136),
                          rich("odd", WLayout::hv, 5, 128, 131)};
  cases[0].accumulate = true;
  for (auto& c : cases) c.gradients = grad_w_bit;
  return cases;
}

TEST_F(PtxTest, MmaAgreesWithTheOracleInAnyOrder) {
  Context context(quiet());
  for (const auto& c : rich_cases()) {
    for (const unsigned long long seed : {1, 2, 3}) {
      SCOPED_TRACE(c.name + ", seed " + std::to_string(seed));
      driver_.seed(seed);
      ASSERT_TRUE(run_case(context, "opencl.mma", Pass::value_and_grad, c));
    }
  }
}

/// The case in f16, with rows that differ in their labels alone, so that it has gradients.
Case in_f16(Case c) {
  c.name += "_f16";
  c.x_type = c.w_type = DType::f16;
  c.weight = Weights::none;
  c.class_weight = false;
  c.dlse = Cotangent::none;
  c.options.reduction = Reduction::mean;
  return c;
}

TEST_F(PtxTest, MmaMultipliesF16) {
  Context context(quiet());
  for (const auto& c : rich_cases()) {
    SCOPED_TRACE(c.name);
    ASSERT_TRUE(run_case(context, "opencl.mma", Pass::value_and_grad, in_f16(c)));
  }
}

TEST_F(PtxTest, MmaStoresWholeTiles) {
  Context context(quiet());
  for (const auto& c : whole_tiles()) {
    SCOPED_TRACE(c.name);
    ASSERT_TRUE(run_case(context, "opencl.mma", Pass::backward, c));
    ASSERT_TRUE(run_case(context, "opencl.mma", Pass::backward, in_f16(c)));
  }
}

/// A group forms the tiles of a slice, of which it keeps the logits alone.
TEST_F(PtxTest, MmaFormsOneTileAfterTheOther) {
  Context context(quiet());
  Case c = rich("distilled", WLayout::vh, 5, 40, 301);
  c.op = &test_operator<linear_distillation::Operator>();
  c.side_type = DType::bf16;
  c.block_sizes = {128, 128, 384};
  for (const unsigned long long seed : {1, 2, 3}) {
    driver_.seed(seed);
    ASSERT_TRUE(run_case(context, "opencl.mma", Pass::forward, c)) << seed;
  }
}

/// The implementation that serves a caller who names nothing; its results are right.
Dispatch serving_by_default(Context& context) {
  Case c = rich("served", WLayout::vh, 37, 72, 301);  // whose lines opencl.wgmma takes
  c.options.logit_soft_cap = 3.0f;
  const Expected& e = expected_of(c);
  Arguments arguments(context, c, e.problem);
  Results results(context, c, e, Pass::value_and_grad, "opencl.mma");
  const std::string named = default_order;
  const auto dispatch = c.op->run({context, named, Pass::value_and_grad, c, arguments, results});
  results.check(arguments);
  return dispatch;
}

// ---- Hopper's matrix unit ----

TEST_F(PtxTest, HoppersUnitIsOpenInAnyOrder) {
  for (const unsigned long long seed : {1, 2, 3, 4, 5, 6}) {
    driver_.seed(seed);
    const auto found = verdict();
    EXPECT_EQ(found.reason, "");
    EXPECT_FALSE(found.stride_in_16_bytes) << "as the assembler of CUDA 13.0, which is interpreted";
  }
  EXPECT_EQ(driver_.builds(), 12) << "each context compiles two programs, whose PTX it patches";
}

TEST_F(PtxTest, WhatIsWrongWithADriverClosesIt) {
  struct Wrong {
    const char* play;
    const char* reason;
  };
  for (const auto& [play, reason] : {Wrong{"no text", "the driver gives no binary"},
                                     {"cubin", "it is no text"},
                                     {"cut off", "it is cut off"},
                                     {"no target", "it has no .target"},
                                     {"two targets", "a second .target"},
                                     {"other target", "its .target is sm_80; expected is sm_90"},
                                     {"old version", "need 8.3 or later"},
                                     {"drops comments", "no line has the mark"},
                                     {"refuses loading", "CL_INVALID_BINARY"},
                                     {"refuses binaries", "told to refuse binaries"},
                                     {"empty log", "the compiler left no log"}}) {
    SCOPED_TRACE(play);
    driver_.play(play);
    const auto closed = verdict().reason;
    EXPECT_TRUE(closed.starts_with("the driver does not take it: ")) << closed;
    EXPECT_NE(closed.find(reason), std::string::npos) << closed;
  }
  Context context(quiet());
  const Dispatch served = serving_by_default(context);
  EXPECT_EQ(served.implementation, "opencl.mma") << "which needs no patch";
  const auto refused = std::ranges::find(served.refused, "opencl.wgmma", &Refusal::implementation);
  ASSERT_NE(refused, served.refused.end());
  EXPECT_TRUE(refused->reason.starts_with("wgmma is not to be used: the driver does not take it: "))
      << refused->reason;
}

TEST_F(PtxTest, SoDoFactsThatItCannotHave) {
  driver_.fact("local_memory", 16 << 10);
  EXPECT_EQ(verdict().reason, "it needs 49152 bytes of local memory, the device reports 16384");
  {
    Context context(quiet());
    EXPECT_EQ(serving_by_default(context).implementation, "eigen") << "no engine's tiles fit";
  }
  driver_.fact("local_memory", -1);
  driver_.fact("capability_minor", 3);
  EXPECT_NE(verdict().reason.find("its architecture is sm_93"), std::string::npos);
  // The table of architectures knows what a driver does not say.
  driver_.fact("capability_minor", -1);
  driver_.fact("warp_size", 0);
  EXPECT_EQ(verdict().reason, "");
}

TEST_F(PtxTest, AKeptProgramIsThePatchedOne) {
  const fs::path folder = new_folder();
  auto options = quiet();
  options.cache_folder = folder.string();
  EXPECT_EQ(verdict(options).reason, "");
  EXPECT_EQ(driver_.builds(), 2);
  EXPECT_EQ(verdict(options).reason, "");
  EXPECT_EQ(driver_.builds(), 2) << "the second context compiles nothing";
  fs::remove_all(folder);
}

TEST_F(PtxTest, ADumpHasThePatchedText) {
  const fs::path folder = new_folder();
  auto options = quiet();
  options.dump_folder = folder.string();
  EXPECT_EQ(verdict(options).reason, "");
  int texts = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().filename() != "program.ptx") continue;
    std::ifstream stream(entry.path());
    const std::string text(std::istreambuf_iterator<char>(stream), {});
    EXPECT_NE(text.find(".target sm_90a"), std::string::npos);
    EXPECT_EQ(text.find("//@"), std::string::npos);
    ++texts;
  }
  EXPECT_EQ(texts, 2);
  fs::remove_all(folder);
}

TEST_F(PtxTest, PlantedErrorsCloseIt) {
  struct Planted {
    const char *from, *to, *rule;  ///< of the interpreter; empty: a tile is wrong
  };
  for (const auto& [from, to, rule] :
       {Planted{"tensormap.replace.tile.swizzle_mode.", "tensormap.replace.tile.fill_mode.",
                "the swizzle of 128 bytes"},
        {"//@ wgmma.fence.sync.aligned;", "", "no wgmma.fence"},
        {"//@ wgmma.wait_group.sync.aligned 0; }", "//@ }", "not been waited for"},
        {"//@ setmaxnreg.inc.sync.aligned.u32 232;", "//@ setmaxnreg.inc.sync.aligned.u32 240;",
         "more registers"},
        {"fence.mbarrier_init.release.cluster;", "", "no fence.mbarrier_init"},
        {"setp.eq.u32 more,", "setp.ne.u32 more,", ""}}) {
    SCOPED_TRACE(from);
    driver_.edit(from, to);
    bool is_closed = false, is_ruled = *rule == '\0';
    for (unsigned long long seed = 1; seed <= 4; ++seed) {
      driver_.seed(seed);
      const auto reason = verdict().reason;
      const auto fault = driver_.fault();
      is_closed = is_closed || !reason.empty();
      is_ruled = is_ruled || fault.find(rule) != std::string::npos;
      if (*rule == '\0') {
        EXPECT_NE(reason.find("is wrong"), std::string::npos) << reason;
      }
    }
    EXPECT_TRUE(is_closed);
    EXPECT_TRUE(is_ruled);
  }
}

}  // namespace
}  // namespace tessera::test
