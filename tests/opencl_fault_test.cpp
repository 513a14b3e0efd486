// SPDX-License-Identifier: Apache-2.0
// Every OpenCL call of an operator's run fails once (tests/layer). The run ends in an Error that
// names the call and its code, or in the right result with the failure among its refusals, as a
// warning; no OpenCL object is left behind and the context stays usable.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "host/opencl/errors.hpp"
#include "tests/layer/fault_cases.hpp"
#include "tests/layer/layer_fixture.hpp"
#include "tests/support/tuned_file.hpp"

namespace tessera::test {
namespace {

using Kind = Layer::Kind;

class FaultTest : public LayerFixture<> {
 protected:
  void TearDown() override {
    LayerFixture::TearDown();
    if (runs_ == 0) return;
    std::string kinds;
    for (const auto& kind : without_effect_) kinds += " " + kind;
    kinds += not_reached_.empty() ? "" : ", or not reached:";
    for (const auto& kind : not_reached_) kinds += " " + kind;
    std::printf("%ld calls failed: %ld errors, %ld fallbacks, %ld without effect%s\n", runs_,
                errors_, fallbacks_, runs_ - errors_ - fallbacks_, kinds.c_str());
  }

  ContextOptions counting_warnings() {
    return {.warning_handler = [this](const std::string&) { ++warnings_; }};
  }

  /// True where some implementation of the default order needs no device.
  static bool has_host_default() {
    for (const auto& row : linear_cross_entropy::implementations()) {
      if (row.by_default && row.name == "eigen") return true;
    }
    return false;
  }

  /// Questions about platforms and devices, each of which has an answer for a driver that has none.
  static bool is_discovery(const Kind& kind) {
    const std::string name = kind.name;
    return name.starts_with("get_platform_") || name.starts_with("get_device_");
  }

  static void expect_names_the_failure(const std::string& text, const Kind& kind) {
    EXPECT_NE(text.find(kind.function), std::string::npos) << text;
    EXPECT_NE(text.find(opencl::code_name(kind.code)), std::string::npos) << text;
  }

  void check_result(const FaultCase& one, const Dispatch& dispatch,
                    const std::vector<float>& expected, const Kind& kind, bool has_failed) {
    const auto values = one.values();
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      // Another implementation sums in another order; these few terms differ by far less.
      EXPECT_NEAR(values[i], expected[i], 1e-5) << i;
    }
    // What is refused without a failure (no CPU device, say) is no fallback of ours.
    if (dispatch.refused.size() == refused_anyway_) {
      EXPECT_TRUE(dispatch.implementation.starts_with("opencl")) << "a silent fallback";
      (has_failed ? without_effect_ : not_reached_).insert(kind.name);
      return;
    }
    ++fallbacks_;
    EXPECT_FALSE(dispatch.warnings.empty());
    // A driver that does not even list its devices is a driver without devices.
    if (is_discovery(kind)) return;
    bool named = false;
    for (const auto& refusal : dispatch.refused) {
      reasons_.insert(refusal.reason);
      named |= refusal.reason.find(kind.function) != std::string::npos &&
               refusal.reason.find(opencl::code_name(kind.code)) != std::string::npos;
    }
    EXPECT_TRUE(named) << dispatch.refused.back().reason;
  }

  void check_error(const Error& error, const ImplementationList& names, const Kind& kind) {
    const std::string text = error.what();
    expect_names_the_failure(text, kind);
    EXPECT_TRUE(error.code() == ErrorCode::execution_failed ||
                error.code() == ErrorCode::out_of_memory || error.code() == ErrorCode::build_failed)
        << to_string(error.code()) << ": " << text;
    // With somewhere to go, only a call that may have written something can fail. (What is asked
    // while a call's arguments are checked, before it has an implementation, is not the
    // dispatcher's.)
    const bool in_checks = std::string(kind.name).starts_with("get_");
    if (names.names().empty() && has_host_default() && !in_checks) {
      EXPECT_STREQ(to_string(error.code()), to_string(ErrorCode::execution_failed)) << text;
    }
  }

