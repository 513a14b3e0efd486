// SPDX-License-Identifier: Apache-2.0
#include "tests/support/runner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>

#include "tessera/softmax_cross_entropy.hpp"

#ifdef TESSERA_OPENCL
#include "host/opencl/runtime.hpp"
#endif

namespace tessera::test {
namespace lce = linear_cross_entropy;
namespace sce = softmax_cross_entropy;
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

std::vector<std::string> restricted(const std::vector<ImplementationInfo>& all) {
  const auto wanted = listed_in("TESSERA_TEST_IMPLEMENTATIONS");
  std::vector<std::string> names;
  for (const auto& info : all) {
    bool take = wanted.empty();
    for (const auto& name : wanted) {
      take = take || info.name == name || info.name.starts_with(name + ".");
    }
    if (take) names.push_back(info.name);
  }
  return names;
}

/// The implementations that this project promises for every request of the table.
bool serves_everything(const std::string& implementation) {
  return implementation.starts_with("opencl") || implementation == "eigen" ||
         implementation == "reference";
}

/// Copies owned results into the arguments that `check` reads.
void take(Argument& argument, const HostTensor& tensor) {
  if (!argument) return;
  if (!tensor) {
    ADD_FAILURE() << "an output that was asked for is missing from the owned result";
    return;
  }
  ASSERT_EQ(tensor.size(), argument.size());
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    if (tensor.dtype() == DType::i32) {
      argument.storage->set_integer(argument.at(i),
                                    tensor.as<std::int32_t>()[static_cast<std::size_t>(i)]);
    } else {
      argument.storage->set(argument.at(i), tensor.as<float>()[static_cast<std::size_t>(i)]);
    }
  }
  argument.storage->upload();
}

void take_all(Results& results, const LossResult& from) {
  take(results.loss, from.loss);
  take(results.lse, from.lse);
  take(results.argmax, from.argmax);
  take(results.label_logprob, from.label_logprob);
  take(results.entropy, from.entropy);
  take(results.z_loss, from.z_loss);
  take(results.statistics, from.statistics);
}

template <class T>
std::vector<T> converted(const std::vector<double>& from) {
  return std::vector<T>(from.begin(), from.end());
}

/// combine() over one shard that is the whole vocabulary.
LossResult combined(const PartialResult& partial, const oracle::Problem& p, const Dims& leading,
                    LossOptions options) {
  const std::vector<float> weight = converted<float>(p.weight);
  const std::vector<float> class_weight = converted<float>(p.class_weight);
  CombineInputs in;
  in.labels = View::host(p.labels.data(), leading);
  if (!weight.empty()) in.weight = View::host(weight.data(), leading);
  if (!class_weight.empty()) in.class_weight = View::host(class_weight.data(), {p.v_total()});
  return combine(std::span<const PartialResult>(&partial, 1), in, options);
}

Wants everything() {
  Wants wants;
  wants.lse = wants.argmax = wants.label_logprob = wants.entropy = wants.z_loss = true;
  wants.statistics = true;
  return wants;
}

Dispatch run_linear(Context& context, Pass pass, const Case& c, const Expected& e,
                    const Arguments& arguments, Results& results, LossOptions options,
                    const lce::ExecutionOptions& execution) {
  const lce::Inputs in = arguments.linear(pass);
  if (pass == Pass::forward_partial) {
    options.wants = everything();
    options.vocab_size_total = c.v;
    auto partial = lce::forward_partial(context, in, options, execution);
    take_all(results, combined(partial, e.problem, arguments.rows().leading, options));
    return partial.dispatch;
  }
  Completion done;
  if (pass == Pass::forward) {
    done = lce::forward(context, in, results.outputs(), options, execution);
  } else if (pass == Pass::backward) {
    done = lce::backward(context, in, results.linear_gradients(), options, execution);
  } else {
    done = lce::value_and_grad(context, in, results.outputs(), results.linear_gradients(), options,
                               execution);
  }
  done.wait();
  return done.dispatch();
}

Dispatch run_softmax(Context& context, Pass pass, const Case& c, const Expected& e,
                     const Arguments& arguments, Results& results, LossOptions options,
                     const sce::ExecutionOptions& execution) {
  const sce::Inputs in = arguments.softmax(pass);
  if (pass == Pass::forward_partial) {
    options.wants = everything();
    options.vocab_size_total = c.v;
    auto partial = sce::forward_partial(context, in, options, execution);
    take_all(results, combined(partial, e.problem, arguments.rows().leading, options));
    return partial.dispatch;
  }
  Completion done;
  if (pass == Pass::forward) {
    done = sce::forward(context, in, results.outputs(), options, execution);
  } else if (pass == Pass::backward) {
    done = sce::backward(context, in, results.softmax_gradients(arguments), options, execution);
  } else {
    done = sce::value_and_grad(context, in, results.outputs(), results.softmax_gradients(arguments),
                               options, execution);
  }
  done.wait();
  return done.dispatch();
}

/// Rows of the default order that need a device; none without OpenCL.
std::size_t device_families() {
  std::size_t count = 0;
  for (const auto& row : lce::implementations()) count += row.name.starts_with("opencl.") ? 1 : 0;
  return count;
}

ImplementationList list_of(const std::string& implementation) {
  return implementation == default_order ? ImplementationList() : implementation;
}

}  // namespace

lce::ExecutionOptions linear_execution(const std::string& implementation, const Case& c) {
  lce::ExecutionOptions execution;
  execution.implementation = list_of(implementation);
  execution.block_sizes = c.block_sizes;
  execution.knobs = c.knobs;
  execution.workspace_bytes = c.workspace_bytes;
  execution.gradient_filter_eps = c.gradient_filter_eps;
  return execution;
}

