// SPDX-License-Identifier: Apache-2.0
#include "tests/support/runner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>

#include "host/dispatch/knobs.hpp"
#include "tests/support/operator_calls.hpp"

#ifdef TESSERA_OPENCL
#include "host/opencl/runtime.hpp"
#endif

namespace tessera::test {
namespace {

/// The comma-separated parts of an environment variable; none when it is not set.
std::vector<std::string> listed_in(const char* variable) {
  std::vector<std::string> parts;
  if (const char* text = std::getenv(variable)) {
    std::stringstream stream(text);
    for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  }
  return parts;
}

template <class T>
std::vector<T> converted(const std::vector<double>& from) {
  return std::vector<T>(from.begin(), from.end());
}

/// Rows of the default order that need a device; none without OpenCL.
std::size_t device_families(const TestOperator& op) {
  std::size_t count = 0;
  for (const auto& row : op.implementations()) count += row.name.starts_with("opencl.") ? 1 : 0;
  return count;
}

}  // namespace

bool runs_on_opencl(const TestOperator& op) { return device_families(op) > 0; }

std::vector<std::string> implementations_of(const TestOperator& op) {
  return wanted_of(op.implementations());
}

std::vector<std::string> wanted_of(const std::vector<ImplementationInfo>& all) {
  const auto wanted = listed_in("TESSERA_TEST_IMPLEMENTATIONS");
  std::vector<std::string> names;
  for (const auto& info : all) {
    // Here mma's arithmetic alone runs (tests/mma.cmake), and nothing of wgmma.
    bool take = wanted.empty() && !is_matrix_unit(info.name);
    for (const auto& name : wanted) {
      take = take || info.name == name || info.name.starts_with(name + ".");
    }
    if (take) names.push_back(info.name);
  }
  return names;
}

WholeInputs::WholeInputs(const oracle::Problem& p, const Dims& leading)
    : weight_(converted<float>(p.weight)),
      class_weight_(converted<float>(p.class_weight)),
      probs_(converted<float>(p.target_probs)),
      targets_(converted<float>(p.targets)) {
  const auto with = [&](std::int64_t columns) {
    Dims extents = leading;
    extents.push_back(columns);
    return extents;
  };
  const bool soft = p.k > 0 || !targets_.empty();
  if (!soft && (p.b == 0 || !p.labels.empty())) {
    inputs_.labels = View::host(p.labels.data(), leading);
  }
  if (p.k > 0) {
    inputs_.target_indices = View::host(p.target_indices.data(), with(p.k));
    inputs_.target_probs = View::host(probs_.data(), with(p.k));
  }
  if (!targets_.empty()) inputs_.targets = View::host(targets_.data(), with(p.v_total()));
  if (!weight_.empty()) inputs_.weight = View::host(weight_.data(), leading);
  if (!class_weight_.empty()) {
    inputs_.class_weight = View::host(class_weight_.data(), {p.v_total()});
  }
}

namespace {
/// By operator and name.
struct ExpectedOfAll {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Expected>> entries;
};
ExpectedOfAll& expected_of_all() {
  static ExpectedOfAll all;
  return all;
}
std::string key_of(const Case& c) { return c.op->name() + ("/" + c.name); }
}  // namespace

const Expected& expected_of(const Case& c) {
  auto& all = expected_of_all();
  const std::lock_guard lock(all.mutex);
  auto& entry = all.entries[key_of(c)];
  if (!entry) {
    entry = std::make_unique<Expected>();
    entry->problem = make_problem(c);
    entry->values = c.op->forward_by_oracle(entry->problem);
    if (!c.values_only) entry->gradients = c.op->backward_by_oracle(entry->problem);
    entry->tolerance = c.op->tolerance_of(entry->problem, entry->values);
  }
  return *entry;
}

void forget(const Case& c) {
  auto& all = expected_of_all();
  const std::lock_guard lock(all.mutex);
  all.entries.erase(key_of(c));
}

namespace {
std::optional<Context> context_of_all;

/// TESSERA_TEST_BF16_PAIRS=1: the device multiplies bf16 by pairs, with an emulated instruction.
bool multiplies_pairs() {
  const char* text = std::getenv("TESSERA_TEST_BF16_PAIRS");
  return text != nullptr && std::string(text) == "1";
}
}  // namespace

Context& shared_context() {
  if (!context_of_all) {
    context_of_all.emplace(ContextOptions{.warning_handler = [](const std::string&) {}});
#ifdef TESSERA_OPENCL
    auto* runtime = opencl::runtime_of(context_of_all->state());
    if (runtime != nullptr && multiplies_pairs()) {
      runtime->facts_for_test().bf16_products = opencl::Bf16Products::emulated;
    }
#endif
  }
  return *context_of_all;
}

void close_shared_context() { context_of_all.reset(); }

namespace {

const std::vector<std::string>& wanted_parts() {
  static const auto of_environment = listed_in("TESSERA_TEST_CASES");
  return of_environment;
}

}  // namespace

bool is_wanted(const std::string& case_name) {
  const auto& parts = wanted_parts();
  return parts.empty() || std::any_of(parts.begin(), parts.end(), [&](const auto& part) {
           return case_name.find(part) != std::string::npos;
         });
}

bool wants_all() { return wanted_parts().empty(); }

bool tiny() {
  const char* text = std::getenv("TESSERA_TEST_TINY");
  return text != nullptr && std::string(text) == "1";
}

namespace {

/// Lines of w, as kernels get it, begin at multiples of 16 bytes, in a case as taken_by makes it.
/// Host memory is staged without gaps, device memory begins behind canaries.
bool has_lines_of_16_bytes(const Case& c) {
  const bool is_vh = c.w_layout == WLayout::vh || c.w_layout == WLayout::vh_padded;
  const bool is_line = is_vh ? c.v > 1 : c.h > 1;
  return c.w_layout != WLayout::strided && c.place == Place::host && c.h > 0 && is_line;
}

}  // namespace

Case taken_by(const std::string& implementation, Case c) {
  if (implementation == hoppers_unit) {
    const bool is_vh = c.w_layout == WLayout::vh || c.w_layout == WLayout::vh_padded;
    auto& line = is_vh ? c.h : c.v;
    line = (line + 7) / 8 * 8;
    c.name += "_lines_of_" + std::to_string(line);
  }
  // Among others: of grad_bias alone nothing would be left.
  const bool sums_bias =
      c.bias && (c.gradients & grad_bias_bit) != 0 && c.gradients != grad_bias_bit;
  // PoCL 3.1 crashes where the emulated unit has more work-items than columns: as few cases there
  // as there were. (Intel's runtime runs all of them rightly.)
  if (!is_matrix_unit(implementation) || !sums_bias || multiplies_pairs()) return c;
  if (c.gradients == grad_bias_bit) return c;  // none would be left
  c.gradients &= ~grad_bias_bit;
  c.accumulate = unsigned{c.accumulate} & ~unsigned{grad_bias_bit};
  c.name += "_but_grad_bias";
  return c;
}

bool serves(const std::string& implementation, Pass pass, const Case& c) {
  if (implementation == matrix_units) {
    const bool is_bf16 = c.op->multiplies_alone(c, DType::bf16);
    if (!has_gradients(pass)) return is_bf16 || c.op->multiplies_alone(c, DType::f16);
    const bool sums_bias = c.bias && (c.gradients & grad_bias_bit) != 0;
    return (is_bf16 || c.op->keeps_dz_in_f16(c)) && c.dz_dtype != DType::f32 && !sums_bias;
  }
  if (implementation == hoppers_unit) {
    return serves(matrix_units, pass, c) && c.op->multiplies_alone(c, DType::bf16) &&
           has_lines_of_16_bytes(c) && (c.gradient_filter_eps == 0.0f || !has_gradients(pass));
  }
  return implementation != "tpu_tile" || c.targets == Targets::labels;
}

DType dz_type(const std::string& implementation, const Case& c) {
  if (!implementation.starts_with("opencl") || c.dz_dtype == DType::f32) return DType::f32;
  if (c.op->multiplies(c, DType::bf16)) return DType::bf16;
  return implementation == matrix_units && c.op->keeps_dz_in_f16(c) ? DType::f16 : DType::f32;
}

bool run_case(const std::string& implementation, Pass pass, const Case& c) {
  return run_case(shared_context(), implementation, pass, c);
}

std::string run_broken_case(const std::string& implementation, Pass pass, const Case& c,
                            std::uint64_t how) {
  Context& context = shared_context();
  const Expected& e = expected_of(c);
  Arguments arguments(context, c, e.problem);
  if (pass == Pass::backward) arguments.add_statistics(context, e.values);
  Results results(context, c, e, pass, implementation);
  std::string broken;
  try {
    c.op->run_broken({context, implementation, pass, c, arguments, results}, how, broken);
    ADD_FAILURE() << broken << ": nothing was refused";
  } catch (const Error& error) {
    EXPECT_GT(std::string(error.what()).size(), 20u) << broken << ": " << error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << broken << ": no Error, but " << error.what();
  }
  results.check_untouched(arguments);
  return broken;
}

Plan plan_case(Context& context, const std::string& implementation, Pass pass, const Case& c) {
  const Expected& e = expected_of(c);
  Arguments arguments(context, c, e.problem);
  if (pass == Pass::backward) arguments.add_statistics(context, e.values);
  Results results(context, c, e, pass, implementation);
  return c.op->planned({context, implementation, pass, c, arguments, results});
}

namespace {

void check_default_order(const Case& c, const std::string& implementation,
                         const Dispatch& dispatch) {
  // A device that is no CPU refuses one family before another runs.
  EXPECT_TRUE(dispatch.implementation.starts_with(implementation)) << dispatch.implementation;
  EXPECT_EQ(dispatch.refused.empty(), dispatch.warnings.empty());
  if (implementation == "eigen") {
    EXPECT_EQ(dispatch.refused.size(), device_families(*c.op)) << "each says why not";
  }
}

/// Blocks that are illegal for one implementation may be legal for another; the textbook holds
/// everything, whatever the budget, and tiles of matrix units are larger than small budgets.
bool may_be_refused(const Case& c, const std::string& implementation, const Error& error) {
  return (c.block_sizes && error.code() == ErrorCode::invalid_argument) ||
         (c.workspace_bytes && (implementation == "reference" || is_matrix_unit(implementation)) &&
          error.code() == ErrorCode::workspace_too_small);
}

}  // namespace

bool run_case(Context& context, const std::string& named, Pass pass, const Case& c) {
  const bool by_default = named == default_order;
  const std::string implementation = !by_default                                         ? named
                                     : context.has_device() && serves("opencl", pass, c) ? "opencl"
                                                                                         : "eigen";
  const std::string what =
      std::string(c.op->name()) + ", case " + c.name + ", " + to_string(pass) + ", ";
  SCOPED_TRACE(what + named + " on " + implementation);
  Summary::instance().set_case(what + implementation);
  if (c.place != Place::host && !context.has_device()) return true;
  if (has_gradients(pass) && c.values_only) return true;
  const Expected& e = expected_of(c);
  Arguments arguments(context, c, e.problem);
  if (pass == Pass::backward) arguments.add_statistics(context, e.values);
  Results results(context, c, e, pass, implementation);
  const CaseCall call{context, named, pass, c, arguments, results};
  try {
    const auto refusal = by_default ? std::nullopt : c.op->why_refused(call);
    if (refusal) {
      Summary::instance().add_case(results.key(), true);
      if (serves(implementation, pass, c)) ADD_FAILURE() << "refused: " << *refusal;
      return false;
    }
    const Dispatch dispatch = c.op->run(call);
    if (by_default) {
      check_default_order(c, implementation, dispatch);
    } else {
      EXPECT_EQ(dispatch.implementation, implementation);
      EXPECT_TRUE(dispatch.refused.empty());
    }
    const bool by_pairs =
        multiplies_pairs() && implementation == "opencl.cpu" && c.op->multiplies(c, DType::bf16);
    if (by_pairs && &context == &shared_context() && c.h > 0) {
      EXPECT_TRUE(dispatch::value_of(dispatch.knobs, "dot_bf16"));
    }
  } catch (const Error& error) {
    if (may_be_refused(c, implementation, error)) {
      Summary::instance().add_case(results.key(), true);
      return false;
    }
    ADD_FAILURE() << to_string(error.code()) << ": " << error.what() << "\n" << error.build_log();
    return true;
  }
  Summary::instance().add_case(results.key(), false);
  results.check(arguments);
  return true;
}

}  // namespace tessera::test
