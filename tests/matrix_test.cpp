// SPDX-License-Identifier: Apache-2.0
// Every problem of the table by every operator, on every implementation and family, by every pass,
// against the oracle; on devices, as many of them as pairs.hpp says.
#include "tests/support/matrix.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/support/pairs.hpp"

namespace tessera::test {
namespace {

/// What GoogleTest runs as one test: a group of cases on an implementation, or, where that is
/// `default_order`, on what serves users who name none.
struct Entry {
  const TestOperator* op;
  std::string implementation;
  bool on_device;  ///< of default_order: on a context with a device, where there is one
  Pass pass;
  std::string group;
};

void PrintTo(const Entry& entry, std::ostream* out) {
  *out << entry.op->name() << " " << entry.implementation << " " << to_string(entry.pass) << " "
       << entry.group;
}

std::string entry_name(const testing::TestParamInfo<Entry>& info) {
  const Entry& entry = info.param;
  const std::string on = entry.implementation != default_order ? entry.implementation
                         : entry.on_device                     ? "on_the_device"
                                                               : "without_one";
  return allowed_name(std::string(entry.op->name()) + "_" + on + "_" + to_string(entry.pass) + "_" +
                      entry.group);
}

constexpr Pass passes[] = {Pass::forward, Pass::backward, Pass::value_and_grad,
                           Pass::forward_partial};

/// Whether the entry's test runs the case.
bool is_for(const Entry& entry, const Case& c) {
  // The default order takes the kernels of opencl.cpu: no other calls, so that none is compiled.
  // Without a device it takes what runs every call under its own name.
  const std::string kernels =
      entry.implementation == default_order ? "opencl.cpu" : entry.implementation;
  return can_take(*entry.op, entry.implementation, entry.pass, c) &&
         is_in_pairs(*entry.op, kernels, entry.pass, c);
}

void add_entries(std::vector<Entry>& entries, const TestOperator* op,
                 const std::string& implementation, bool on_device) {
  for (const Pass pass : passes) {
    for (const std::string& group : group_names(*op)) {
      const Entry entry = {op, implementation, on_device, pass, group};
      const auto cases = cases_of(*op, group);
      const bool any = std::any_of(cases.begin(), cases.end(), [&](const Case& c) {
        return is_for(entry, taken_by(implementation, c));
      });
      if (any) entries.push_back(entry);
    }
  }
}

std::vector<Entry> of_implementations() {
  std::vector<Entry> entries;
  for (const TestOperator* op : test_operators()) {
    for (const auto& name : implementations_of(*op)) add_entries(entries, op, name, false);
  }
  return entries;
}

/// On a context with a device, where the operator has any use for it, and on one without; neither
/// where the environment names implementations.
std::vector<Entry> by_default() {
  std::vector<Entry> entries;
  if (std::getenv("TESSERA_TEST_IMPLEMENTATIONS") != nullptr) return entries;
  for (const TestOperator* op : test_operators()) {
    if (runs_on_opencl(*op)) add_entries(entries, op, default_order, true);
    add_entries(entries, op, default_order, false);
  }
  return entries;
}

/// Runs a group, or its cases whose names contain one of the comma-separated TESSERA_TEST_CASES; at
/// least one of them must have run.
void run_group(Context& context, const Entry& entry) {
  if (const auto reason = entry.op->why_absent(context, entry.implementation)) {
    GTEST_SKIP() << *reason;
  }
  int served = 0;
  int wanted = 0, promised = 0;
  for (const Case& row : cases_of(*entry.op, entry.group)) {
    const Case c = taken_by(entry.implementation, row);
    if (!is_wanted(c.name)) continue;
    ++wanted;
    if (!is_for(entry, c)) continue;
    const bool is_promised =
        !is_matrix_unit(entry.implementation) || serves(entry.implementation, entry.pass, c);
    promised += is_promised ? 1 : 0;
    served += run_case(context, entry.implementation, entry.pass, c) ? 1 : 0;
  }
  if (wanted == 0) GTEST_SKIP() << "the environment wants no case of the group";
  if (promised == 0) GTEST_SKIP() << "none of its cases multiplies what matrix units do alone";
  if (served == 0 && !wants_all()) GTEST_SKIP() << "none of those that the environment wants";
  EXPECT_GT(served, 0) << entry.implementation << " refused every case of the group";
}

class Matrix : public testing::TestWithParam<Entry> {};

TEST_P(Matrix, AgreesWithTheOracle) { run_group(shared_context(), GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, Matrix, testing::ValuesIn(of_implementations()), entry_name);

/// The default order, as users get it who name nothing.
class MatrixByDefault : public testing::TestWithParam<Entry> {};

TEST_P(MatrixByDefault, AgreesWithTheOracle) {
  if (!GetParam().on_device) {
    Context host({.host_only = true, .warning_handler = [](const std::string&) {}});
    return run_group(host, GetParam());
  }
  if (!shared_context().has_device()) GTEST_SKIP() << "no device";
  run_group(shared_context(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, MatrixByDefault, testing::ValuesIn(by_default()), entry_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MatrixByDefault);

class MatrixOfOperator : public testing::TestWithParam<const TestOperator*> {};

TEST_P(MatrixOfOperator, HasImplementations) {
  EXPECT_FALSE(GetParam()->implementations().empty());
}

INSTANTIATE_TEST_SUITE_P(All, MatrixOfOperator, testing::ValuesIn(test_operators()),
                         [](const auto& i) { return std::string(i.param->name()); });

// A list of implementations that no operator has is a mistake in the environment, not a pass. An
// operator may lack all of them: not every one runs on every engine.
TEST(MatrixOfEnvironment, NamesImplementations) {
  const auto operators = test_operators();
  EXPECT_TRUE(std::any_of(operators.begin(), operators.end(), [](const TestOperator* op) {
    return !implementations_of(*op).empty();
  })) << "TESSERA_TEST_IMPLEMENTATIONS names none";
}

}  // namespace
}  // namespace tessera::test
