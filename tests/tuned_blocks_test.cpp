// SPDX-License-Identifier: Apache-2.0
// Tables of tuned blocks: what is read, which row answers, and what damaged ones do.
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "tessera/tessera.hpp"
#include "tests/support/question.hpp"
#include "tests/support/tuned_file.hpp"
#include "tuning/lookup/lookup.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" in \"" << text << "\"";
}

/// H and V of published models (bench/shapes/models.txt).
constexpr std::pair<std::int64_t, std::int64_t> models[] = {
    {768, 50257},   {2304, 256000}, {3584, 256000}, {2560, 262144}, {4096, 128256},
    {4096, 151936}, {7168, 129280}, {2880, 201088}, {384, 30522}};

TEST(Buckets, HoldEveryModelAtEveryNumberOfTokens) {
  for (const auto& [h, v] : models) {
    for (std::int64_t b = 1; b <= 131072; ++b) {
      const auto& all = tuning::buckets();
      const auto held = std::find_if(all.begin(), all.end(), [&, h = h, v = v](const auto& each) {
        return each.name != "gb10-fallback" && each.holds({b, h, v});
      });
      ASSERT_NE(held, all.end()) << b << " " << h << " " << v;
    }
  }
  // What an operator does not have is within every range; no token at all is in none.
  EXPECT_TRUE(tuning::buckets()[0].holds({16, tuning::absent, 100}));
  EXPECT_FALSE(tuning::buckets()[0].holds({16, tuning::absent, 8193}));
  EXPECT_FALSE(tuning::buckets()[0].holds({0, 8, 8}));
}

TEST(BuiltinTable, HasAllPublishedRowsAndNoFault) {
  const auto& table = tuning::builtin_table();
  EXPECT_TRUE(table.problems.empty()) << table.problems.front();
  std::map<std::string, int> published;
  for (const auto& row : table.rows) {
    if (row.provenance == "published") ++published[row.implementation];
  }
  // Of GPUs they are no answers for any implementation, but kept.
  EXPECT_EQ(published, (std::map<std::string, int>{{"tpu_tile", 24}, {"pallas", 11}}));
  for (const auto& info : lce::implementations()) EXPECT_NE(info.name, "pallas");
}

std::vector<tuning::Row> rows_of(const std::vector<std::string>& lines) {
  const auto table = tuning::parse_table(TunedFile::table_of(lines), "t");
  EXPECT_TRUE(table.problems.empty()) << table.problems.front();
  return table.rows;
}

TEST(Lookup, TheFirstBucketThatHoldsTheShapeAnswersForTheDeviceOrItsClass) {
  const auto row = [](const char* device, const char* bucket, int n) {
    return TunedFile::row("toy", "i", device, "gpu-x", bucket, "n=" + std::to_string(n));
  };
  // In another order than the buckets have.
  const auto rows =
      rows_of({row("d", "", 1), row("d", "medium-layer-large-batch", 2), row("d", "small-vocab", 3),
               row("d", "small-vocab", 4), row("", "small-vocab", 5)});
  tuning::Key key{.operation = "toy",
                  .implementation = "i",
                  .device = "d",
                  .device_class = "gpu-x",
                  .extents = {512, 256, 4096}};
  const auto found = [&](bool by_class) {
    const auto* one = tuning::find(rows, key, by_class);
    return one == nullptr ? 0 : one->block_sizes[0].value;
  };
  EXPECT_EQ(found(false), 3);
  EXPECT_EQ(found(true), 5);
  key.extents = {512, 255, 4096};
  EXPECT_EQ(found(false), 1);
  EXPECT_EQ(found(true), 0);
  key.extents = {2048, 1024, 16384};
  EXPECT_EQ(found(false), 3);
  key.extents = {2049, 1024, 16384};
  EXPECT_EQ(found(false), 1);
  key.extents = {8192, 1024, 65537};
  EXPECT_EQ(found(false), 2);
  key.extents = {512, 256, 4096};
  key.device = "another";
  EXPECT_EQ(found(false), 0);
  EXPECT_EQ(found(true), 5);
  key.device_class = "gpu-y";
  EXPECT_EQ(found(true), 0);
}