  /// Runs the case while the k-th call of `kind` fails.
  void run_failing(const FaultCase& one, Context& context, const ImplementationList& names,
                   const std::vector<float>& expected, const Kind& kind, long k) {
    SCOPED_TRACE(one.name + ": " + kind.name + " " + std::to_string(k));
    const long failed_before = layer_.failed();
    layer_.fail(kind.name, k, kind.code);
    ++runs_;
    try {
      const Dispatch dispatch = one.run(context, names);
      layer_.fail("", 0, 0);
      check_result(one, dispatch, expected, kind, layer_.failed() > failed_before);
    } catch (const Error& error) {
      ++errors_;
      layer_.fail("", 0, 0);
      check_error(error, names, kind);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "not a tessera::Error: " << error.what();
    }
    EXPECT_EQ(layer_.live("event"), before_["event"]);
  }

  /// Every call that a run makes is made again by the run that fails it. But arguments of kernels
  /// that hold a value already are not set, and which block of the pool they hold depends on the
  /// calls before.
  void expect_reached() const {
    EXPECT_EQ(not_reached_.size(), not_reached_.count("set_kernel_arg"));
  }

  /// Fails every call of a run on a context whose programs are built.
  void sweep_warm(const std::vector<FaultCase>& cases, Context& context) {
    for (const auto& one : cases) {
      for (const ImplementationList& names : {ImplementationList(), ImplementationList("opencl")}) {
        // Twice: programs are built, and scratch is pooled for every implementation that may serve.
        std::vector<float> expected;
        for (const char* name : {"opencl.simt", "opencl.cpu"}) {
          try {
            one.run(context, name);
          } catch (const Error& error) {
            ASSERT_EQ(error.code(), ErrorCode::unsupported) << error.what();
          }
        }
        refused_anyway_ = one.run(context, names).refused.size();
        expected = one.values();
        layer_.reset();
        one.run(context, names);
        std::map<std::string, long> calls;
        for (const auto& kind : Layer::kinds) calls[kind.name] = layer_.calls(kind.name);
        for (const auto& kind : Layer::kinds) {
          for (long k = 1; k <= calls[kind.name]; ++k) {
            run_failing(one, context, names, expected, kind, k);
          }
        }
        // The context is usable after all that.
        one.run(context, names);
        EXPECT_EQ(one.values(), expected) << one.name;
      }
    }
  }

