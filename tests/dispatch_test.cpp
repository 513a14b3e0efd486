// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "host/dispatch/table.hpp"

/// The generic table, on an operator that does nothing.
namespace tessera::dispatch {
namespace {

struct Toy final : Request {
  explicit Toy(std::vector<std::string> list = {}, std::vector<NamedValue> given = {})
      : names(std::move(list)), given_knobs(std::move(given)) {}
  std::string operation() const override { return "toy.forward"; }
  const std::vector<std::string>& implementation_names() const override { return names; }
  const std::vector<NamedValue>& knobs() const override { return given_knobs; }
  std::string output_names() const override { return "loss, grad_w"; }

  std::vector<std::string> names;
  std::vector<NamedValue> given_knobs;
};

enum class Does { runs, refuses, fails, fails_late, bad_alloc, bad_label, invalid };

class Row final : public Implementation {
 public:
  Row(const std::string& name, Does does, bool by_default, ErrorCode code)
      : Implementation({name, "", by_default}), does_(does), code_(code) {}

  std::optional<std::string> why_unsupported(ContextState&, const Request&) const override {
    if (does_ == Does::refuses) return "reason of " + name();
    return std::nullopt;
  }
  std::unique_ptr<Completion::State> run(const std::shared_ptr<ContextState>&, const Request&,
                                         Attempt& attempt) const override {
    if (does_ == Does::fails) throw Error(code_, name() + " broke", "the log");
    if (does_ == Does::bad_alloc) throw std::bad_alloc();
    if (does_ == Does::invalid) throw Error(ErrorCode::invalid_argument, "illegal blocks");
    attempt.outputs_touched = true;
    if (does_ == Does::bad_label) throw Error(ErrorCode::label_out_of_range, "row 3");
    if (does_ == Does::fails_late) throw Error(code_, name() + " broke late", "the log");
    return std::make_unique<Completion::State>();
  }
  Plan plan(ContextState&, const Request&) const override {
    if (does_ == Does::fails) throw Error(code_, name() + " broke");
    Plan plan;
    plan.workspace_bytes = 5;
    return plan;
  }
  std::pair<std::vector<NamedValue>, BlockSource> infer(ContextState&,
                                                        const Request&) const override {
    return {};
  }
  CostEstimate cost(ContextState&, const Request&) const override { return {}; }

 private:
  Does does_;
  ErrorCode code_;
};

std::unique_ptr<const Implementation> row(const std::string& name, Does does,
                                          bool by_default = true,
                                          ErrorCode code = ErrorCode::build_failed) {
  return std::make_unique<Row>(name, does, by_default, code);
}

template <class... Rows>
Table table_of(Rows... rows) {
  Table table;
  (table.push_back(std::move(rows)), ...);
  return table;
}

class DispatchTest : public testing::Test {
 protected:
  Dispatch run(const Table& table, std::vector<std::string> names = {}) {
    return dispatch::run(table, state_, Toy{std::move(names)})->dispatch;
  }
  Error error(const Table& table, std::vector<std::string> names = {}) {
    try {
      run(table, std::move(names));
    } catch (const Error& e) {
      return e;
    }
    ADD_FAILURE() << "no error";
    return Error(ErrorCode::unsupported, "");
  }