TEST(Lookup, EveryCellOfTheKeyCountsAndAnEmptyOneMatchesAny) {
  const auto rows = rows_of({"toy,backward,i,d,,c,bf16,vh,below,grad_x,,n=1,,,,,,,,measured,"});
  const tuning::Key same{.operation = "toy",
                         .implementation = "i",
                         .device = "d",
                         .device_class = "c",
                         .pass = "backward",
                         .dtype = "bf16",
                         .layout = "vh",
                         .gradients = "grad_x",
                         .workspace = "below"};
  EXPECT_NE(tuning::find(rows, same, false), nullptr);
  EXPECT_NE(tuning::find(rows_of({"toy,,i,d,,,,,,,,n=1,,,,,,,,measured,"}), same, false), nullptr);
  for (std::string tuning::Key::*cell :
       {&tuning::Key::operation, &tuning::Key::implementation, &tuning::Key::device,
        &tuning::Key::device_class, &tuning::Key::pass, &tuning::Key::dtype, &tuning::Key::layout,
        &tuning::Key::gradients, &tuning::Key::workspace}) {
    auto other = same;
    other.*cell += "x";
    EXPECT_EQ(tuning::find(rows, other, false), nullptr) << other.*cell;
  }
}

TEST(ParseTable, NamesABadLineAndUsesTheRest) {
  const std::string good =
      TunedFile::row("toy", "i", "a \"\"d\"\", b", "c", "tiny", "n=1 m=2", "k=0");
  const auto cut = [&](std::size_t letters) { return good.substr(0, letters); };
  const std::pair<std::string, std::string> bad[] = {
      {cut(20), "cells; a row has 21"},
      {"toy,forwards,i,,,,,,,,,n=1,,,,,,,,measured,", "pass is \"forwards\"; it is one of nothing"},
      {"toy,,,,,,,,,,,n=1,,,,,,,,measured,", "implementation is empty"},
      {",,i,,,,,,,,,n=1,,,,,,,,measured,", "operator is empty"},
      {"toy,,i,,,,,,,,huge,n=1,,,,,,,,measured,", "bucket is \"huge\"; it is nothing (any shape)"},
      {"toy,,i,,,,,zz,,,,n=1,,,,,,,,measured,", "layout is \"zz\""},
      {"toy,,i,,,,,,some,,,n=1,,,,,,,,measured,", "workspace is \"some\""},
      {"toy,,i,,,,,,,,,n=0,,,,,,,,measured,", "a value from 1 to 2147483647"},
      {"toy,,i,,,,,,,,,n=2147483648,,,,,,,,measured,", "block_sizes has \"n=2147483648\""},
      {"toy,,i,,,,,,,,,n,,,,,,,,measured,", "block_sizes has \"n\"; give NAME=VALUE"},
      {"toy,,i,,,,,,,,,n=1 n=2,,,,,,,,measured,", "block_sizes has n twice"},
      {"toy,,i,,,,,,,,,,k=-1,,,,,,,measured,", "knobs has \"k=-1\""},
      {"toy,,i,,,,,,,,,n=1,,nan,,,,,,measured,", "median_seconds is \"nan\""},
      {"toy,,i,,,,,,,,,n=1,,,,,,,,guessed,", "provenance is \"guessed\"; it is one of measured"},
      {"toy,,i,\"d,,,,,,,,n=1,,,,,,,,measured,", "a quote is not closed"}};
  for (const auto& [line, what] : bad) {
    const auto table =
        tuning::parse_table(TunedFile::table_of({good, line, "", "# remark", good}), "my.csv");
    ASSERT_EQ(table.problems.size(), 1u) << line;
    expect_contains(table.problems[0], "my.csv:4: ");
    expect_contains(table.problems[0], what);
    ASSERT_EQ(table.rows.size(), 2u) << line;
    EXPECT_EQ(table.rows[1].where, "my.csv:7");
    EXPECT_EQ(table.rows[1].device, "a \"d\", b");
    EXPECT_EQ(table.rows[1].block_sizes, (std::vector<NamedValue>{{"n", 1}, {"m", 2}}));
    EXPECT_EQ(table.rows[1].knobs, (std::vector<NamedValue>{{"k", 0}}));
  }
}

