// SPDX-License-Identifier: Apache-2.0
// Every allocation that a call makes in this library's code fails once: the call ends in an Error,
// or another implementation serves it; outputs are untouched unless the Error says otherwise, no
// block is left behind, and the next call is right.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/allocation/failing_new.hpp"
#include "tests/support/operator_calls.hpp"
#include "tests/support/small_call.hpp"

#ifdef TESSERA_OPENCL
#include "tests/layer/layer_control.hpp"
#endif

namespace tessera::test {
namespace {

using allocation::Counted;
using allocation::live_blocks;

constexpr float untouched = -12345.0f;

/// A call on memory of its own, which `run` alone allocates nothing for.
struct Call {
  std::string name;
  std::function<void()> run;
  std::shared_ptr<std::vector<std::vector<float>>> outputs;  ///< none: it returns owned results
};

class Allocation : public ::testing::Test {
 protected:
  void SetUp() override { live_events(); }  // the layer comes before the first Context, or never
  void TearDown() override {
    std::printf(
        "%ld allocations failed: %ld errors out_of_memory, %ld execution_failed, %ld calls "
        "served all the same; %ld other outcomes, %ld leaks\n",
        failed_, out_of_memory_, execution_failed_, served_, wrong_, leaks_);
  }

  /// OpenCL events that nobody has released; 0 where nothing counts them.
  static long live_events() {
#ifdef TESSERA_OPENCL
    if (Layer& layer = Layer::get(TESSERA_TEST_LAYER); layer.loaded()) return layer.live("event");
#endif
    return 0;
  }

  static void clear(const Call& call) {
    if (!call.outputs) return;
    for (auto& output : *call.outputs) std::fill(output.begin(), output.end(), untouched);
  }
  static bool is_clear(const Call& call) {
    for (const auto& output : *call.outputs) {
      for (const float value : output) {
        if (value != untouched) return false;
      }
    }
    return true;
  }

  void wrong(const std::string& what) {
    ++wrong_;
    if (wrong_ <= 20) ADD_FAILURE() << what;
  }

  /// Fails each allocation of the call. Where it warns, twice: a distinct warning is kept.
  void fail_each(const Call& call, bool warns = false) {
    std::vector<std::vector<float>> expected;
    // The second time there is nothing left to be made once.
    for (int i = 0; i < 3; ++i) {
      clear(call);
      const Counted counted;
      call.run();
    }
    if (call.outputs) expected = *call.outputs;
    if (warns) {
      clear(call);
      for (long k = 1; fail_one(call, k, expected); ++k) clear(call);
      const Counted counted;
      call.run();
    }
    long before = live_blocks();
    long events = live_events();
    bool has_failed = true;
    for (long k = 1; has_failed; ++k) {
      SCOPED_TRACE(call.name + ", allocation " + std::to_string(k));
      clear(call);
      has_failed = fail_one(call, k, expected);
      clear(call);
      {
        const Counted counted;
        call.run();
      }
      if (call.outputs && *call.outputs != expected) wrong("the next call is wrong");
      if (live_events() > events) {
        ++leaks_;
        ADD_FAILURE() << live_events() - events << " events left behind";
        events = live_events();
      }
      if (live_blocks() > before) {
        ++leaks_;
        ADD_FAILURE() << live_blocks() - before << " blocks left behind";
        before = live_blocks();
      }
    }
  }