  long runs_ = 0;
  long errors_ = 0;
  long fallbacks_ = 0;
  long warnings_ = 0;
  std::size_t refused_anyway_ = 0;
  std::set<std::string> reasons_;         ///< of fallbacks; the context warns of each once
  std::set<std::string> without_effect_;  ///< kinds whose failure changed nothing
  std::set<std::string> not_reached_;     ///< kinds of which a call was not made again
};

TEST_F(FaultTest, HostMemoryInPlace) {
  Context context(counting_warnings());
  sweep_warm(host_fault_cases(), context);
  EXPECT_GT(fallbacks_, 0);
  EXPECT_GE(warnings_, static_cast<long>(reasons_.size()));
  EXPECT_TRUE(without_effect_.empty());
  expect_reached();
}

TEST_F(FaultTest, HostMemoryStaged) {
  layer_.limit("device_type", CL_DEVICE_TYPE_GPU);
  Context context(counting_warnings());
  sweep_warm(host_fault_cases(), context);
  EXPECT_GE(warnings_, static_cast<long>(reasons_.size()));
  // Results come back by blocking reads; the wait behind them only confirms that.
  EXPECT_EQ(without_effect_.size(), without_effect_.count("wait_for_events"));
  expect_reached();
}

TEST_F(FaultTest, DeviceMemoryInFlight) {
  Context context(counting_warnings());
  FaultBuffers buffers(context);
  sweep_warm(device_fault_cases(buffers), context);
  EXPECT_TRUE(without_effect_.empty());
  expect_reached();
}

// Everything from the first question to the driver on: contexts, builds and kernels. Device queries
// are many and alike, so one in seven fails.
TEST_F(FaultTest, FromTheFirstCallOn) {
  // Every failure builds everything again, so operators take turns at the passes.
  std::set<std::string> turns;
  int turn = 0;
  for_each_loss([&]<class Operator>(std::type_identity<Operator>) {
    const Pass pass = turn++ % 2 == 0 ? Pass::forward : Pass::value_and_grad;
    turns.insert(std::string(OperatorTraits<Operator>::name) + "." + to_string(pass));
  });
  for (const auto& one : host_fault_cases()) {
    if (!turns.contains(one.name)) continue;
    std::vector<float> expected;
    layer_.reset();
    {
      Context context(counting_warnings());
      refused_anyway_ = one.run(context, {}).refused.size();
      expected = one.values();
    }
    std::map<std::string, long> calls;
    for (const auto& kind : Layer::kinds) calls[kind.name] = layer_.calls(kind.name);
    for (const auto& kind : Layer::kinds) {
      const std::string name = kind.name;
      // These are the warm sweeps' own.
      if (name == "set_kernel_arg" || name.starts_with("enqueue_") || name == "get_event_info") {
        continue;
      }
      const long step = name == "get_device_info" || name == "get_platform_info" ? 7 : 1;
      for (long k = 1; k <= calls[name]; k += step) {
        layer_.reset();
        layer_.fail(kind.name, k, kind.code);
        std::unique_ptr<Context> context;
        try {
          context = std::make_unique<Context>(counting_warnings());
        } catch (const Error& error) {
          ++runs_;
          ++errors_;
          expect_names_the_failure(error.what(), kind);
        }
        // What failed while the context was made has failed; what is left fails in the call.
        const long left = layer_.failed() > 0 ? 0 : k - layer_.calls(kind.name);
        if (context != nullptr) run_failing(one, *context, {}, expected, kind, left);
        context.reset();
        layer_.reset();
        EXPECT_EQ(layer_.live(), before_) << kind.name << " " << k;
      }
    }
  }
}

TEST_F(FaultTest, ADriverWhoseBuildsFailIsAReportedFallback) {
  if (!has_host_default()) GTEST_SKIP() << "eigen is not compiled in";
  const auto cases = host_fault_cases();
  layer_.fail_builds(true);
  for (const auto& one : cases) {
    if (!one.name.ends_with("value_and_grad")) continue;
    SCOPED_TRACE(one.name);
    warnings_ = 0;
    Context context(counting_warnings());
    const Dispatch dispatch = one.run(context, {});
    EXPECT_EQ(dispatch.implementation, "eigen");
    EXPECT_FALSE(dispatch.refused.empty());
    for (const auto& refusal : dispatch.refused) {
      EXPECT_TRUE(refusal.implementation.starts_with("opencl"));
      // No device here has them.
      if (refusal.implementation == "opencl.mma" || refusal.implementation == "opencl.wgmma") {
        continue;
      }
      EXPECT_NE(refusal.reason.find("failed by the test layer"), std::string::npos)
          << refusal.reason;
    }
    EXPECT_GT(warnings_, 0);
    try {
      one.run(context, "opencl");
      ADD_FAILURE() << "it ran";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::build_failed) << error.what();
    }
  }
}

// Whichever kernel it is that a driver cannot build. What was built stays built, and running out of
// memory is not remembered: each call fails in the build after the one before. Only one family is
// asked, since another would build what the families share.
TEST_F(FaultTest, ABuildThatFailsComesBeforeTheFirstWrite) {
  if (!has_host_default()) GTEST_SKIP() << "eigen is not compiled in";
  for (const auto& one : host_fault_cases()) {
    if (!one.name.ends_with("value_and_grad")) continue;
    layer_.reset();
    Context undisturbed(counting_warnings());
    const std::string family = one.run(undisturbed, {}).implementation;
    const ImplementationList names{family, "eigen"};
    const auto expected = one.values();
    for (const char* kind : {"build_program", "create_kernel"}) {
      Context context(counting_warnings());
      long failures = 0;
      for (bool failed = true; failed;) {
        SCOPED_TRACE(one.name + ": " + kind + " " + std::to_string(failures + 1));
        layer_.reset();
        layer_.fail(kind, failures == 0 ? 1 : 2, CL_OUT_OF_HOST_MEMORY);
        Dispatch dispatch;
        ASSERT_NO_THROW(dispatch = one.run(context, names));
        failed = layer_.failed() > 0;
        failures += failed;
        EXPECT_EQ(dispatch.refused.size(), failed ? 1u : 0u);
        const auto values = one.values();
        ASSERT_EQ(values.size(), expected.size());
        for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-5);
      }
      EXPECT_GE(failures, 2) << kind;  // of what operators share, and of this one
    }
  }
}

