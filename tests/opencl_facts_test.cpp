// SPDX-License-Identifier: Apache-2.0
// What is known of devices: by their drivers, by the table of architectures, and what plans make of
// facts that are absurd. Nothing is compiled.
#include <gtest/gtest.h>

#include <cstring>

#include "host/engines/engine.hpp"
#include "host/opencl/machines.hpp"
#include "host/opencl/runtime.hpp"
#include "tessera/tessera.hpp"
#include "tests/support/expect_error.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;
namespace norm = rms_norm;
using opencl::DeviceFacts;

/// A driver that has these answers, of 32 bits, and counts the questions.
struct Driver {
  std::map<cl_device_info, std::vector<std::uint64_t>> answers{};
  int asked = 0;
  std::string operator()(cl_device_info what) {
    ++asked;
    const auto found = answers.find(what);
    if (found == answers.end()) return {};
    const auto& values = found->second;
    if (values.size() == 1) {
      const auto value = static_cast<std::uint32_t>(values[0]);
      return {reinterpret_cast<const char*>(&value), sizeof(value)};
    }
    return {reinterpret_cast<const char*>(values.data()), 8 * values.size()};
  }
};

DeviceFacts gpu(const std::string& extensions, std::int64_t units = 132,
                std::int64_t local_bytes = 49152) {
  DeviceFacts facts;
  facts.is_gpu = true;
  facts.compute_units = units;
  facts.local_memory_bytes = local_bytes;
  facts.cache_bytes = 1 << 20;
  facts.max_work_group_size = 1024;
  facts.extensions = extensions;
  return facts;
}

using Sizes = std::vector<std::int64_t>;

TEST(OpenclFacts, ExtensionsAreAskedWhereTheyAreListed) {
  Driver driver{{{0x4000, {9}}, {0x4001, {0}}, {0x4002, {65536}}, {0x4003, {32}}}};
  DeviceFacts facts = gpu("cl_khr_fp16");
  add_vendor_facts(facts, "NVIDIA H100", std::ref(driver));
  EXPECT_EQ(driver.asked, 0);
  EXPECT_EQ(facts, gpu("cl_khr_fp16"));

  facts = gpu("cl_khr_fp16 cl_nv_device_attribute_query");
  add_vendor_facts(facts, "NVIDIA H100", std::ref(driver));
  EXPECT_EQ(facts.architecture, "sm_90");
  EXPECT_EQ(facts.sub_group_sizes, Sizes{32});
  EXPECT_EQ(facts.unit_registers, 65536);
  EXPECT_EQ(facts.unit_local_bytes, 228 * 1024);
  EXPECT_EQ(facts.cache_bytes, 50 << 20);
  EXPECT_EQ(facts.compute_units, 132);

  facts = gpu("cl_amd_device_attribute_query", 304, 65536);
  Driver amd{{{0x4043, {64}}, {0x4047, {65536}}}};
  add_vendor_facts(facts, "gfx942:sramecc+:xnack-", std::ref(amd));
  EXPECT_EQ(facts.architecture, "gfx942");
  EXPECT_EQ(facts.sub_group_sizes, Sizes{64});
  EXPECT_EQ(facts.unit_local_bytes, 65536);
  EXPECT_EQ(facts.cache_bytes, 256 << 20);

  // 512 vector engines are 32 cores.
  facts = gpu("cl_intel_device_attribute_query cl_intel_required_subgroup_size", 512, 65536);
  Driver intel{{{0x4250, {12u << 22 | 55u << 14}}, {0x4254, {16}}, {0x4108, {8, 16, 32}}}};
  add_vendor_facts(facts, "Intel(R) Arc(TM) A770 Graphics", std::ref(intel));
  EXPECT_EQ(facts.architecture, "xe-hpg");
  EXPECT_EQ(facts.compute_units, 32);
  EXPECT_EQ(facts.sub_group_sizes, (Sizes{8, 16, 32}));
  EXPECT_EQ(facts.unit_local_bytes, 128 * 1024);
}

