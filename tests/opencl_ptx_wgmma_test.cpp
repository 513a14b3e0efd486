// SPDX-License-Identifier: Apache-2.0
// The engine opencl.wgmma on a device of NVIDIA's whose kernels run in an interpreter (tests/ptx):
// every pass against the oracle, in several orders, and what else serves where it does not.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>

#include "host/engines/engine.hpp"
#include "tests/support/opencl_fixture.hpp"
#include "tests/support/product_arguments.h"
#include "tests/support/product_kernels.hpp"
#include "tests/support/ptx_fixture.hpp"

namespace tessera::test {
namespace {

/// bf16 x and w, whose gradients are those that the engine sums.
Case bf16_case(const std::string& name, WLayout layout, std::int64_t b, std::int64_t h,
               std::int64_t v) {
  Case c;
  c.name = "wgmma_" + name;
  c.b = b;
  c.h = h;
  c.v = v;
  c.x_type = c.w_type = DType::bf16;
  c.w_layout = layout;
  c.gradients = grad_x_bit | grad_w_bit;
  c.labels = Labels::some_ignored;
  return c;
}

/// A case, and how the device and the call come to take the way that it is there for.
struct Row {
  Case c;
  Pass pass;
  const char* schedule;
  long long compute_units = 2;  ///< fewer than tiles, so that a group has several
  bool zero_copy = false;       ///< logits may wait in grad_w
  int orders = 2;
};

class WgmmaPtx : public PtxTest {
 protected:
  /// Runs the row in each order, where the environment wants it.
  void run(const Row& row) {
    if (!is_wanted(row.c.name)) return;
    SCOPED_TRACE(row.c.name);
    driver_.fact("compute_units", row.compute_units);
    Context context(quiet());
    opencl::runtime_of(context.state())->facts_for_test().zero_copy = row.zero_copy;
    for (int order = 1; order <= row.orders; ++order) {
      SCOPED_TRACE("order " + std::to_string(order));
      driver_.seed(static_cast<unsigned long long>(order));
      ASSERT_TRUE(run_case(context, hoppers_unit, row.pass, row.c));
      ASSERT_EQ(driver_.fault(), "");
    }
    EXPECT_EQ(plan_case(context, hoppers_unit, row.pass, row.c).dispatch.schedule, row.schedule);
  }
  void run_all(const std::vector<Row>& rows) {
    for (const auto& row : rows) {
      run(row);
      if (HasFatalFailure()) return;
    }
  }
};

/// A call is taken apart in many ways: pieces of it are in scratch, in grad_w, or made again.
std::vector<Row> schedules() {
  std::vector<Row> all;
  const auto add = [&](Row row, auto change) {
    change(row.c);
    all.push_back(std::move(row));
  };
  const auto none = [](Case&) {};
  // Tiles of several panels and strips, which end within. dz takes the place of logits.
  add({bf16_case("kept", WLayout::vh, 200, 72, 521), Pass::value_and_grad, "one_chunk"}, none);
  add({bf16_case("kept_hv", WLayout::hv, 200, 71, 520), Pass::value_and_grad, "one_chunk"},
      [](Case& c) { c.options.logsumexp_weight = 1e-2f; });
  // The logits of all rows wait in grad_w; dz has a place of its own. grad_w has whole tiles.
  add({bf16_case("in_grad_w", WLayout::vh, 100, 264, 521), Pass::value_and_grad,
       "one_chunk_in_grad_w", 2, true},
      [](Case& c) { c.place = Place::aligned_device; });
  add({bf16_case("in_grad_w_hv", WLayout::hv, 100, 264, 512), Pass::value_and_grad,
       "one_chunk_in_grad_w", 2, true},
      [](Case& c) { c.place = Place::aligned_device; });
  // Ranges of the vocabulary, and chunks of rows.
  add({bf16_case("ranges", WLayout::vh, 300, 72, 1001), Pass::value_and_grad, "v_outer"},
      [](Case& c) {
        c.workspace_bytes = 512 << 10;
        c.accumulate = true;
      });
  add({bf16_case("ranges_and_chunks", WLayout::hv, 300, 72, 1000), Pass::backward, "chunked"},
      [](Case& c) {
        c.workspace_bytes = 200 << 10;
        c.grad_w_type = DType::f32;
        c.options.reduction = Reduction::none;
        c.dloss = c.dlse = Cotangent::given;
      });
  add({bf16_case("all_columns", WLayout::vh, 141, 200, 520), Pass::backward, "v_outer"},
      [](Case& c) {
        c.place = Place::aligned_device;
        c.accumulate = true;
      });
  // Three stages. Several tiles of more steps than that, of a group.
  add({bf16_case("three_stages", WLayout::hv, 300, 264, 1304), Pass::value_and_grad, "one_chunk",
       1},
      [](Case& c) {
        c.knobs = {{"stages", 3}};
        c.accumulate = true;
      });
  // More panels than a band has: of tokens forward and in grad_x, of h in grad_w.
  add({bf16_case("bands", WLayout::hv, 2300, 13, 264), Pass::forward, "streamed", 2, false, 1},
      [](Case& c) { c.labels = Labels::uniform; });
  add({bf16_case("bands_of_gradients", WLayout::vh, 600, 584, 264), Pass::value_and_grad,
       "one_chunk", 4, false, 1},
      none);
  // More panels than a launch that passes over logits has groups for.
  add({bf16_case("many_panels", WLayout::vh, 8250, 8, 72), Pass::value_and_grad, "one_chunk", 2,
       false, 1},
      [](Case& c) { c.labels = Labels::uniform; });
  // Few tokens on many units: grad_x has parts of k, each with sums of its own.
  add({bf16_case("few_tokens", WLayout::vh, 7, 264, 3001), Pass::backward, "v_outer", 132, false,
       1},
      [](Case& c) { c.labels = Labels::uniform; });
  return all;
}

/// The loss's demands of a tile, in few calls.
std::vector<Row> losses() {
  std::vector<Row> all;
  const auto add = [&](Row row, auto change) {
    change(row.c);
    all.push_back(std::move(row));
  };
  // Epilogues that go over the tile in local memory.
  add({bf16_case("capped", WLayout::vh, 141, 264, 777), Pass::value_and_grad, "one_chunk", 1},
      [](Case& c) {
        c.options.logit_soft_cap = 3.0f;
        c.options.logit_scale = 1.5f;
        c.bias = c.class_weight = true;
        c.options.label_smoothing = 0.2f;
        c.options.logsumexp_weight = 1e-2f;
        c.weight = Weights::signed_and_zero;
        c.side_type = DType::bf16;
      });
  add({bf16_case("dense", WLayout::hv, 141, 40, 520), Pass::backward, "v_outer", 1}, [](Case& c) {
    c.targets = Targets::dense;
    c.options.reduction = Reduction::none;
    c.dloss = c.dlse = Cotangent::given;
    c.weight = Weights::positive;
    c.accumulate = true;
  });
  add({bf16_case("paired", WLayout::vh, 141, 136, 520), Pass::value_and_grad, "one_chunk", 1},
      [](Case& c) {
        c.targets = Targets::pairs;
        c.options.logit_soft_cap = 5.0f;
        c.grad_w_type = DType::f32;
        c.grad_x_type = DType::f32;
      });
  add({bf16_case("values", WLayout::vh, 141, 328, 1301), Pass::forward, "streamed", 1},
      [](Case& c) {
        c.bias = true;
        c.options.label_smoothing = 0.1f;
        c.options.reduction = Reduction::sum;
      });
  add({bf16_case("loss_alone", WLayout::hv, 257, 136, 1000), Pass::forward, "streamed", 1},
      [](Case& c) { c.outputs = 0; });
  add({bf16_case("partial", WLayout::hv, 141, 72, 520), Pass::forward_partial, "streamed"},
      [](Case& c) { c.class_weight = true; });
  return all;
}

/// Extents, places and numbers at the edges.
std::vector<Row> edges() {
  std::vector<Row> all;
  const auto add = [&](Row row, auto change) {
    change(row.c);
    all.push_back(std::move(row));
  };
  const auto both = Pass::value_and_grad;
  add({bf16_case("least", WLayout::vh, 1, 8, 1), both, "one_chunk"},
      [](Case& c) { c.labels = Labels::uniform; });
  add({bf16_case("least_hv", WLayout::hv, 1, 2, 8), both, "one_chunk"},
      [](Case& c) { c.labels = Labels::uniform; });
  add({bf16_case("whole_tiles", WLayout::hv, 256, 128, 512), both, "one_chunk"},
      [](Case& c) { c.labels = Labels::uniform; });
  // No row counts, and on the device, which alone knows, none of a panel.
  add({bf16_case("none_counts", WLayout::vh, 130, 72, 264), both, "one_chunk"},
      [](Case& c) { c.labels = Labels::all_ignored; });
  for (const Pass pass : {both, Pass::backward}) {
    add({bf16_case("panel_ignored", WLayout::vh_padded, 300, 69, 264), pass,
         pass == both ? "one_chunk" : "v_outer"},
        [](Case& c) {
          c.place = Place::aligned_device;
          c.x_layout = XLayout::padded;  // rows of x begin anywhere
        });
  }
  // Lines that are longer than V, and a grad_w whose runs begin anywhere.
  add({bf16_case("padded", WLayout::hv_padded, 141, 135, 523), both, "one_chunk"}, [](Case& c) {
    c.place = Place::aligned_device;
    c.grad_w_layout = WLayout::vh_padded;
    c.x_layout = XLayout::column;
  });
  add({bf16_case("nan_rows", WLayout::vh, 37, 72, 301), both, "one_chunk"}, [](Case& c) {
    c.data = Data::nan_rows;
    c.options.reduction = Reduction::none;
  });
  return all;
}

TEST_F(WgmmaPtx, EachScheduleAgreesWithTheOracle) { run_all(schedules()); }

TEST_F(WgmmaPtx, EachLossAgreesWithTheOracle) { run_all(losses()); }

TEST_F(WgmmaPtx, EdgesAgreeWithTheOracle) { run_all(edges()); }

/// The walk over k of grad_x, with steps of 128: sums of the first are new, those of others added.
TEST_F(WgmmaPtx, SumsOfStepsAreAdded) {
  const auto state = opencl::make_state(opencl::Runtime::open({}));
  auto& runtime = *opencl::runtime_of(*state);
  std::ifstream arguments(TESSERA_TEST_SUPPORT "/product_arguments.h");
  opencl::override_embedded_kernel("test/product_arguments.h",
                                   {std::istreambuf_iterator<char>(arguments), {}});
  opencl::override_embedded_kernel("test/accumulate.cl",
                                   std::string(product_head) + accumulate_kernel);
  constexpr std::int64_t m = 301, n = 141, k = 328, m_ld = 304, tile_n = 128, panels = 2;
  for (const auto layout : {engines::Layout::along_second, engines::Layout::along_first}) {
    const bool by_k = layout == engines::Layout::along_second;
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<bf16> a(m_ld * k), b(panels * tile_n * k);
    for (auto* values : {&a, &b}) {
      for (auto& value : *values) value = bf16(normal(random));
    }
    const engines::Product product{.use = engines::Use::accumulate,
                                   .m = m,
                                   .n = n,
                                   .k = k,
                                   .a = {DType::bf16, layout},
                                   .b = {DType::bf16}};
    std::vector<std::string> notes;
    const auto engine =
        engines::engine_entry("wgmma").shapes(runtime.facts(), {}, &runtime, notes).front();
    engines::Cut cut = engine->cut(product, 1);
    cut.k_step = 64;  // words of two
    const std::int64_t parts = engine->parts(m, cut, 1);
    std::vector<float> sums(panels * m * tile_n, NAN);
    for (int turn = 1; turn <= 2; ++turn) {
      dispatch::Attempt attempt;
      opencl::Call call(state, runtime, {}, attempt);
      const auto scratch =
          call.scratch(engine->scratch_words(cut, parts, panels, 1), "scratch of work-groups");
      const auto array = [](const auto& values) {
        return View::host(values.data(), DType::bf16, {static_cast<std::int64_t>(values.size())},
                          {1});
      };
      auto right = call.read(array(b), "b");
      right.offset /= 2;  // in words
      call.launch({.file = "test/accumulate.cl",
                   .options = engine->options() + engine->options(product, "C") +
                              " -DC_USE=USE_ACCUMULATE -DC_A_TYPE=1 -DC_A_LAYOUT=" +
                              std::to_string(static_cast<int>(layout)),
                   .engine = engine->folder(),
                   .patched_items = engine->patched_items()},
                  engine->launch_range(parts, panels, 1),
                  kernels::accumulate_memory{.left = call.read(array(a), "a"),
                                             .right = right,
                                             .out = call.write(MutableView(sums), "sums", true),
                                             .scratch = scratch},
                  {.a = {by_k ? k : 1, by_k ? 1 : m_ld, m},
                   .m_stride = m,
                   .n_stride = 1,
                   .left_batch = 0,
                   .right_batch = 0,
                   .out_batch = 0,
                   .m_part = 0,
                   .m_count = m,
                   .n_count = n,
                   .k_count = k,
                   .add = turn == 2},
                  engine->call(cut, parts, panels, 1));
      call.finish()->wait_once();
      for (std::int64_t i = 0; i < m * n; ++i) {
        const std::int64_t row = i / n, column = i % n;
        double sum = 0.0, size = 0.0;
        for (std::int64_t at = 0; at < k; ++at) {
          const double term = double{float{a[by_k ? row * k + at : at * m_ld + row]}} *
                              double{float{b[column * k + at]}};
          sum += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(sums[(column / tile_n * m + row) * tile_n + column % tile_n], turn * sum,
                    turn * (k + 1) * 0x1p-24 * size)
            << row << ", " << column << ", turn " << turn;
      }
    }
  }
}

/// A teacher's logits are those of a second w.
TEST_F(WgmmaPtx, DistillationAgreesWithTheOracle) {
  Case c = bf16_case("distilled", WLayout::hv, 141, 72, 520);
  c.op = &test_operator<linear_distillation::Operator>();
  c.side_type = DType::bf16;
  run({c, Pass::value_and_grad, "one_chunk"});
}

// ---- what it does not take ----

/// The implementation that serves users who name nothing, rightly, and why the engine does not.
std::pair<std::string, std::string> served(Context& context, Pass pass, const Case& c) {
  const Expected& e = expected_of(c);
  Arguments arguments(context, c, e.problem);
  if (pass == Pass::backward) arguments.add_statistics(context, e.values);
  const std::string named = default_order;
  Results results(context, c, e, pass, "opencl.mma");
  const auto dispatch = c.op->run({context, named, pass, c, arguments, results});
  results.check(arguments);
  for (const auto& refused : dispatch.refused) {
    if (refused.implementation == hoppers_unit) return {dispatch.implementation, refused.reason};
  }
  return {dispatch.implementation, ""};
}

TEST_F(WgmmaPtx, WhereLinesBeginElsewhereAnotherServes) {
  struct Other {
    Case c;
    const char* reason;
  };
  const auto at = [](Case c, Place place) {
    c.place = place;
    return c;
  };
  Context context(quiet());
  // One context: what is remembered of a call is not taken for one of the same shape.
  for (const auto& [c, reason] :
       {Other{bf16_case("aligned", WLayout::vh, 37, 40, 264), ""},
        {at(bf16_case("aligned", WLayout::vh, 37, 40, 264), Place::aligned_device), ""},
        {at(bf16_case("aligned", WLayout::vh, 37, 40, 264), Place::device), "multiples of 2 bytes"},
        {at(bf16_case("aligned", WLayout::vh, 37, 40, 264), Place::aligned_device), ""},
        {bf16_case("one_h", WLayout::vh, 37, 1, 264), "multiples of 2 bytes"},
        {bf16_case("seven_h", WLayout::vh, 37, 7, 264), "multiples of 2 bytes"},
        {bf16_case("many_h", WLayout::vh, 5, 4097, 40), "multiples of 2 bytes"},
        {bf16_case("many_h_hv", WLayout::hv, 5, 4097, 40), ""},
        {bf16_case("odd_v", WLayout::hv, 37, 40, 261), "multiples of 2 bytes"},
        {bf16_case("strided", WLayout::strided, 37, 40, 264), "no lines of elements"}}) {
    SCOPED_TRACE(c.name);
    const auto [implementation, why] = served(context, Pass::value_and_grad, c);
    EXPECT_EQ(implementation, *reason == '\0' ? hoppers_unit : "opencl.mma");
    EXPECT_NE(why.find(reason), std::string::npos) << why;
    EXPECT_EQ(why.empty(), *reason == '\0');
  }
}

/// The unit's own tile is right, a tile of the engine's kernels is not.
TEST_F(WgmmaPtx, AWrongTileOfItsKernelsClosesIt) {
  const Case c = bf16_case("aligned", WLayout::vh, 37, 40, 264);
  driver_.edit("add.u32 columns_at, columns_at, 2;", "add.u32 columns_at, columns_at, 0;");
  Context context(quiet());
  const auto [implementation, why] = served(context, Pass::forward, c);
  EXPECT_EQ(implementation, "opencl.mma");
  EXPECT_NE(why.find("wgmma is not to be used: a tile that the device computed so is wrong"),
            std::string::npos)
      << why;
}

TEST_F(WgmmaPtx, LaterDevicesHaveAnotherUnit) {
  const Case c = bf16_case("aligned", WLayout::vh, 37, 40, 264);
  for (const int major : {10, 12}) {
    driver_.fact("capability_major", major);
    Context context(quiet());
    const auto [implementation, why] = served(context, Pass::forward, c);
    EXPECT_EQ(implementation, "opencl.mma");
    EXPECT_EQ(why, "the device is not NVIDIA's sm_90: its architecture is sm_" +
                       std::to_string(10 * major));
  }
}

}  // namespace
}  // namespace tessera::test