  std::vector<std::string> heard_;
  std::shared_ptr<ContextState> state_ = std::make_shared<ContextState>(
      ContextOptions{.warning_handler = [this](const std::string& m) { heard_.push_back(m); }},
      nullptr);
};

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" in \"" << text << "\"";
}

TEST(SelectRows, NamesGroupsOrderAndDuplicates) {
  const Table rows = table_of(row("opencl.mma", Does::runs), row("opencl.cpu", Does::runs),
                              row("eigen", Does::runs), row("reference", Does::runs, false));
  const auto selected = [&](const std::vector<std::string>& names) {
    std::string list;
    for (const auto* each : select_rows(rows, names)) list += each->name() + " ";
    return list;
  };
  EXPECT_EQ(selected({}), "opencl.mma opencl.cpu eigen ");
  EXPECT_EQ(selected({"opencl"}), "opencl.mma opencl.cpu ");
  EXPECT_EQ(selected({"opencl.cpu"}), "opencl.cpu ");
  EXPECT_EQ(selected({"reference", "eigen"}), "reference eigen ");
  EXPECT_EQ(selected({"opencl.cpu", "opencl", "eigen", "eigen"}), "opencl.cpu opencl.mma eigen ");
}

TEST(SelectRows, AnUnknownNameAnywhereIsAnErrorThatListsTheKnown) {
  const Table rows = table_of(row("opencl.cpu", Does::runs), row("eigen", Does::runs));
  for (const std::string bad : {"cuda", "open", "opencl.", "opencl.cp", "eigen.x", "", "Eigen"}) {
    try {
      select_rows(rows, {"eigen", bad});
      ADD_FAILURE() << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      expect_contains(e.what(), "\"" + bad + "\"");
      expect_contains(e.what(), "opencl, opencl.cpu, eigen");
    }
  }
}

TEST_F(DispatchTest, TakesTheFirstThatServes) {
  const auto d = run(table_of(row("a", Does::runs), row("b", Does::runs)));
  EXPECT_EQ(d.implementation, "a");
  EXPECT_TRUE(d.refused.empty());
  EXPECT_TRUE(heard_.empty());
}

TEST_F(DispatchTest, EachRefusalIsAWarningWithItsReason) {
  const auto d =
      run(table_of(row("a", Does::refuses), row("b", Does::refuses), row("c", Does::runs)));
  EXPECT_EQ(d.implementation, "c");
  ASSERT_EQ(d.refused.size(), 2u);
  EXPECT_EQ(d.refused[0].implementation, "a");
  EXPECT_EQ(d.refused[1].reason, "reason of b");
  ASSERT_EQ(heard_.size(), 2u);
  EXPECT_EQ(heard_[0], "tessera: a refused toy.forward: reason of a; trying b");
  EXPECT_EQ(d.warnings, heard_);
}

TEST_F(DispatchTest, WhichOfAFamilyRunsIsNoWarningUnlessOneWasNamedOrFailed) {
  const Table table = table_of(row("f.a", Does::refuses), row("f.b", Does::runs));
  for (const auto& names : {std::vector<std::string>{}, {"f"}, {"f.b", "f"}}) {
    const auto d = run(table, names);
    EXPECT_EQ(d.implementation, "f.b");
    EXPECT_EQ(d.refused.size(), names.size() < 2 ? 1u : 0u);
    EXPECT_TRUE(heard_.empty());
  }
  run(table, {"f.a", "f"});
  EXPECT_EQ(heard_.size(), 1u);
  // The last of the family falls back to another one.
  run(table_of(row("f.a", Does::refuses), row("f.c", Does::refuses), row("g", Does::runs)));
  ASSERT_EQ(heard_.size(), 2u);
  expect_contains(heard_[1], "f.c refused toy.forward: reason of f.c; trying g");
  run(table_of(row("f.a", Does::fails), row("f.b", Does::runs)));
  EXPECT_EQ(heard_.size(), 3u);
}

TEST_F(DispatchTest, WarnsOncePerDistinctMessageButReportsEveryTime) {
  const Table table = table_of(row("a", Does::refuses), row("b", Does::runs));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(table).warnings.size(), 1u);
  EXPECT_EQ(heard_.size(), 1u);
}

TEST_F(DispatchTest, OutsideTheDefaultOrderRunsOnlyWhenNamed) {
  const Table table = table_of(row("a", Does::refuses), row("r", Does::runs, false));
  EXPECT_EQ(error(table).code(), ErrorCode::unsupported);
  EXPECT_EQ(run(table, {"r"}).implementation, "r");
}

TEST_F(DispatchTest, OneNameThatRefusesIsAnErrorWithoutWarning) {
  const auto e = error(table_of(row("a", Does::refuses), row("b", Does::runs)), {"a"});
  EXPECT_EQ(e.code(), ErrorCode::unsupported);
  expect_contains(e.what(), "a cannot run it: reason of a");
  EXPECT_TRUE(heard_.empty());
}