/// Where a driver says nothing, 0, or what no device has, the table of architectures does.
TEST(OpenclFacts, TheTableFillsInWhatDriversDoNotSay) {
  for (const std::uint64_t absurd : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    DeviceFacts facts = gpu("cl_amd_device_attribute_query", 304, 65536);
    Driver driver{{{0x4043, {absurd == 1 ? 64 : absurd}}, {0x4047, {absurd}}}};
    add_vendor_facts(facts, "gfx90a", std::ref(driver));
    EXPECT_EQ(facts.sub_group_sizes, Sizes{64}) << absurd;
    EXPECT_EQ(facts.unit_local_bytes, 65536) << absurd;
    EXPECT_EQ(facts.unit_registers, 131072) << absurd;
  }
  // Of an architecture that nobody has heard of, what the driver says is all.
  DeviceFacts facts = gpu("cl_nv_device_attribute_query");
  Driver driver{{{0x4000, {99}}, {0x4001, {1}}, {0x4002, {1024}}}};
  add_vendor_facts(facts, "NVIDIA", std::ref(driver));
  EXPECT_EQ(facts.architecture, "sm_991");
  EXPECT_EQ(facts.unit_registers, 1024);
  EXPECT_EQ(facts.unit_groups, 0);
  EXPECT_EQ(facts.sub_group_sizes, Sizes{});
}

/// Groups that a unit runs at once, on `simt`: by local memory, registers, and the machine's limit.
TEST(OpenclFacts, ResidentGroupsFollowFromTheUnit) {
  const auto resident = [](DeviceFacts facts) {
    std::vector<std::string> notes;
    facts.compute_units = 1;
    return engines::engine_entry("simt").shapes(facts, {}, nullptr, notes).front()->slots();
  };
  const auto of = [&](const char* name) { return resident(opencl::machine_of(name).facts); };
  EXPECT_EQ(of("h100"), 9);
  EXPECT_EQ(of("rtx4090"), 4);
  EXPECT_EQ(of("mi300x"), 3);
  EXPECT_EQ(of("a770"), 6);
  EXPECT_EQ(of("8-units"), 1);
  DeviceFacts facts = gpu("", 1, 1 << 20);
  EXPECT_EQ(resident(facts), 8) << "of an unknown machine";
  facts.unit_groups = 32;
  EXPECT_EQ(resident(facts), 32);
  facts.unit_registers = 65536;
  EXPECT_EQ(resident(facts), 9) << "112 registers for each of 64 work-items";
  facts.unit_registers = 1;
  EXPECT_EQ(resident(facts), 1);
}

/// Few columns have smaller tiles. On a CPU no tile has more work-items than columns, since PoCL
/// has those without a column store beyond the end.
TEST(OpenclFacts, TilesOfSimtFollowFromTheColumns) {
  std::vector<std::string> notes;
  const auto& entry = engines::engine_entry("simt");
  const auto tile_of = [&](const DeviceFacts& facts, std::int64_t columns) {
    const auto shapes = entry.shapes(facts, {.n = columns}, nullptr, notes);
    return std::pair(shapes.front()->tile_n(), shapes.front()->group_size());
  };
  using Tile = std::pair<std::int64_t, std::size_t>;
  DeviceFacts cpu = opencl::machine_of("cpu-8").facts;
  cpu.local_memory_bytes = 1 << 20;
  const auto& h100 = opencl::machine_of("h100").facts;
  const auto& unknown = opencl::machine_of("8-units").facts;
  EXPECT_EQ(tile_of(cpu, 1), Tile(32, 16));
  EXPECT_EQ(tile_of(cpu, 32), Tile(32, 16));
  EXPECT_EQ(tile_of(cpu, 33), Tile(64, 64));
  EXPECT_EQ(tile_of(h100, 16), Tile(32, 64));
  EXPECT_EQ(tile_of(h100, 17), Tile(64, 64));
  EXPECT_EQ(tile_of(unknown, 16), Tile(64, 64));
  for (const std::int64_t columns : {16, 64}) {
    for (const DeviceFacts* facts : std::initializer_list<const DeviceFacts*>{&cpu, &h100}) {
      const auto all = entry.variants(*facts, {.n = columns}, nullptr, notes);
      EXPECT_EQ(std::pair(all.front()->tile_n(), all.front()->group_size()),
                tile_of(*facts, columns));
      for (const auto& each : all) {
        if (facts->is_gpu) continue;
        EXPECT_LE(static_cast<std::int64_t>(each->group_size()), each->tile_n());
      }
    }
  }
}

