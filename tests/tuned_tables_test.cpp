// SPDX-License-Identifier: Apache-2.0
// Tables of tuned blocks: which lines are read, and which row answers.
#include <gtest/gtest.h>

#include "host/operators/call.hpp"
#include "tessera/tessera.hpp"
#include "tests/support/tuned_file.hpp"
#include "tuning/lookup/lookup.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

/// H and V of published models (bench/shapes/models.txt).
constexpr std::pair<std::int64_t, std::int64_t> models[] = {
    {768, 50257},   {2304, 256000}, {3584, 256000}, {2560, 262144}, {4096, 128256},
    {4096, 151936}, {7168, 129280}, {2880, 201088}, {384, 30522}};

ProblemExtents layer(std::int64_t b, std::int64_t h, std::int64_t v) {
  return {{'B', b}, {'H', h}, {'V', v}};
}

TEST(Buckets, HoldEveryModelAtEveryNumberOfTokens) {
  for (const auto& [h, v] : models) {
    for (std::int64_t b = 1; b <= 131072; ++b) {
      const auto& all = tuning::buckets();
      const auto held = std::find_if(all.begin(), all.end(), [&, h = h, v = v](const auto& each) {
        return each.name != "gb10-fallback" && each.holds(layer(b, h, v));
      });
      ASSERT_NE(held, all.end()) << b << " " << h << " " << v;
    }
  }
  // What an operator does not have is within every range; no token at all is in none.
  EXPECT_TRUE(tuning::buckets()[0].holds({{'B', 16}, {'V', 100}}));
  EXPECT_FALSE(tuning::buckets()[0].holds({{'B', 16}, {'V', 8193}}));
  EXPECT_FALSE(tuning::buckets()[0].holds(layer(0, 8, 8)));
}

TEST(Buckets, AreOfOperatorsWithTheirLetters) {
  const auto names_of = [](const ProblemExtents& extents) {
    std::string names;
    for (const auto& bucket : tuning::buckets()) {
      if (bucket.holds(extents)) names += bucket.name + " ";
    }
    return names;
  };
  const auto heads = [](std::int64_t s, std::int64_t d) {
    return ProblemExtents{{'B', 1}, {'Q', 8}, {'S', s}, {'D', d}, {'K', 8}, {'T', s}, {'E', d}};
  };
  EXPECT_EQ(names_of(heads(1, 512)), "few-queries ");
  EXPECT_EQ(names_of(heads(16, 1)), "few-queries ");
  EXPECT_EQ(names_of(heads(17, 96)), "short-small-head ");
  EXPECT_EQ(names_of(heads(1023, 97)), "short-large-head ");
  EXPECT_EQ(names_of(heads(1024, 64)), "long-small-head ");
  EXPECT_EQ(names_of(heads(1 << 20, 128)), "long-large-head ");
  EXPECT_EQ(names_of({{'B', 1}, {'H', 64}}), "tiny few-tokens gb10-fallback ");
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

TEST(MeasuredRows, NameWhatThereIsAndAnswerForTheirBuckets) {
  const auto table = measured_rows();
  EXPECT_TRUE(table.problems.empty()) << table.problems.front();
  EXPECT_FALSE(table.rows.empty());
  for (const auto& row : table.rows) {
    SCOPED_TRACE(row.where);
    EXPECT_EQ(row.provenance, "measured");
    EXPECT_FALSE(row.device.empty());
#ifdef TESSERA_OPENCL  // without it the library does not list all that the rows name
    const auto all = operators::description(row.operation).implementations();
    EXPECT_TRUE(std::any_of(all.begin(), all.end(),
                            [&](const auto& info) { return info.name == row.implementation; }));
#endif
    const tuning::Key key{.operation = row.operation,
                          .implementation = row.implementation,
                          .device = row.device,
                          .device_class = row.device_class,
                          .pass = row.pass,
                          .dtype = row.dtype,
                          .layout = row.layout,
                          .gradients = row.gradients,
                          .workspace = row.workspace,
                          .extents = shape_of(row)};
    EXPECT_EQ(tuning::find(table.rows, key, false), &row);
  }
  // The suite runs what a device without rows runs.
  for (const auto& row : tuning::builtin_table().rows) EXPECT_NE(row.provenance, "measured");
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
                  .extents = layer(512, 256, 4096)};
  const auto found = [&](bool by_class) {
    const auto* one = tuning::find(rows, key, by_class);
    return one == nullptr ? 0 : one->block_sizes[0].value;
  };
  EXPECT_EQ(found(false), 3);
  EXPECT_EQ(found(true), 5);
  key.extents = layer(512, 255, 4096);
  EXPECT_EQ(found(false), 1);
  EXPECT_EQ(found(true), 0);
  key.extents = layer(2048, 1024, 16384);
  EXPECT_EQ(found(false), 3);
  key.extents = layer(2049, 1024, 16384);
  EXPECT_EQ(found(false), 1);
  key.extents = layer(8192, 1025, 65537);
  EXPECT_EQ(found(false), 2);
  key.extents = layer(512, 256, 4096);
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