TEST(ParseTable, AnotherFormatIsLeftAloneAndAnotherHeaderIsSkipped) {
  const std::string text = TunedFile::table_of({TunedFile::row("toy", "i", "d", "c", "", "n=1")});
  for (const std::string first : {"# tessera tuned blocks 2", "operator,pass", ""}) {
    const auto table = tuning::parse_table(first + text.substr(text.find('\n')), "my.csv");
    EXPECT_TRUE(table.rows.empty());
    ASSERT_EQ(table.problems.size(), 1u);
    expect_contains(table.problems[0], "my.csv:1: the first line is \"" + first + "\"");
    expect_contains(table.problems[0], "\"# tessera tuned blocks 1\"");
  }
  std::string other = text;
  other.replace(other.find("operator"), 8, "operand");
  const auto table = tuning::parse_table(other, "my.csv");
  EXPECT_EQ(table.rows.size(), 1u);
  ASSERT_EQ(table.problems.size(), 1u);
  expect_contains(table.problems[0], "my.csv:2: the header is not");
  // The end of a line on Windows, and none at the end of the file.
  std::string windows;
  for (const char letter : text) windows += letter == '\n' ? "\r\n" : std::string(1, letter);
  EXPECT_EQ(tuning::parse_table(windows, "my.csv").rows.size(), 1u);
  EXPECT_EQ(tuning::parse_table(text.substr(0, text.size() - 1), "my.csv").rows.size(), 1u);
  EXPECT_TRUE(tuning::parse_table("", "my.csv").problems.empty());
  // More than anybody reads.
  const auto many = tuning::parse_table(
      TunedFile::table_of(std::vector<std::string>(1000, "nonsense")), "my.csv");
  ASSERT_EQ(many.problems.size(), 21u);
  EXPECT_EQ(many.problems.back(), "my.csv: 980 lines more are skipped");
}

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
    file_.write_rows({TunedFile::row(op.name, "eigen", "", "", "tiny", cell)});
    const test::Question q{Pass::forward, DType::bf16, true, 9, 8, 100, op.name};
    const auto call = call_of(q, "eigen");
    const auto dispatch = operators::plan(context_, call).dispatch;
    EXPECT_EQ(dispatch.block_source, BlockSource::tuned_file);
    EXPECT_EQ(dispatch.block_sizes, blocks);
    expect_contains(dispatch.block_reason, ":3: any device, bucket tiny, measured");
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
  expect_contains(reload_tuned_blocks().at(0), "/dev/null: it cannot be read");
  setenv("TESSERA_TUNED_FILE", "/nonexistent/tuned.csv", 1);
  EXPECT_TRUE(reload_tuned_blocks().empty());
}

TEST(TunedBlocksFile, IsNamedByTheEnvironment) {
  const char* variables[] = {"TESSERA_TUNED_FILE", "XDG_CONFIG_HOME", "HOME"};
  std::vector<std::optional<std::string>> before;
  for (const char* name : variables) {
    const char* value = getenv(name);
    before.push_back(value == nullptr ? std::nullopt : std::optional<std::string>(value));
  }
  setenv("XDG_CONFIG_HOME", "/config", 1);
  setenv("HOME", "/home/me", 1);
  setenv("TESSERA_TUNED_FILE", "mine.csv", 1);
  EXPECT_EQ(tuned_blocks_file(), "mine.csv");
  setenv("TESSERA_TUNED_FILE", "", 1);
  EXPECT_EQ(tuned_blocks_file(), "");
  unsetenv("TESSERA_TUNED_FILE");
  EXPECT_EQ(tuned_blocks_file(), "/config/tessera/tuned.csv");
  setenv("XDG_CONFIG_HOME", "relative", 1);
  EXPECT_EQ(tuned_blocks_file(), "/home/me/.config/tessera/tuned.csv");
  unsetenv("HOME");
  EXPECT_EQ(tuned_blocks_file(), "");
  for (std::size_t i = 0; i < std::size(variables); ++i) {
    before[i] ? setenv(variables[i], before[i]->c_str(), 1) : unsetenv(variables[i]);
  }
}

}  // namespace
}  // namespace tessera::test