/// A knob that is given alone leaves the others as the columns ask for them.
TEST(OpenclFacts, AKnobOfSimtChangesNoOther) {
  std::vector<std::string> notes;
  DeviceFacts cpu = opencl::machine_of("cpu-8").facts;
  cpu.local_memory_bytes = 1 << 20;
  for (const std::int64_t columns : {5, 64}) {
    const auto shapes = engines::shapes_with(engines::engine_entry("simt"), cpu, {.n = columns},
                                             {{"depth", 32}}, nullptr, notes);
    EXPECT_EQ(shapes.front()->tile_n(), columns == 5 ? 32 : 64);
    EXPECT_EQ(shapes.front()->knobs().back(), (NamedValue{"depth", 32}));
  }
}

/// grad_x of few tokens: groups that would have short pieces of w's rows divide the vocabulary.
TEST(OpenclFacts, FewTokensDivideTheVocabulary) {
  std::vector<std::string> notes;
  const auto cut_of = [&](const char* machine, engines::Product product) {
    const auto& facts = opencl::machine_of(machine).facts;
    product.use = engines::Use::accumulate;
    const auto shapes =
        engines::engine_entry("cpu").shapes(facts, {.n = product.n}, nullptr, notes);
    const auto cut = shapes.front()->cut(product, 1);
    return std::pair(shapes.front()->parts(product.m, cut, 1), cut.k_parts);
  };
  using Parts = std::pair<std::int64_t, std::int64_t>;
  constexpr auto vh = engines::Layout::along_first;
  EXPECT_EQ(cut_of("cpu-8", {.m = 384, .n = 16, .k = 30522, .a = {.layout = vh}}), Parts(1, 16));
  EXPECT_EQ(cut_of("cpu-8", {.m = 1100, .n = 16, .k = 30522, .a = {.layout = vh}}), Parts(3, 6));
  EXPECT_EQ(cut_of("cpu-192", {.m = 768, .n = 16, .k = 50257, .a = {.layout = vh}}), Parts(4, 96));
  // Long pieces already, or too few words, many tokens, another layout, filtered tiles.
  EXPECT_EQ(cut_of("cpu-8", {.m = 16384, .n = 16, .k = 30522, .a = {.layout = vh}}).second, 1);
  EXPECT_EQ(cut_of("cpu-8", {.m = 384, .n = 16, .k = 300, .a = {.layout = vh}}).second, 1);
  EXPECT_EQ(cut_of("cpu-8", {.m = 384, .n = 64, .k = 30522, .a = {.layout = vh}}).second, 1);
  EXPECT_EQ(cut_of("cpu-8", {.m = 384, .n = 16, .k = 30522}).second, 1);
  EXPECT_EQ(cut_of("cpu-8", {.m = 384, .n = 16, .k = 30522, .a = {.layout = vh}, .k_multiple = 32})
                .second,
            1);
}

