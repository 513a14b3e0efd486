// SPDX-License-Identifier: Apache-2.0
// host/schedule with an operator that the library does not have: queries meet keys, and the tile of
// their scores values, in one kernel. Nothing is compiled or run.
#include <gtest/gtest.h>

#include "host/engines/cpu.hpp"
#include "host/schedule/search.hpp"
#include "host/schedule/walk.hpp"

namespace tessera::test {
namespace {
using namespace schedule;
constexpr std::int64_t queries = 1000, keys = 1003, width = 64;
constexpr char packed[] = "packed queries", sums[] = "sums of values";
constexpr Way both_ways[] = {{"whole", "not kept"}, {"in_chunks", "not kept"}};

/// Chunks of queries outside, ranges of keys inside.
class Attention final : public Problem {
 public:
  explicit Attention(std::shared_ptr<const engines::Engine> engine)
      : Problem(std::move(engine), {}) {
    base.all = {queries, base.piece = keys, width};
    base.blocks = {keys, 256, width};
    workspace_bytes = 500 << 10;
  }
  Steps steps(const Schedule& s) const override {
    Steps list;
    const engines::Product scores{.m = s.at.columns, .n = s.at.rows, .k = width};
    const engines::Product values{
        .m = width, .n = s.at.rows, .k = s.at.columns, .b = {.from = engines::Operand::From::tile}};
    list.products = {{scores, engine().cut(scores, s.shrink)},
                     {values, engine().cut(values, s.shrink)}};
    const auto add = [&](int kernel, unsigned loops, std::int64_t words, Steps::Kind of) -> Step& {
      Step& step = list.add(s, Phase::main, loops, of);
      step.kernel = kernel;
      step.bytes = 8.0 * static_cast<double>(words);
      return step;
    };
    const std::int64_t words = s.at.rows * width;
    add(0, of_rows, words, {0, 1}).regions[0] = {packed, words};
    for (const auto& range : Steps::kinds_of(s, s.at.columns)) {
      if (range.times == 0) continue;
      Step& step = add(1, of_rows | of_columns, range.columns * width, range);
      step.name = "attend";
      step.product = 0;
      step.second = 1;
      step.grid = {range.columns, s.at.rows, width, 4, engines::ceil_div(range.columns, 4)};
      step.scratch_parts[0] = 4;
      step.regions[0] = {sums, words};
    }
    add(2, of_rows, words, {0, 1}).when = When::last;
    return list;
  }
  std::string extents() const override { return "1000 queries"; }
  engines::Rates rates() const override { return engine().rates({}); }
  std::span<const Way> ways() const override { return both_ways; }
  const char* why_not(std::size_t) const override { return nullptr; }
  std::optional<Schedule> make(std::size_t way, const Search& search,
                               const Schedule& from) const override {
    Schedule s = from;
    s.name = both_ways[way].name;
    s.at.rows = way == 0 ? all_rows(s) : 256;
    return search.fit_range(s, keys) ? std::optional(s) : std::nullopt;
  }
};

TEST(ScheduleTest, ThreeStepsAreAPlan) {
  opencl::DeviceFacts facts;
  facts.is_cpu = true;
  facts.native_float_vector = 16;
  facts.compute_units = 4;
  facts.cache_bytes = 64 << 20;
  facts.max_allocation_bytes = 1 << 30;
  const std::shared_ptr<const engines::Engine> engine = engines::make_cpu_engine(facts);
  const auto make = [&](auto&) { return Problems{std::make_shared<Attention>(engine)}; };
  const auto choice = make_schedule(make, facts, 0);
  const Schedule& s = choice.schedule;
  EXPECT_STREQ(s.name, "in_chunks");
  EXPECT_EQ(s.at.columns % engine->rule().m_multiple, 0) << s.at.columns;
  const Arena arena(s.steps, s.shrink, *engine);
  for (const char* name : {packed, sums}) EXPECT_EQ(arena.words(name), 256 * width) << name;
  std::int64_t groups = 0;
  for (const auto& product : s.steps.products) {
    groups += engine->scratch_words(product.cut, 4, 256 / engine->tile_n(), s.shrink);
  }
  EXPECT_EQ(arena.words(Arena::groups), groups) << "of both products";
  EXPECT_EQ(arena.regions().size(), 3u);
  EXPECT_EQ(arena.total(), s.scratch_words);
  EXPECT_LE(4 * s.scratch_words, 500 << 10);
  std::string kernels;
  std::int64_t met = 0;
  walk(
      s, 0, [&](const Turn& turn) { met += turn.rows.count * turn.columns.count; },
      [&](const Step& step, auto&) { kernels += static_cast<char>('0' + step.kernel); });
  EXPECT_EQ(met, 1024 * keys) << "chunks are whole tiles";
  const std::int64_t ranges = engines::ceil_div(keys, s.at.columns);
  const std::string chunk = "0" + std::string(static_cast<std::size_t>(ranges), '1') + "2";
  EXPECT_EQ(kernels, chunk + chunk + chunk + chunk);

  const auto cost = cost_of(s.steps, s.shrink, *engine);
  ASSERT_EQ(cost.products.size(), 1u);
  EXPECT_EQ(cost.products[0].times, 4 * ranges);
  EXPECT_DOUBLE_EQ(cost.products[0].flops, 2.0 * 2.0 * 1024 * keys * width) << "both products";
  EXPECT_DOUBLE_EQ(cost.bytes, 4.0 * 4.0 * 1024 * width + 4.0 * 8.0 * keys * width);
  EXPECT_DOUBLE_EQ(cost.launches, static_cast<double>(kernels.size()) * engine->rates({}).launch);
  Schedule whole = s;
  whole.at.rows = 1024;
  const Search search(*choice.problem, {most_words, 1024 * width - 1});
  EXPECT_EQ(search.better(s, whole)->at.rows, 1024) << "fewer launches";
  EXPECT_FALSE(search.fits(whole)) << "a region is beyond the largest allocation";

  const auto all = explain(make, facts, 0);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_TRUE(all[1].is_taken) << all[1].reason;
  EXPECT_DOUBLE_EQ(all[1].predicted_seconds(), cost.seconds());
  EXPECT_NE(all[0].reason.find("of scratch, and 0.5 MiB are allowed"), std::string::npos);
}

}  // namespace
}  // namespace tessera::test
