// SPDX-License-Identifier: Apache-2.0
// The interpreter of PTX that other tests run NVIDIA's kernels in: what instructions do, and the
// rules that it ends a kernel for.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/ptx/interpreter.hpp"
#include "tests/ptx/layouts.hpp"

namespace tessera_ptx {
namespace {

using Words = std::vector<std::uint32_t>;

/// A kernel with one buffer, whose address is in %out, and its body.
std::string kernel(const std::string& body, const std::string& attributes = "") {
  return ".version 8.3\n.target sm_90a, texmode_independent\n.address_size 64\n"
         ".visible .entry k(\n.param .u64 .ptr .global .align 4 k_0)\n" +
         attributes +
         "{\n.reg .pred %p<9>;\n.reg .b16 %h<9>;\n.reg .b32 %r<99>;\n.reg .f32 %f<99>;\n"
         ".reg .b64 %d<19>;\n.reg .b64 %out;\n.reg .b32 %t;\n"
         "ld.param.u64 %out, [k_0];\nmov.u32 %t, %tid.x;\n" +
         body + "\nret;\n}\n";
}

/// Runs it over a copy of `memory`, which comes back.
Words run(const std::string& text, Words memory, std::size_t items = 32, std::uint64_t seed = 1,
          std::size_t groups = 1) {
  const Module module(text);
  Launch launch;
  launch.items[0] = items;
  launch.groups[0] = groups;
  launch.seed = seed;
  launch.memory = {{reinterpret_cast<std::byte*>(memory.data()), memory.size() * 4}};
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  Argument argument;
  argument.value.resize(8);
  std::memcpy(argument.value.data(), &address, 8);
  launch.arguments = {argument};
  module.run("k", launch);
  return memory;
}

/// The message of what it ends with, for one of several orders; empty: every order ends well.
std::string fault(const std::string& text, std::size_t items = 32, std::size_t words = 4096) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    try {
      run(text, Words(words), items, seed);
    } catch (const Fault& error) {
      return error.what();
    }
  }
  return "";
}
#define EXPECT_FAULT(text, body, ...)                                         \
  EXPECT_NE(fault(kernel(body), ##__VA_ARGS__).find(text), std::string::npos) \
      << "it said: " << fault(kernel(body), ##__VA_ARGS__)

// ---- instructions ----

struct Line {
  const char* text;  // of %d1, %d2, %d3 makes %d0; of %r1.. %r0; of %f1.. %f0
  std::uint64_t expected;
};
constexpr std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }
const Line lines[] = {
    {"add.s32 %r0, %r1, %r2;", 0x80000005u - 3},
    {"sub.s32 %r0, %r2, %r1;", 0u - 3u - 0x80000005u},
    {"mul.lo.s32 %r0, %r1, 3;", 0x8000000Fu},
    {"mul.hi.u32 %r0, %r1, %r2;", 0x80000003u},
    {"mul.hi.s32 %r0, %r1, %r2;", 1},
    {"mul.wide.s32 %d0, %r2, 5;", std::uint64_t(-15)},
    {"mul.wide.u32 %d0, %r1, 16;", 0x800000050u},
    {"mad.lo.s32 %r0, %r2, %r2, 1;", 10},
    {"mad.wide.s32 %d0, %r2, 4, %d1;", 0x123456789ABCDEF0u - 12},
    {"mul.lo.s64 %d0, %d1, 2;", 0x2468ACF13579BDE0u},
    {"div.s32 %r0, %r1, 2;", std::uint32_t(int(0x80000005) / 2)},
    {"div.u32 %r0, %r1, 16;", 0x8000000u},
    {"rem.s32 %r0, %r2, 2;", 0xFFFFFFFFu},
    {"min.s32 %r0, %r1, %r2;", 0x80000005u},
    {"max.u32 %r0, %r1, %r2;", 0xFFFFFFFDu},
    {"shl.b32 %r0, %r1, 4;", 0x50},
    {"shl.b32 %r0, %r1, 32;", 0},
    {"shr.s32 %r0, %r1, 31;", 0xFFFFFFFFu},
    {"shr.s32 %r0, %r1, 40;", 0xFFFFFFFFu},
    {"shr.u64 %d0, %d1, 32;", 0x12345678u},
    {"shf.l.wrap.b32 %r0, %r1, %r2, 4;", 0xFFFFFFD8u},
    {"shf.r.wrap.b32 %r0, %r1, %r2, 36;", 0xD8000000u},
    {"and.b32 %r0, %r1, 15;", 5},
    {"xor.b64 %d0, %d1, -1;", ~0x123456789ABCDEF0u},
    {"not.b32 %r0, %r1;", 0x7FFFFFFAu},
    {"neg.s32 %r0, %r2;", 3},
    {"abs.s32 %r0, %r2;", 3},
    {"clz.b32 %r0, 255;", 24},
    {"popc.b32 %r0, %r1;", 3},
    {"brev.b32 %r0, %r1;", 0xA0000001u},
    {"prmt.b32 %r0, %r1, %r2, 0x5410;", 0xFFFD0005u},
    {"prmt.b32 %r0, %r1, %r2, 0xB004;", 0xFF0505FDu},
    {"lop3.b32 %r0, %r1, %r2, 255, 0x80;", 5},
    {"bfe.u32 %r0, %r1, 1, 4;", 2},
    {"bfe.s32 %r0, %r1, 28, 4;", 0xFFFFFFF8u},
    {"bfe.s32 %r0, %r1, 0, 3;", 0xFFFFFFFDu},
    {"bfi.b32 %r0, 7, %r1, 8, 2;", 0x80000305u},
    {"setp.lt.s32 %p1, %r1, %r2; selp.b32 %r0, 1, 2, %p1;", 1},
    {"setp.lt.u32 %p1, %r2, %r1; selp.b32 %r0, 1, 2, %p1;", 2},
    {"setp.hs.u32 %p1, %r2, %r1; selp.b32 %r0, 1, 2, %p1;", 1},
    {"setp.gt.f32 %p1, %f3, 0f00000000; selp.b32 %r0, 1, 2, %p1;", 2},
    {"setp.gtu.f32 %p1, %f3, 0f00000000; selp.b32 %r0, 1, 2, %p1;", 1},
    {"setp.ne.f32 %p1, %f3, %f3; selp.b32 %r0, 1, 2, %p1;", 2},
    {"setp.nan.f32 %p1, %f3, %f1; selp.b32 %r0, 1, 2, %p1;", 1},
    {"setp.eq.s32 %p2, %r1, %r1; setp.eq.and.s32 %p1|%p3, %r1, %r2, %p2; selp.b32 %r0, 1, 2, %p3;",
     1},
    {"setp.eq.s32 %p2, %r1, %r1; not.pred %p1, %p2; selp.b32 %r0, 1, 2, %p1;", 2},
    {"setp.eq.s32 %p2, %r1, %r1; xor.pred %p1, %p2, %p2; selp.b32 %r0, 1, 2, %p1;", 2},
    {"mov.pred %p1, -1; @%p1 mov.u32 %r0, 7;", 7},
    {"mov.pred %p1, -1; mov.u32 %r0, 3; @!%p1 mov.u32 %r0, 7;", 3},
    {"mov.b64 %d0, {%r1, %r2};", 0xFFFFFFFD80000005u},
    {"mov.b64 {%r3, %r0}, %d1;", 0x12345678u},
    {"mov.b32 {%h1, %h2}, %r1; cvt.u32.u16 %r0, %h2;", 0x8000u},
    {"cvt.s64.s32 %d0, %r2;", std::uint64_t(-3)},
    {"cvt.u64.u32 %d0, %r2;", 0xFFFFFFFDu},
    {"cvt.u16.u32 %h1, %r2; cvt.s32.s16 %r0, %h1;", 0xFFFFFFFDu},
    {"cvt.u16.u32 %h1, %r2; cvt.u32.u8 %r0, %h1;", 0xFDu},
    {"cvt.rn.f32.s32 %f0, %r2;", bits(-3.0f)},
    {"cvt.rzi.s32.f32 %r0, %f2;", std::uint32_t(-2)},
    {"cvt.rni.s32.f32 %r0, %f2;", std::uint32_t(-2)},
    {"cvt.rmi.s32.f32 %r0, %f2;", std::uint32_t(-3)},
    {"cvt.rpi.f32.f32 %f0, %f2;", bits(-2.0f)},
    {"cvt.rzi.u32.f32 %r0, %f3;", 0},
    {"cvt.rn.bf16x2.f32 %r0, %f1, %f2;", 0x3FC0C020u},
    {"cvt.rn.f16x2.f32 %r0, %f1, %f2;", 0x3E00C100u},
    {"cvt.rn.bf16.f32 %h1, %f1; cvt.u32.u16 %r0, %h1;", 0x3FC0u},
    {"add.f32 %f0, %f1, %f2;", bits(-1.0f)},
    {"fma.rn.f32 %f0, %f1, %f2, %f1;", bits(1.5f * -2.5f + 1.5f)},
    {"div.rn.f32 %f0, %f2, %f1;", bits(-2.5f / 1.5f)},
    {"max.f32 %f0, %f3, %f1;", bits(1.5f)},
    {"neg.f32 %f0, %f1;", bits(-1.5f)},
    {"sqrt.rn.f32 %f0, 0f40800000;", bits(2.0f)},
    {"ex2.approx.ftz.f32 %f0, 0f40400000;", bits(8.0f)},
    {"ex2.approx.ftz.f32 %f0, 0fC3020000;", 0},
    {"lg2.approx.f32 %f0, 0f41000000;", bits(3.0f)},
    {"rcp.approx.ftz.f32 %f0, 0f40800000;", bits(0.25f)},
    {"shfl.sync.bfly.b32 %r0|%p1, %t, 1, 31, -1;", 1},  // of lane 0
    {"shfl.sync.down.b32 %r0, %t, 4, 31, -1;", 4},
    {"shfl.sync.up.b32 %r0, %t, 4, 0, -1;", 0},
    {"shfl.sync.idx.b32 %r0, %t, 9, 31, -1;", 9},
    {"setp.lt.u32 %p1, %t, 5; vote.sync.ballot.b32 %r0, %p1, -1;", 31},
    {"setp.lt.u32 %p1, %t, 5; vote.sync.all.pred %p2, %p1, -1; selp.b32 %r0, 1, 2, %p2;", 2},
};

TEST(PtxInstructions, GiveWhatTheManualSays) {
  for (const auto& line : lines) {
    const std::string text = line.text;
    const std::string to = text.find("%d0") != std::string::npos   ? "st.global.u64 [%out], %d0;"
                           : text.find("%f0") != std::string::npos ? "st.global.f32 [%out], %f0;"
                                                                   : "st.global.u32 [%out], %r0;";
    const auto memory =
        run(kernel("mov.u32 %r1, 0x80000005; mov.u32 %r2, -3; mov.f32 %f1, 0f3FC00000;"
                   "mov.f32 %f2, 0fC0200000; mov.f32 %f3, 0f7FC00000;"
                   "mov.u64 %d1, 0x123456789ABCDEF0;" +
                   text + "setp.eq.u32 %p7, %t, 0; @%p7 " + to),
            {0, 0});
    EXPECT_EQ(memory[0] | std::uint64_t{memory[1]} << 32, line.expected) << text;
  }
}

/// Lane l has row l / 4 of eight, elements 2 (l % 4) and the next: here their numbers, row by row.
TEST(PtxInstructions, MovmatrixTurnsAMatrixOver) {
  const std::string number = "shl.b32 %r1, %t, 1; add.s32 %r2, %r1, 1;";
  const std::string pack = "shl.b32 %r3, %r2, 16; or.b32 %r3, %r3, %r1;";
  const std::string move = "movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r3;";
  const std::string store =
      "mul.wide.u32 %d1, %t, 4; add.s64 %d1, %d1, %out; st.global.u32 [%d1], %r4;";
  const auto memory = run(kernel(number + pack + move + store), Words(32));
  for (std::uint32_t l = 0; l < 32; ++l) {
    const std::uint32_t column = l / 4, row = l % 4 * 2;
    EXPECT_EQ(memory[l], (8 * (row + 1) + column) << 16 | (8 * row + column)) << l;
  }
  EXPECT_FAULT("not together", "setp.lt.u32 %p1, %t, 16; @%p1 bra $L1; " + move + " $L1:");
  EXPECT_NE(fault(kernel("movmatrix.sync.aligned.m8n8.b16 %r4, %r3;")), "") << "it always turns";
}

TEST(PtxInstructions, ThatAreNotKnownAreNamed) {
  for (const std::string text :
       {"add.sat.s32 %r0, %r1, %r2;", "add.cc.u32 %r0, %r1, %r2;", "fma.rz.f32 %f0, %f1, %f2, %f3;",
        "ld.global.v3.u32 %r0, [%out];",
        "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
        "{%f0,%f1,%f2,%f3},{%r0,%r1},{%r2},{%f0,%f1,%f2,%f3};",
        "redux.sync.add.u32 %r0, %r1, -1;", "add.s32 %d0, %d1, %d2;",
        "wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0};",
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%r0], [%d0, {%r1, %r2, %r3}], [%r4];"}) {
    try {
      const Module module(kernel(text));
      ADD_FAILURE() << text;
    } catch (const Fault& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(text.substr(0, text.find(' '))), std::string::npos) << message;
    }
  }
}

TEST(PtxInstructions, ABrokenTextIsRefusedByItsLine) {
  const std::string whole = kernel("add.s32 %r0, %r1, %r2;");
  for (const auto& text :
       {std::string(), whole.substr(0, whole.size() / 2), whole.substr(whole.find(".address")),
        kernel("add.s32 %r0, %r1, %q7;"), kernel("bra NOWHERE;"), kernel("mov.u32 %r0, %clock;")}) {
    EXPECT_THROW(Module{text}, Fault) << text;
  }
}

TEST(PtxInstructions, OfSm90aNeedItsTarget) {
  std::string text = kernel("wgmma.fence.sync.aligned;");
  const Module module(text);
  text.erase(text.find("sm_90a") + 5, 1);
  EXPECT_THROW(Module{text}, Fault);
}

TEST(PtxFlow, LanesPartAndMeetAgain) {
  // Each lane counts to its own number; then all shuffle, for which they must be together.
  const auto memory = run(kernel(R"(mov.u32 %r0, 0;
      $L1: add.s32 %r0, %r0, 1;
      setp.le.u32 %p1, %r0, %t;
      @%p1 bra $L1;
      setp.lt.u32 %p2, %t, 16;
      @%p2 bra $L2;
      mul.lo.s32 %r0, %r0, 100;
      $L2: shfl.sync.bfly.b32 %r1, %r0, 16, 31, -1;
      mul.wide.u32 %d1, %t, 4;
      add.s64 %d1, %d1, %out;
      st.global.u32 [%d1], %r1;)"),
                          Words(32));
  for (std::uint32_t t = 0; t < 32; ++t) {
    EXPECT_EQ(memory[t], t < 16 ? (t + 17) * 100 : t - 15) << t;
  }
}

TEST(PtxFlow, WarpsMeetAtBarriers) {
  // A ring: each warp reads what the next one wrote.
  const std::string text = kernel(R"(.shared .align 4 .b8 s[512];
      mov.u32 %r1, s;
      mad.lo.s32 %r2, %t, 4, %r1;
      st.shared.u32 [%r2], %t;
      bar.sync 0;
      add.s32 %r3, %t, 32;
      and.b32 %r3, %r3, 127;
      mad.lo.s32 %r2, %r3, 4, %r1;
      ld.shared.u32 %r4, [%r2];
      mul.wide.u32 %d1, %t, 4;
      add.s64 %d1, %d1, %out;
      st.global.u32 [%d1], %r4;)");
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const auto memory = run(text, Words(128), 128, seed);
    for (std::uint32_t t = 0; t < 128; ++t) ASSERT_EQ(memory[t], (t + 32) % 128) << seed;
  }
  // Without the barrier some order shows it.
  std::string broken = text;
  broken.erase(broken.find("bar.sync 0;"), 11);
  bool is_seen = false;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const auto memory = run(broken, Words(128), 128, seed);
    for (std::uint32_t t = 0; t < 128; ++t) is_seen = is_seen || memory[t] != (t + 32) % 128;
  }
  EXPECT_TRUE(is_seen);
}