TEST_F(DispatchTest, FamiliesOfOneNameFallBackAmongThemselvesOnly) {
  const Table table =
      table_of(row("o.x", Does::refuses), row("o.y", Does::runs), row("e", Does::runs));
  EXPECT_EQ(run(table, {"o"}).implementation, "o.y");
  const Table none =
      table_of(row("o.x", Does::refuses), row("o.y", Does::refuses), row("e", Does::runs));
  const auto e = error(none, {"o"});
  expect_contains(e.what(), "o.x: reason of o.x");
  expect_contains(e.what(), "o.y: reason of o.y");
}

TEST_F(DispatchTest, AllRefusedHoldsEveryReason) {
  const auto e =
      error(table_of(row("a", Does::refuses), row("b", Does::fails), row("c", Does::refuses)));
  EXPECT_EQ(e.code(), ErrorCode::unsupported);
  for (const char* part : {"toy.forward", "a: reason of a", "b: b broke", "c: reason of c"}) {
    expect_contains(e.what(), part);
  }
  EXPECT_EQ(heard_.size(), 2u);  // the last refusal is the error
}

TEST_F(DispatchTest, FallsBackOnRunTimeFailureBeforeOutputsAreTouched) {
  for (auto code : {ErrorCode::build_failed, ErrorCode::out_of_memory, ErrorCode::execution_failed,
                    ErrorCode::unsupported}) {
    const auto d = run(table_of(row("a", Does::fails, true, code), row("b", Does::runs)));
    EXPECT_EQ(d.implementation, "b");
    ASSERT_EQ(d.refused.size(), 1u);
    expect_contains(d.refused[0].reason, "a broke");
  }
  EXPECT_EQ(run(table_of(row("a", Does::bad_alloc), row("b", Does::runs))).implementation, "b");
}

TEST_F(DispatchTest, TheCallersMistakesDoNotFallBack) {
  for (auto code : {ErrorCode::invalid_argument, ErrorCode::foreign_context,
                    ErrorCode::label_out_of_range, ErrorCode::workspace_too_small}) {
    EXPECT_EQ(error(table_of(row("a", Does::fails, true, code), row("b", Does::runs))).code(),
              code);
  }
  EXPECT_TRUE(heard_.empty());
}

TEST_F(DispatchTest, PinnedFailuresKeepTheirCodeAndLog) {
  const auto e = error(table_of(row("a", Does::fails), row("b", Does::runs)), {"a"});
  EXPECT_EQ(e.code(), ErrorCode::build_failed);
  EXPECT_EQ(e.build_log(), "the log");
  EXPECT_EQ(error(table_of(row("a", Does::bad_alloc)), {"a"}).code(), ErrorCode::out_of_memory);
}

TEST_F(DispatchTest, AfterOutputsWereTouchedNothingElseRuns) {
  const auto e = error(table_of(row("a", Does::fails_late), row("b", Does::runs)));
  EXPECT_EQ(e.code(), ErrorCode::execution_failed);
  for (const char* part : {"a failed", "loss, grad_w", "a broke late", "stays usable"}) {
    expect_contains(e.what(), part);
  }
  EXPECT_EQ(e.build_log(), "the log");
  EXPECT_TRUE(heard_.empty());
}

TEST_F(DispatchTest, ABadDeviceLabelKeepsItsCode) {
  EXPECT_EQ(error(table_of(row("a", Does::bad_label), row("b", Does::runs))).code(),
            ErrorCode::label_out_of_range);
}

TEST_F(DispatchTest, AHandlerMayThrowOrCallBack) {
  bool called = false;
  auto state = state_;
  auto noisy =
      std::make_shared<ContextState>(ContextOptions{.warning_handler =
                                                        [&](const std::string&) {
                                                          called = true;
                                                          state->warnings.warn("from within");
                                                          throw std::runtime_error("handler");
                                                        }},
                                     nullptr);
  EXPECT_NO_THROW(
      dispatch::run(table_of(row("a", Does::refuses), row("b", Does::runs)), noisy, Toy{}));
  EXPECT_TRUE(called);
}

