// SPDX-License-Identifier: Apache-2.0
// What calls make of the user's table of tuned blocks, and what damaged ones do.
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "tessera/tessera.hpp"
#include "tests/support/question.hpp"
#include "tests/support/tuned_file.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

/// Questions about calls of linear_cross_entropy, by extents alone, on the host.
class TunedCalls : public testing::Test {
 protected:
  struct Question {
    std::string implementation = "eigen";
    Pass pass = Pass::forward;
    std::int64_t b = 64, h = 128, v = 1000;
    std::optional<std::size_t> workspace_bytes{};
    std::optional<lce::BlockSizes> blocks{};
  };
  static lce::Inputs inputs(const Question& q) {
    return {.x = View::host(nullptr, DType::f32, {q.b, q.h}),
            .labels = View::host(nullptr, DType::i32, {q.b}),
            .w = View::host(nullptr, DType::f32, {q.h, q.v})};
  }
  static lce::ExecutionOptions execution(const Question& q) {
    lce::ExecutionOptions options;
    options.implementation = q.implementation;
    options.workspace_bytes = q.workspace_bytes;
    options.block_sizes = q.blocks;
    return options;
  }
  Dispatch plan(const Question& q) {
    return lce::plan(context_, q.pass, inputs(q), {}, {}, {}, execution(q)).dispatch;
  }

  std::vector<std::string> heard_;
  Context context_{{.host_only = true,
                    .warning_handler = [this](const std::string& m) { heard_.push_back(m); }}};
  TunedFile file_;
};

const std::vector<NamedValue> tuned_blocks = {
    {"b_block_size", 32}, {"h_block_size", 64}, {"v_block_size", 96}};
constexpr const char* tuned_cell = "b_block_size=32 h_block_size=64 v_block_size=96";

TEST_F(TunedCalls, ARowIsUsedUntilTheFileChanges) {
  const Question q;
  EXPECT_EQ(plan(q).block_source, BlockSource::heuristic);
  EXPECT_TRUE(file_
                  .write_rows({TunedFile::row("linear_cross_entropy", "eigen", "host", "",
                                              "small-layer-small-batch", tuned_cell)})
                  .empty());
  const auto dispatch = plan(q);
  EXPECT_EQ(dispatch.block_source, BlockSource::tuned_file);
  EXPECT_EQ(dispatch.block_sizes, tuned_blocks);
  EXPECT_EQ(dispatch.block_reason,
            file_.path() + ":3: host, bucket small-layer-small-batch, measured");
  expect_contains(to_string(dispatch), "(tuned_file: " + file_.path() + ":3: host");
  EXPECT_EQ(lce::infer_block_sizes(context_, "eigen", q.pass, q.b, q.h, q.v, DType::f32, DType::f32)
                .second,
            BlockSource::tuned_file);
  // The caller's come first, and another bucket has no row.
  EXPECT_EQ(plan({.blocks = lce::BlockSizes{}}).block_source, BlockSource::caller);
  EXPECT_EQ(plan({.blocks = lce::BlockSizes{}}).block_reason, "");
  EXPECT_EQ(plan({.b = 16}).block_source, BlockSource::heuristic);
  file_.write_rows({});
  EXPECT_EQ(plan(q).block_source, BlockSource::heuristic);
  EXPECT_TRUE(heard_.empty());
}

TEST_F(TunedCalls, EveryOperatorAsks) {
  for (const auto& op : operators::descriptions()) {
    SCOPED_TRACE(op.name);
    std::string cell;
    auto blocks = op.block_sizes;
    for (auto& [name, value] : blocks) {
      value = 7;
      cell += (cell.empty() ? "" : " ") + name + "=7";
    }
    const std::string bucket = op.has_letter('S') ? "short-large-head" : "tiny";
    file_.write_rows({TunedFile::row(op.name, "eigen", "", "", bucket, cell)});
    const test::Question q{Pass::forward, DType::bf16, true, 9, 8, 100, op.name};
    const auto call = call_of(q, "eigen");
    const auto dispatch = operators::plan(context_, call).dispatch;
    EXPECT_EQ(dispatch.block_source, BlockSource::tuned_file);
    EXPECT_EQ(dispatch.block_sizes, blocks);
    expect_contains(dispatch.block_reason, ":3: any device, bucket " + bucket + ", measured");
    EXPECT_EQ(operators::infer_block_sizes(context_, "eigen", call),
              std::pair(blocks, BlockSource::tuned_file));
  }
}