  /// False where there were fewer allocations.
  bool fail_one(const Call& call, long k, const std::vector<std::vector<float>>& expected) {
    bool failed = false;
    try {
      const Counted counted(k);
      try {
        call.run();
        failed = Counted::has_failed();
      } catch (...) {
        failed = true;
        throw;
      }
    } catch (const Error& error) {
      if (error.code() == ErrorCode::execution_failed) {
        ++execution_failed_;
      } else {
        ++out_of_memory_;
        if (error.code() != ErrorCode::out_of_memory) {
          wrong(std::string(to_string(error.code())) + ": " + error.what());
        }
        if (call.outputs && !is_clear(call)) {
          wrong(std::string("outputs were touched, but: ") + error.what());
        }
      }
      ++failed_;
      return true;
    } catch (const std::exception& error) {
      wrong(std::string("not a tessera::Error: ") + error.what());
      ++failed_;
      return true;
    }
    if (!failed) return false;
    ++failed_;
    ++served_;
    if (!call.outputs) return true;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      for (std::size_t j = 0; j < expected[i].size(); ++j) {
        // Another implementation may have served.
        if (std::abs((*call.outputs)[i][j] - expected[i][j]) > 1e-5f) {
          return wrong("served, and wrong"), true;
        }
      }
    }
    return true;
  }

  Context& context() { return shared_context(); }

  long failed_ = 0, out_of_memory_ = 0, execution_failed_ = 0, served_ = 0, wrong_ = 0, leaks_ = 0;
};

template <class Operator>
std::shared_ptr<SmallCall<Operator>> small_call() {
  auto call = std::make_shared<SmallCall<Operator>>(
      Dims{9}, 7, 11, std::vector<std::int32_t>{3, 0, -100, 10, 5, 1, 7, 2, 9});
  call->options = {.logsumexp_weight = 1e-2f, .label_smoothing = 0.1f};
  call->compute_statistics(Given::own);
  return call;
}

/// More commands than a call makes room for at first, in chunks of rows.
Case chunked(Place place) {
  Case c;
  c.name = place == Place::device ? "allocation_device" : "allocation_host";
  c.b = 1200;
  c.h = 9;
  c.v = 37;
  c.bias = true;
  c.place = place;
  return c;
}

/// The passes on host views, and with owned results, of one operator on one implementation.
template <class Operator>
std::vector<Call> calls_of(Context& context, const std::string& implementation) {
  using Traits = OperatorTraits<Operator>;
  std::vector<Call> calls;
  const auto call = small_call<Operator>();
  const auto options = std::make_shared<typename Operator::Options>(call->all_options());
  const auto execution = std::make_shared<typename Operator::ExecutionOptions>();
  if (implementation != default_order) execution->implementation = implementation;
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::value_and_grad}) {
    const auto inputs = std::make_shared<typename Operator::Inputs>(call->inputs(pass, Given::own));
    const auto memory = std::make_shared<std::vector<std::vector<float>>>();
    const auto output = [&](const Dims& extents) {
      memory->emplace_back(static_cast<std::size_t>(extents.product()));
      return MutableView::host(memory->back().data(), extents);
    };
    memory->reserve(16);
    const auto outputs = std::make_shared<typename Operator::Outputs>();
    const auto gradients = std::make_shared<typename Operator::Gradients>();
    if (pass != Pass::backward) {
      outputs->loss = output({});
      outputs->lse = output(call->leading);
    }
    if (has_gradients(pass)) {
      for (const auto& gradient : Traits::gradients) {
        const auto& input = input_of(gradient);
        if (is_needed(input.reads))
          (*gradients).*gradient.view = output(call->extents(input.shape));
      }
    }
    const std::string name =
        std::string(Traits::name) + "." + to_string(pass) + " on " + implementation;
    calls.push_back({name,
                     [=, &context, keep = call] {
                       run_views<Operator>(context, pass, *inputs, *outputs, *gradients, *options,
                                           *execution)
                           .wait();
                     },
                     memory});
    calls.push_back({name + ", owned",
                     [=, &context, keep = call] {
                       if (pass == Pass::forward) forward(context, *inputs, *options, *execution);
                       if (pass == Pass::backward) backward(context, *inputs, *options, *execution);
                       if (pass == Pass::value_and_grad) {
                         value_and_grad(context, *inputs, *options, *execution);
                       }
                     },
                     nullptr});
    calls.push_back({name + ", planned",
                     [=, &context, keep = call] {
                       plan(context, pass, *inputs, *outputs, *gradients, *options, *execution);
                     },
                     nullptr});
  }
  return calls;
}