/// Facts that no device has, or that leave no room: a plan, or a refusal with its reason.
TEST(OpenclFacts, AbsurdFactsMakeAPlanOrAReason) {
  struct Absurd {
    const char* name;
    void (*change)(DeviceFacts&);
    const char* reason;  ///< of the refusal on a GPU; nullptr: a plan
  };
  const Absurd all[] = {
      {"no units", [](DeviceFacts& f) { f.compute_units = 0; }, nullptr},
      {"less than none", [](DeviceFacts& f) { f.compute_units = -5; }, nullptr},
      {"more units than can be counted",
       [](DeviceFacts& f) { f.compute_units = f.unit_groups = std::int64_t{1} << 62; }, nullptr},
      {"no cache", [](DeviceFacts& f) { f.cache_bytes = 0; }, nullptr},
      {"no sub-groups", [](DeviceFacts& f) { f.sub_group_sizes = {}; }, nullptr},
      {"no memory", [](DeviceFacts& f) { f.global_memory_bytes = 0; }, nullptr},
      {"no registers", [](DeviceFacts& f) { f.unit_registers = -1; }, nullptr},
      {"a unit with less than a group has", [](DeviceFacts& f) { f.unit_local_bytes = 1; },
       nullptr},
      {"16 KiB of local memory", [](DeviceFacts& f) { f.local_memory_bytes = 16384; },
       "bytes of local memory, the device has 16384"},
      {"allocations below w", [](DeviceFacts& f) { f.max_allocation_bytes = 16 << 20; }, nullptr},
      {"allocations below a column of w", [](DeviceFacts& f) { f.max_allocation_bytes = 4000; },
       "has 4096 bytes, more than the device's maximum allocation"},
      {"no allocations", [](DeviceFacts& f) { f.max_allocation_bytes = 0; },
       "more than the device's maximum allocation of 0"},
      {"work-groups of one", [](DeviceFacts& f) { f.max_work_group_size = 1; },
       "it needs work-groups of 64"},
  };
  for (const char* machine : {"h100", "mi300x", "8-units", "cpu-64"}) {
    for (const auto& [name, change, reason] : all) {
      SCOPED_TRACE(std::string(machine) + ", " + name);
      const Context context({.plan_for = machine});
      auto& facts = opencl::runtime_of(context.state())->facts_for_test();
      change(facts);
      // Whose rows need no more than work-groups of 64.
      const bool refuses_rows =
          reason != nullptr && (std::string_view(name) == "work-groups of one" ||
                                std::string_view(name) == "16 KiB of local memory");
      const View rows = View::host(nullptr, DType::f32, {512, 1024});
      Context for_rows = context;
      const auto plan_rows = [&] {
        const Plan softmax = softmax_cross_entropy::plan(
            for_rows, Pass::value_and_grad,
            {.logits = rows, .labels = View::host(nullptr, DType::i32, {512})}, {}, {}, {},
            {.implementation = "opencl"});
        const Plan norm = norm::plan(for_rows, Pass::forward, {.x = rows}, {}, {}, {},
                                     {.implementation = "opencl"});
        for (const Plan& plan : {softmax, norm}) {
          for (const auto& [block, value] : plan.dispatch.block_sizes) EXPECT_GT(value, 0) << block;
        }
      };
      if (refuses_rows && !facts.is_cpu) {
        expect_error(ErrorCode::unsupported, {reason}, plan_rows);
      } else if (!refuses_rows) {
        plan_rows();
      }
      for (const Pass pass : {Pass::forward, Pass::value_and_grad}) {
        Context asked = context;
        try {
          const auto plan = lce::plan(asked, pass,
                                      {.x = View::host(nullptr, DType::f32, {512, 1024}),
                                       .labels = View::host(nullptr, DType::i32, {512}),
                                       .w = View::host(nullptr, DType::f32, {1024, 32768})},
                                      {}, {}, {}, {.implementation = "opencl"});
          EXPECT_GT(plan.workspace_bytes, 0);
          EXPECT_GT(plan.minimum_workspace_bytes, 0);
          const bool is_cpu = facts.is_cpu;
          EXPECT_TRUE(reason == nullptr || is_cpu) << "it was planned";
        } catch (const Error& error) {
          ASSERT_NE(reason, nullptr) << error.what();
          if (!facts.is_cpu) {
            EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
          }
        }
      }
    }
  }
}

TEST(OpenclFacts, AContextThatPlansRunsNothing) {
  Context context({.plan_for = "h100"});
  EXPECT_TRUE(context.has_device());
  EXPECT_EQ(context.device_info().name, "h100");
  EXPECT_EQ(context.native_device(), nullptr);
  EXPECT_EQ(context.pooled_bytes(), 0);
  context.trim();
  std::vector<float> x(4), loss(1);
  const std::vector<std::int32_t> labels{0, 1};
  for (const char* implementation : {"opencl", "eigen"}) {
    expect_error(ErrorCode::unsupported, {"made to plan for h100", "plan_for"}, [&] {
      lce::forward(
          context,
          {.x = View::host(x.data(), {2, 2}), .labels = labels, .w = View::host(x.data(), {2, 2})},
          {.loss = MutableView::host(loss.data(), {})}, {}, {.implementation = implementation});
    });
  }
  const auto kernel =
      custom_kernel({.source = "kernel void two(global float* y) { y[0] = 2; }",
                     .entry = "two",
                     .shape = [](const auto& in) { return std::vector<TensorSpec>{in[0]}; }});
  expect_error(ErrorCode::unsupported, {"not here to compile it"},
               [&] { kernel.plan(context, {View::host(x.data(), {4})}); });
  expect_error(ErrorCode::device_not_found, {"\"h200\"", "cpu-64", "h100", "mi300x", "a770"},
               [] { Context({.plan_for = "h200"}); });
  expect_error(ErrorCode::invalid_argument, {"plan_for", "device"},
               [] { Context({.device = "pocl", .plan_for = "h100"}); });
}

}  // namespace
}  // namespace tessera::test