TEST_F(TunedCalls, AnIllegalRowGivesWayWithItsRule) {
  const std::pair<std::string, std::string> rows[] = {
      {TunedFile::row("linear_cross_entropy", "eigen", "host", "", "", "z_block_size=8"),
       "linear_cross_entropy has no \"z_block_size\", but b_block_size, h_block_size"},
      {TunedFile::row("linear_cross_entropy", "eigen", "host", "", "", tuned_cell, "tile=8"),
       "eigen has no \"tile\", but rows_per_chunk"}};
  for (const auto& [row, rule] : rows) {
    file_.write_rows({row});
    std::vector<float> x(64), w(64);
    std::vector<std::int32_t> labels(8, 3);
    heard_.clear();
    const auto result = lce::forward(context_,
                                     {.x = View::host(x.data(), {8, 8}),
                                      .labels = View::host(labels.data(), {8}),
                                      .w = View::host(w.data(), {8, 8})},
                                     LossOptions{}, {.implementation = "eigen"});
    EXPECT_EQ(result.dispatch.block_source, BlockSource::heuristic);
    expect_contains(result.dispatch.block_reason, ":3: host, any shape, measured; not used: ");
    expect_contains(result.dispatch.block_reason, rule);
    ASSERT_EQ(heard_.size(), 1u);
    expect_contains(heard_[0], rule);
    EXPECT_EQ(result.dispatch.warnings, heard_);
  }
}

TEST_F(TunedCalls, WorkspaceIsPartOfTheKeyAndARowWithoutRoomGivesWay) {
  const std::string any = TunedFile::row("linear_cross_entropy", "eigen", "host", "", "",
                                         "b_block_size=64 h_block_size=128 v_block_size=1000");
  auto below = any;
  below.replace(below.find(",,,,,,b_block"), 6, ",,,below,,,");
  file_.write_rows({below});
  EXPECT_EQ(plan({}).block_source, BlockSource::heuristic);
  EXPECT_EQ(plan({.workspace_bytes = std::size_t{1} << 40}).block_source, BlockSource::heuristic);
  EXPECT_EQ(plan({.workspace_bytes = 60 << 20}).block_source, BlockSource::tuned_file);
  file_.write_rows({any});
  const Question q;
  const auto whole = lce::plan(context_, q.pass, inputs(q), {}, {}, {}, execution(q));
  EXPECT_EQ(whole.dispatch.block_source, BlockSource::tuned_file);
  Question least = q;
  least.workspace_bytes = static_cast<std::size_t>(whole.minimum_workspace_bytes);
  const auto dispatch = plan(least);
  EXPECT_EQ(dispatch.block_source, BlockSource::heuristic);
  expect_contains(dispatch.block_reason, "not used: workspace_bytes");
  EXPECT_TRUE(heard_.empty());
}

TEST_F(TunedCalls, RowsOfAChipAreFittedToTheTileMachine) {
  file_.write_rows({TunedFile::row("linear_cross_entropy", "tpu_tile", "v5p", "", "",
                                   "b_block_size=512 h_block_size=512 v_block_size=256")});
  const auto dispatch = plan({.implementation = "tpu_tile", .b = 384, .h = 256});
  EXPECT_EQ(dispatch.block_source, BlockSource::tuned_file);
  EXPECT_EQ(dispatch.block_sizes,
            (std::vector<NamedValue>{
                {"b_block_size", 384}, {"h_block_size", 256}, {"v_block_size", 256}}));
  expect_contains(dispatch.block_reason, "; b_block_size 512 is 384, which divides B 384");
  expect_contains(dispatch.block_reason, "; h_block_size 512 is 256, which divides H 256");
  // A rule of the chip.
  file_.write_rows({TunedFile::row("linear_cross_entropy", "tpu_tile", "v5p", "", "",
                                   "b_block_size=128 h_block_size=128 v_block_size=100")});
  const auto illegal = plan({.implementation = "tpu_tile", .b = 384, .h = 256});
  EXPECT_EQ(illegal.block_source, BlockSource::heuristic);
  expect_contains(illegal.block_reason, "R7");
  // The built-in table's, which 32 MiB of logits on 16 MiB of VMEM is too much for.
  Context v4({.device = "v4"});
  const Question published{.implementation = "tpu_tile", .b = 8192, .h = 4096, .v = 128256};
  const auto refused =
      lce::plan(v4, Pass::forward, inputs(published), {}, {}, {}, execution(published)).dispatch;
  EXPECT_EQ(refused.block_source, BlockSource::heuristic);
  expect_contains(refused.block_reason, "published.csv:");
  expect_contains(refused.block_reason, "v4, bucket llama3-ish, published; not used: ");
  expect_contains(refused.block_reason, "R13");
}