TEST_F(DispatchTest, PlanFollowsTheOrderWithoutWarning) {
  const Table table =
      table_of(row("a", Does::refuses), row("b", Does::fails), row("c", Does::runs));
  const auto p = dispatch::plan(table, *state_, Toy{});
  EXPECT_EQ(p.dispatch.implementation, "c");
  EXPECT_EQ(p.dispatch.refused.size(), 2u);
  EXPECT_TRUE(heard_.empty());
  EXPECT_THROW(dispatch::plan(table, *state_, Toy{{"a"}}), Error);
  EXPECT_THROW(dispatch::plan(table, *state_, Toy{{"b"}}), Error);
}

TEST_F(DispatchTest, WhyUnsupportedSpeaksForAGroup) {
  const Table table = table_of(row("o.x", Does::refuses), row("o.y", Does::runs),
                               row("p.x", Does::refuses), row("p.y", Does::refuses));
  EXPECT_FALSE(dispatch::why_unsupported(table, *state_, Toy{}, "o"));
  EXPECT_EQ(dispatch::why_unsupported(table, *state_, Toy{}, "o.x"), "reason of o.x");
  EXPECT_EQ(dispatch::why_unsupported(table, *state_, Toy{}, "p"),
            "p.x: reason of p.x; p.y: reason of p.y");
  EXPECT_THROW(dispatch::why_unsupported(table, *state_, Toy{}, "q"), Error);
}

TEST_F(DispatchTest, ALeftOutRowRefusesWithItsReason) {
  const Table table = table_of(left_out("o", "not built"), row("b", Does::runs));
  EXPECT_EQ(run(table).implementation, "b");
  EXPECT_TRUE(heard_.empty());
  EXPECT_EQ(run(table, {"o", "b"}).refused.at(0).reason, "not built");
  expect_contains(error(table, {"o"}).what(), "not built");
  EXPECT_EQ(list(table).size(), 1u);
}

/// A state that fails when waited for.
struct Failing : Completion::State {
  void wait_once() override { throw Error(ErrorCode::execution_failed, "lost the device"); }
};

TEST_F(DispatchTest, CompletionThrowsAgainOnASecondWait) {
  Completion completion(std::make_unique<Failing>());
  EXPECT_THROW(completion.wait(), Error);
  EXPECT_THROW(completion.wait(), Error);
}

TEST_F(DispatchTest, ADroppedCompletionHandsItsErrorToTheHandler) {
  const auto make = [&] {
    auto failing = std::make_unique<Failing>();
    failing->context = state_;
    failing->dispatch.implementation = "a";
    return Completion(std::move(failing));
  };
  { auto dropped = make(); }
  ASSERT_EQ(heard_.size(), 1u);
  expect_contains(heard_[0], "lost the device");
  {
    auto seen = make();
    EXPECT_THROW(seen.wait(), Error);
  }
  {
    auto moved = make();
    moved = Completion();  // dropped by assignment; the same message is not said twice
  }
  EXPECT_EQ(heard_.size(), 1u);
  EXPECT_NO_THROW(Completion().wait());
  EXPECT_EQ(Completion().event(), nullptr);
  EXPECT_TRUE(Completion().dispatch().implementation.empty());
}

TEST(Reports, OneLine) {
  Dispatch d;
  d.implementation = "opencl.cpu";
  d.device = "a device";
  d.schedule = "chunks";
  d.block_sizes = {{"b_block_size", 8}, {"v_block_size", 16}};
  d.knobs = {{"slices", 2}};
  d.block_source = BlockSource::heuristic;
  EXPECT_EQ(to_string(d),
            "opencl.cpu on a device, schedule chunks, blocks b_block_size=8 v_block_size=16 "
            "(heuristic), knobs slices=2");
  d.block_reason = "a row";
  EXPECT_NE(to_string(d).find("v_block_size=16 (heuristic: a row), knobs"), std::string::npos);
}

}  // namespace
}  // namespace tessera::dispatch