// ---- rules ----

TEST(PtxRules, OfMemory) {
  EXPECT_FAULT("global memory outside buffers", "st.global.u32 [%out+16384], %t;");
  EXPECT_FAULT("global memory outside buffers", "ld.global.u32 %r0, [%out+-4];");
  EXPECT_FAULT("misaligned in global", "ld.global.u64 %d0, [%out+4];");
  EXPECT_FAULT("shared memory outside",
               ".shared .align 4 .b8 s[64]; mov.u32 %r0, s; st.shared.u32 [%r0+64], %t;");
  EXPECT_FAULT("misaligned in shared",
               ".shared .align 8 .b8 s[64]; mov.u32 %r0, s; ld.shared.v2.u32 {%r1, %r2}, [%r0+4];");
  EXPECT_FAULT("outside the parameters", "ld.param.u64 %d0, [k_0+8];");
  EXPECT_FAULT("local memory outside",
               ".local .align 4 .b8 depot[8]; mov.u64 %d0, depot;"
               "st.local.u32 [%d0+8], %t;");
}

TEST(PtxRules, OfLanesAndBarriers) {
  const std::string half = "setp.lt.u32 %p1, %t, 16; @%p1 bra $L1; ";
  EXPECT_FAULT("not together", half + "bar.sync 0; $L1:");
  EXPECT_FAULT("not together", half + "shfl.sync.bfly.b32 %r0, %t, 1, 31, -1; $L1:");
  EXPECT_FAULT("from a lane that is not there",
               half + "shfl.sync.bfly.b32 %r0, %t, 16, 31, 0xffff0000; $L1:");
  EXPECT_FAULT("deadlock", "setp.lt.u32 %p1, %t, 32; @%p1 bar.sync 1, 64;", 64);
  EXPECT_FAULT("different numbers",
               "setp.lt.u32 %p1, %t, 32; selp.b32 %r0, 64, 96, %p1; bar.sync 1, %r0;", 64);
  EXPECT_FAULT("half full", "setp.lt.u32 %p1, %t, 32; @%p1 bar.arrive 1, 64;", 64);
  EXPECT_FAULT("no effect", "setmaxnreg.inc.sync.aligned.u32 232;");
}