TEST_F(TunedCalls, WhatIsWrongWithTheFileIsAWarningOfEachContext) {
  const auto problems = file_.write_rows({"nonsense"});
  ASSERT_EQ(problems.size(), 1u);
  expect_contains(problems[0], file_.path() + ":3: it has 1 cells; a row has 21");
  EXPECT_TRUE(heard_.empty());
  for (int i = 0; i < 3; ++i) plan({});
  ASSERT_EQ(heard_.size(), 1u);
  expect_contains(heard_[0], problems[0]);
  std::vector<std::string> others;
  Context other({.host_only = true,
                 .warning_handler = [&](const std::string& text) { others.push_back(text); }});
  lce::plan(other, Pass::forward, inputs({}), {}, {}, {}, execution({}));
  EXPECT_EQ(others, heard_);
  // A file that is none.
  setenv("TESSERA_TUNED_FILE", "/dev/null", 1);
  expect_contains(reload_tuned_blocks().at(0),
                  "/dev/null: it cannot be read (it is no regular file)");
  setenv("TESSERA_TUNED_FILE", "/nonexistent/tuned.csv", 1);
  EXPECT_TRUE(reload_tuned_blocks().empty());
}

/// A seeded change of a text.
std::string damaged(std::string text, std::mt19937& random) {
  const auto below = [&](std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random);
  };
  constexpr std::string_view letters = ",\"=\n 0123456789-.#ex_\r\xff";
  for (std::size_t changes = 1 + below(4); changes > 0 && !text.empty(); --changes) {
    const std::size_t at = below(text.size());
    switch (below(6)) {
      case 0:
        text.resize(at);
        break;
      case 1:
        text.erase(at, 1 + below(30));
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), below(200)));
        break;
      case 3:
        text.insert(at, std::string(1 + below(20), letters[below(letters.size())]));
        break;
      default:
        text[at] = below(2) == 0 ? letters[below(letters.size())] : static_cast<char>(below(256));
    }
  }
  return text;
}

TEST(DamagedTables, NeitherCrashNorGiveIllegalBlocks) {
  TunedFile file;
  const auto quiet = [](const std::string&) {};
#ifdef TESSERA_OPENCL
  Context cpu({.plan_for = "cpu-8", .warning_handler = quiet});
  Context gpu({.plan_for = "h100", .warning_handler = quiet});
  const std::vector<std::string> names = {"opencl.cpu", "opencl.simt", "eigen", "tpu_tile"};
#else
  Context cpu({.host_only = true, .warning_handler = quiet}), gpu = cpu;
  const std::vector<std::string> names = {"eigen", "tpu_tile"};
#endif
  const auto device = cpu.device_info().name;
  std::vector<std::string> rows;
  for (const char* pass : {"", "forward"}) {
    rows.push_back(TunedFile::row("linear_cross_entropy", "opencl.cpu", device, "", "tiny",
                                  "b_block_size=64 h_block_size=128 v_block_size=256",
                                  "lanes=8 micro_vectors=2"));
    rows.push_back(TunedFile::row("linear_cross_entropy", "opencl.simt", "", "", "",
                                  "b_block_size=64 h_block_size=128 v_block_size=256", "tile=32"));
    rows.push_back(TunedFile::row("linear_cross_entropy", "eigen", "host", "", "tiny",
                                  "b_block_size=64 h_block_size=128 v_block_size=256"));
    rows.push_back(TunedFile::row("linear_cross_entropy", "tpu_tile", "v5p", "tpu", "",
                                  "b_block_size=256 h_block_size=128 v_block_size=256"));
    for (std::size_t i = rows.size() - 4; i < rows.size(); ++i) {
      rows[i].insert(rows[i].find(",,") + 1, pass);
    }
  }
  const std::string whole = TunedFile::table_of(rows);
  std::mt19937 random(30);
  const test::Question q{Pass::forward, DType::f32, true, 256, 256, 1000};
  std::map<std::string, int> used;
  for (int at = 0; at < 1000; ++at) {
    const std::string text = damaged(whole, random);
    SCOPED_TRACE(text);
    file.write(text);
    const auto& name = names[static_cast<std::size_t>(at) % names.size()];
    auto& context = name == "opencl.simt" ? gpu : cpu;
    const auto call = call_of(q, name);
    const auto dispatch = plan(context, call).dispatch;
    ++used[to_string(dispatch.block_source)];
    if (dispatch.block_source != BlockSource::tuned_file) continue;
    // Legal is what a caller may give.
    auto given = call;
    given.set_block_sizes(dispatch.block_sizes);
    if (name.starts_with("opencl")) given.knobs = dispatch.knobs;
    EXPECT_EQ(plan(context, given).dispatch.block_sizes, dispatch.block_sizes);
    // Nobody writes the file.
    std::ifstream stream(file.path(), std::ios::binary);
    ASSERT_EQ(text, std::string(std::istreambuf_iterator<char>(stream), {}));
  }
  EXPECT_GT(used["tuned_file"], 100);
  EXPECT_GT(used["heuristic"], 100);
}

}  // namespace
}  // namespace tessera::test