template <class Operator>
void add_questions(std::vector<Call>& calls, Context& context) {
  const auto call = small_call<Operator>();
  const auto options = std::make_shared<typename Operator::Options>(call->all_options());
  const auto execution = std::make_shared<typename Operator::ExecutionOptions>();
  const auto inputs =
      std::make_shared<typename Operator::Inputs>(call->inputs(Pass::forward, Given::own));
  const auto name = std::make_shared<std::string>("opencl");
  const std::string of = OperatorTraits<Operator>::name;
  calls.push_back({of + ", why_unsupported",
                   [=, &context, keep = call] {
                     why_unsupported(context, *name, Pass::forward, *inputs, {}, {}, *options,
                                     *execution);
                   },
                   nullptr});
  calls.push_back({of + ", cost_estimate",
                   [=, &context, keep = call] {
                     cost_estimate(context, Pass::forward, *inputs, {}, {}, *options, *execution);
                   },
                   nullptr});
}

TEST_F(Allocation, FailsInACallOnHostMemory) {
  for_each_loss([&]<class Operator>(std::type_identity<Operator>) {
    auto names = implementations_of<Operator>(takes_any_shape);
    names.emplace_back(default_order);
    for (const auto& name : names) {
      if (test_operator<Operator>().why_absent(context(), name)) continue;
      for (const auto& call : calls_of<Operator>(context(), name)) {
        fail_each(call, name == default_order);
      }
    }
  });
  EXPECT_GT(failed_, 1000);
  // Without a device one implementation serves, and none comes after it.
  if (context().has_device()) {
    EXPECT_GT(served_, 0);
  }
}

TEST_F(Allocation, FailsInACallOfManyCommands) {
  using Operator = linear_cross_entropy::Operator;
  if (!context().has_device()) GTEST_SKIP() << "no OpenCL device";
  for (const Place place : {Place::host, Place::device}) {
    Case c = chunked(place);
    const Plan plan = plan_case(context(), "opencl.cpu", Pass::value_and_grad, c);
    c.workspace_bytes = static_cast<std::size_t>(plan.minimum_workspace_bytes);
    const Expected& e = expected_of(c);
    Arguments arguments(context(), c, e.problem);
    Results results(context(), c, e, Pass::value_and_grad, "opencl.cpu");
    const auto inputs = arguments.inputs<Operator>();
    const auto outputs = results.outputs<Operator>();
    const auto gradients = results.gradients<Operator>(arguments);
    const auto execution = execution_options<Operator>("opencl.cpu", c);
    fail_each({c.name,
               [&] {
                 value_and_grad(context(), inputs, outputs, gradients, c.options, execution).wait();
               },
               nullptr});
    results.check(arguments);
  }
  EXPECT_GT(execution_failed_, 0);
}

TEST_F(Allocation, FailsInAQuestion) {
  std::vector<Call> calls;
  for_each_loss([&]<class Operator>(std::type_identity<Operator>) {
    add_questions<Operator>(calls, context());
  });
  for (const auto& call : calls) fail_each(call);
}

TEST_F(Allocation, FailsInShards) {
  const auto call = small_call<linear_cross_entropy::Operator>();
  const auto inputs = call->inputs(Pass::forward, Given::own);
  auto options = call->options;
  options.vocab_size_total = 11;
  linear_cross_entropy::ExecutionOptions execution;
  execution.implementation = "eigen";
  CombineInputs whole;
  whole.labels = inputs.labels;
  fail_each({"forward_partial and combine",
             [&] {
               combine(linear_cross_entropy::forward_partial(context(), inputs, options, execution),
                       whole, options);
             },
             nullptr});
}

TEST_F(Allocation, FailsInMakingAContext) {
  const ContextOptions host{.host_only = true, .warning_handler = [](const std::string&) {}};
  fail_each({"a Context of the host", [&] { const Context made(host); }, nullptr});
  const ContextOptions device{.warning_handler = [](const std::string&) {}};
  fail_each({"a Context", [&] { const Context made(device); }, nullptr});
}

}  // namespace
}  // namespace tessera::test