constexpr const char* copy =
    ".shared .align 16 .b8 s[512]; mov.u32 %r1, s; mad.lo.s32 %r1, %t, 16, %r1;"
    "mul.wide.u32 %d1, %t, 16; add.s64 %d1, %d1, %out;"
    "cp.async.cg.shared.global [%r1], [%d1], 16, 8;";

TEST(PtxRules, OfCopies) {
  const std::string text = copy;
  EXPECT_FAULT("did not wait", text);
  EXPECT_FAULT("did not wait", text + "cp.async.commit_group;");
  EXPECT_FAULT("did not wait", text + "cp.async.commit_group; cp.async.wait_group 1;");
  EXPECT_FAULT("misaligned",
               ".shared .align 16 .b8 s[32]; mov.u32 %r1, s;"
               "cp.async.cg.shared.global [%r1], [%out+8], 16;");
  Words memory(128);
  for (std::uint32_t i = 0; i < 128; ++i) memory[i] = i;
  bool is_late = false;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const std::string wait = "cp.async.commit_group; cp.async.wait_group 0;";
    const std::string read = "ld.shared.u32 %r2, [%r1]; ld.shared.u32 %r3, [%r1+8]; ";
    const std::string write = "st.global.v2.u32 [%d1], {%r2, %r3};";
    const auto result = run(kernel(text + wait + read + write), memory, 32, seed);
    for (std::uint32_t t = 0; t < 32; ++t) {
      EXPECT_EQ(result[4 * t], 4 * t);
      EXPECT_EQ(result[4 * t + 1], 0u) << "zeros follow what is read";
    }
    const auto early = run(kernel(text + read + wait + write), memory, 32, seed);
    is_late = is_late || early[0] == 0xFFFFFFFFu;
  }
  EXPECT_TRUE(is_late) << "a read before the wait finds poison in some order";
}