// The same where rows come in chunks, which launch other kernels than one chunk does.
TEST_F(FaultTest, ABuildThatFailsInLittleMemoryComesBeforeTheFirstWrite) {
  Context undisturbed(counting_warnings());
  const auto call = fault_call<linear_cross_entropy::Operator>();
  const auto inputs = call->inputs(Pass::value_and_grad, Given::own);
  layer_.reset();
  linear_cross_entropy::ExecutionOptions execution;
  const auto run = [&](Context& context) {
    return linear_cross_entropy::value_and_grad(context, inputs, call->options, execution).dispatch;
  };
  execution.implementation = run(undisturbed).implementation;
  const auto plan = linear_cross_entropy::plan(undisturbed, Pass::value_and_grad, inputs, {}, {},
                                               call->options, execution);
  execution.workspace_bytes = static_cast<std::size_t>(plan.minimum_workspace_bytes);
  for (const char* kind : {"build_program", "create_kernel"}) {
    Context context(counting_warnings());
    long failures = 0;
    for (bool failed = true; failed;) {
      SCOPED_TRACE(std::string(kind) + " " + std::to_string(failures + 1));
      layer_.reset();
      layer_.fail(kind, failures == 0 ? 1 : 2, CL_OUT_OF_HOST_MEMORY);
      try {
        run(context);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
      }
      failed = layer_.failed() > 0;
      failures += failed;
    }
    EXPECT_GE(failures, 2) << kind;
  }
}

// Blocks of a table that cannot be compiled or allocated give way to the implementation's own,
// before another implementation is tried.
TEST_F(FaultTest, ARowThatFailsGivesWay) {
  std::string implementation, device, knob;
  const auto call = fault_call<linear_cross_entropy::Operator>();
  const auto inputs = call->inputs(Pass::forward, Given::own);
  linear_cross_entropy::ExecutionOptions execution;
  const auto run = [&](Context& context) {
    return linear_cross_entropy::forward(context, inputs, call->options, execution).dispatch;
  };
  {
    Context undisturbed(counting_warnings());
    execution.implementation = "opencl";
    const auto dispatch = run(undisturbed);
    implementation = dispatch.implementation;
    device = undisturbed.device_info().name;
    // The row has programs of its own.
    const auto& own = dispatch.knobs;
    const bool has_four = std::find(own.begin(), own.end(), NamedValue{"lanes", 4}) != own.end();
    knob = implementation == "opencl.cpu" ? (has_four ? "lanes=8" : "lanes=4") : "tile=32";
  }
  execution.implementation = implementation;
  const TunedFile file;
  file.write_rows({TunedFile::row("linear_cross_entropy", implementation, device, "", "",
                                  "b_block_size=64 h_block_size=64 v_block_size=64", knob)});
  layer_.reset();
  for (const auto& [kind, code] : {std::pair{"build_program", CL_BUILD_PROGRAM_FAILURE},
                                   {"create_buffer", CL_MEM_OBJECT_ALLOCATION_FAILURE}}) {
    SCOPED_TRACE(kind);
    warnings_ = 0;
    Context context(counting_warnings());
    layer_.reset();
    layer_.fail(kind, 1, code);
    const auto failed = run(context);
    EXPECT_EQ(layer_.failed(), 1);
    layer_.fail("", 0, 0);
    EXPECT_EQ(failed.block_source, BlockSource::heuristic);
    EXPECT_TRUE(failed.refused.empty());
    EXPECT_NE(failed.block_reason.find("any shape, measured; not used: "), std::string::npos);
    EXPECT_NE(failed.block_reason.find(opencl::code_name(code)), std::string::npos)
        << failed.block_reason;
    EXPECT_EQ(warnings_, 1);
    EXPECT_EQ(failed.warnings.size(), 1u);
    // It is not tried again, until the file is read again; a context remembers what did not build.
    EXPECT_EQ(run(context).block_reason, failed.block_reason);
    reload_tuned_blocks();
    const bool was_built = code != CL_BUILD_PROGRAM_FAILURE;
    EXPECT_EQ(run(context).block_source,
              was_built ? BlockSource::tuned_file : BlockSource::heuristic);
  }
}

}  // namespace
}  // namespace tessera::test