sce::ExecutionOptions softmax_execution(const std::string& implementation, const Case& c) {
  sce::ExecutionOptions execution;
  execution.implementation = list_of(implementation);
  if (c.block_sizes) {
    execution.block_sizes =
        sce::BlockSizes{c.block_sizes->b_block_size, c.block_sizes->v_block_size};
  }
  execution.workspace_bytes = c.workspace_bytes;
  return execution;
}

const Expected& expected_of(const Case& c) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Expected>> cache;
  const std::lock_guard lock(mutex);
  auto& entry = cache[c.name];
  if (!entry) {
    entry = std::make_unique<Expected>();
    entry->problem = make_problem(c);
    entry->values = oracle::forward(entry->problem);
    if (!c.values_only) entry->gradients = oracle::backward(entry->problem);
    entry->tolerance = value_tolerance(entry->problem, entry->values);
  }
  return *entry;
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

std::vector<std::string> linear_implementations() { return restricted(lce::implementations()); }
std::vector<std::string> softmax_implementations() { return restricted(sce::implementations()); }

std::optional<std::string> why_absent(const std::string& implementation, bool softmax) {
  if (implementation == default_order) return std::nullopt;
  static const float numbers[4] = {};
  static const std::int32_t label[1] = {};
  const View labels = View::host(label, {1});
  if (softmax) {
    return sce::why_unsupported(shared_context(), implementation, Pass::forward,
                                {.logits = View::host(numbers, {1, 2}), .labels = labels}, {}, {});
  }
  return lce::why_unsupported(
      shared_context(), implementation, Pass::forward,
      {.x = View::host(numbers, {1, 1}), .labels = labels, .w = View::host(numbers, {1, 2})}, {},
      {});
}

bool is_wanted(const std::string& case_name) {
  static const auto wanted = listed_in("TESSERA_TEST_CASES");
  return wanted.empty() || std::any_of(wanted.begin(), wanted.end(), [&](const auto& part) {
           return case_name.find(part) != std::string::npos;
         });
}

bool tiny() {
  const char* text = std::getenv("TESSERA_TEST_TINY");
  return text != nullptr && std::string(text) == "1";
}

bool rounds_dz(const std::string& implementation, const Case& c) {
  return implementation.starts_with("opencl") && c.x_type == DType::bf16 && c.w_type == DType::bf16;
}

bool run_case(const std::string& implementation, Pass pass, const Case& c) {
  return run_case(shared_context(), implementation, pass, c);
}

bool run_case(Context& context, const std::string& named, Pass pass, const Case& c) {
  const bool by_default = named == default_order;
  const std::string implementation = !by_default            ? named
                                     : context.has_device() ? "opencl"
                                                            : "eigen";
  SCOPED_TRACE("case " + c.name + ", " + to_string(pass) + ", " + named + " on " + implementation);
  Summary::instance().set_case(c.name + ", " + to_string(pass) + ", " + implementation);
  if (c.place == Place::device && !context.has_device()) return true;
  const bool gradients = pass == Pass::backward || pass == Pass::value_and_grad;
  if (gradients && c.values_only) return true;
  const Expected& e = expected_of(c);
  Arguments arguments(context, c, e.problem);
  if (pass == Pass::backward) arguments.add_statistics(context, e.values);
  Results results(context, c, e, pass, implementation);
  const auto execution = linear_execution(named, c);
  const auto softmax = softmax_execution(named, c);
  try {
    LossOptions options = c.options;
    if (pass == Pass::forward_partial) options.vocab_size_total = c.v;
    const Outputs outputs = pass == Pass::forward_partial ? Outputs{} : results.outputs();
    const auto refusal =
        by_default ? std::nullopt
        : c.softmax
            ? sce::why_unsupported(context, implementation, pass, arguments.softmax(pass), outputs,
                                   results.softmax_gradients(arguments), options, softmax)
            : lce::why_unsupported(context, implementation, pass, arguments.linear(pass), outputs,
                                   results.linear_gradients(), options, execution);
    if (refusal) {
      Summary::instance().add_case(results.key(), true);
      if (serves_everything(implementation)) ADD_FAILURE() << "refused: " << *refusal;
      return false;
    }
    const Dispatch dispatch =
        c.softmax ? run_softmax(context, pass, c, e, arguments, results, c.options, softmax)
                  : run_linear(context, pass, c, e, arguments, results, c.options, execution);
    if (by_default) {
      // A device that is no CPU refuses one family before another runs.
      EXPECT_TRUE(dispatch.implementation.starts_with(implementation)) << dispatch.implementation;
      EXPECT_EQ(dispatch.refused.empty(), dispatch.warnings.empty());
      if (!context.has_device()) {
        EXPECT_EQ(dispatch.refused.size(), device_families()) << "each says why not";
      }
    } else {
      EXPECT_EQ(dispatch.implementation, implementation);
      EXPECT_TRUE(dispatch.refused.empty());
    }
    const bool by_pairs = multiplies_pairs() && implementation == "opencl.cpu" && !c.softmax &&
                          c.x_type == DType::bf16 && c.w_type == DType::bf16;
    if (by_pairs && &context == &shared_context() && c.h > 0) {
      EXPECT_TRUE(std::any_of(dispatch.knobs.begin(), dispatch.knobs.end(),
                              [](const NamedValue& knob) { return knob.name == "dot_bf16"; }));
    }
  } catch (const Error& error) {
    // Blocks that are illegal for one implementation may be legal for another.
    const bool illegal_blocks = c.block_sizes && error.code() == ErrorCode::invalid_argument;
    // The textbook holds everything, whatever the budget.
    const bool no_room = c.workspace_bytes && implementation == "reference" &&
                         error.code() == ErrorCode::workspace_too_small;
    if (illegal_blocks || no_room) {
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