constexpr const char* object = ".shared .align 8 .b8 m[16]; mov.u32 %r1, m; ";

TEST(PtxRules, OfBarrierObjects) {
  const std::string text = object;
  EXPECT_FAULT("not initialised", text + "mbarrier.arrive.shared::cta.b64 %d1, [%r1];");
  const std::string one =
      text + "setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared::cta.b64 [%r1], 1; bar.sync 0;";
  EXPECT_FAULT("deadlock", one + R"($L1: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;
      @!%p2 bra $L1;)");
  EXPECT_FAULT("on their way",
               one + "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 %d1, [%r1], 128;");
  EXPECT_EQ(fault(kernel(one + R"(@%p1 mbarrier.arrive.shared::cta.b64 %d1, [%r1];
      $L1: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;
      @!%p2 bra $L1;)")),
            "");
}

TEST(PtxRules, OfWgmma) {
  std::string list = "{%f0";
  for (int i = 1; i < 4; ++i) list += ", %f" + std::to_string(i);
  const std::string product =
      ".shared .align 1024 .b8 s[16384]; mov.u32 %r1, s; shr.u32 %r1, %r1, 4;"
      "cvt.u64.u32 %d1, %r1; or.b64 %d1, %d1, 0x4000004000000000;";
  const std::string fence = "wgmma.fence.sync.aligned;";
  const std::string multiply =
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 " + list + "}, %d1, %d1, 0, 1, 1, 0, 0;";
  const std::string commit = "wgmma.commit_group.sync.aligned;";
  const std::string wait = "wgmma.wait_group.sync.aligned 0;";
  const std::string use = "st.global.f32 [%out], %f0;";
  EXPECT_EQ(fault(kernel(product + fence + multiply + commit + wait + use), 128), "");
  EXPECT_FAULT("no wgmma.fence", product + multiply + commit + wait, 128);
  EXPECT_FAULT("no wgmma.fence",
               product + fence + "mov.f32 %f1, 0f00000000;" + multiply + commit + wait, 128);
  EXPECT_FAULT("not been waited for", product + fence + multiply + commit + use + wait, 128);
  EXPECT_FAULT("in flight", product + fence + multiply + commit, 128);
  EXPECT_FAULT("different products",
               product + "setp.lt.u32 %p1, %t, 32; @%p1 add.s64 %d1, %d1, 2;" + fence + multiply +
                   commit + wait,
               128);
  EXPECT_FAULT("fence.proxy.async",
               product + "mov.u32 %r2, s; mad.lo.s32 %r2, %t, 4, %r2; st.shared.u32 [%r2], 0;" +
                   fence + multiply + commit + wait,
               128);
  EXPECT_FAULT("swizzle", product + "shl.b64 %d1, %d1, 1;" + fence + multiply + commit + wait, 128);
}

TEST(PtxLayouts, AreTheManuals) {
  // Figures of "Matrix fragments for mma.m16n8k16" and of wgmma's D.
  EXPECT_EQ(mma_a(1, 5).row, 9);
  EXPECT_EQ(mma_a(2, 5).column, 10);
  EXPECT_EQ(mma_b(1, 31).column, 14);
  EXPECT_EQ(mma_c(3, 6).row, 9);
  EXPECT_EQ(mma_c(3, 6).column, 5);
  EXPECT_EQ(wgmma_c(6, 4).row, 9);
  EXPECT_EQ(wgmma_c(6, 4).column, 8);
  EXPECT_EQ(swizzled(0x480), 0x490u);
}

}  // namespace
}  // namespace tessera_ptx
