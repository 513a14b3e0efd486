// SPDX-License-Identifier: Apache-2.0
// A device that goes away in the middle of a call, one that runs commands in any order that their
// wait lists allow, one whose calls take long, and one that says absurd things of itself
// (tests/layer). Each call ends in the right result or in an Error; nothing is left behind.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>

#include "tests/layer/fault_cases.hpp"
#include "tests/layer/layer_fixture.hpp"
#include "tests/support/runner.hpp"

namespace tessera::test {
namespace {

class HostileTest : public LayerFixture<> {
 protected:
  void TearDown() override {
    LayerFixture::TearDown();
    if (calls_ == 0) return;
    std::printf("%ld calls disturbed: %ld right, of these %ld fallbacks; %ld errors\n", calls_,
                right_, fallbacks_, errors_);
  }

  ContextOptions quiet() {
    return {.warning_handler = [this](const std::string&) { ++warnings_; }};
  }

  static void expect_near(const std::vector<float>& values, const std::vector<float>& expected) {
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      // Another implementation sums in another order; these few terms differ by far less.
      EXPECT_NEAR(values[i], expected[i], 1e-5) << i;
    }
  }

  /// The right result, or an Error whose code says that the device is not what was hoped for.
  void run_disturbed(const FaultCase& one, Context& context, const ImplementationList& names,
                     const std::vector<float>& expected, const char* word) {
    ++calls_;
    try {
      const Dispatch dispatch = one.run(context, names);
      layer_.lose(0);
      expect_near(one.values(), expected);
      ++right_;
      if (dispatch.implementation == "eigen") {
        ++fallbacks_;
        EXPECT_FALSE(dispatch.warnings.empty()) << "a silent fallback";
      }
    } catch (const Error& error) {
      layer_.lose(0);
      ++errors_;
      EXPECT_TRUE(
          error.code() == ErrorCode::execution_failed || error.code() == ErrorCode::out_of_memory ||
          error.code() == ErrorCode::unsupported || error.code() == ErrorCode::build_failed ||
          error.code() == ErrorCode::workspace_too_small)
          << to_string(error.code()) << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
      // What a device says is looked at before it is asked for more.
      EXPECT_EQ(std::string(error.what()).find("CL_INVALID"), std::string::npos) << error.what();
    } catch (const std::exception& error) {
      layer_.lose(0);
      ADD_FAILURE() << "not a tessera::Error: " << error.what();
    }
    EXPECT_EQ(layer_.live("event"), before_["event"]);
  }

  void lose_at_every_call(const std::vector<FaultCase>& cases, Context& context) {
    for (const auto& one : cases) {
      for (const ImplementationList& names : {ImplementationList(), ImplementationList("opencl")}) {
        one.run(context, names);
        layer_.reset();
        one.run(context, names);
        const long entered = layer_.entered();
        const auto expected = one.values();
        for (long k = 1; k <= entered; ++k) {
          SCOPED_TRACE(one.name + ", lost at call " + std::to_string(k));
          layer_.lose(k);
          run_disturbed(one, context, names, expected, "CL_DEVICE_NOT_AVAILABLE");
        }
        // The device is back, and the context is usable.
        one.run(context, names);
        EXPECT_EQ(one.values(), expected) << one.name;
      }
    }
  }

  long calls_ = 0, right_ = 0, fallbacks_ = 0, errors_ = 0;
  std::atomic<long> warnings_ = 0;
};

TEST_F(HostileTest, ADeviceThatIsLostUnderHostMemory) {
  Context context(quiet());
  lose_at_every_call(host_fault_cases(), context);
  EXPECT_GT(errors_, 0);
  EXPECT_GT(fallbacks_, 0);
}

TEST_F(HostileTest, ADeviceThatIsLostUnderStagedMemory) {
  layer_.limit("device_type", CL_DEVICE_TYPE_GPU);
  Context context(quiet());
  lose_at_every_call(host_fault_cases(), context);
  EXPECT_GT(errors_, 0);
}

TEST_F(HostileTest, ADeviceThatIsLostUnderCallsInFlight) {
  Context context(quiet());
  FaultBuffers buffers(context);
  lose_at_every_call(device_fault_cases(buffers), context);
  EXPECT_GT(errors_, 0);
}

TEST_F(HostileTest, AContextOfALostDevice) {
  layer_.lose(1);
  try {
    Context context(quiet());
    // A driver that lists no device is one without a device.
    EXPECT_FALSE(context.has_device());
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("CL_DEVICE_NOT_AVAILABLE"), std::string::npos);
  }
  EXPECT_TRUE(devices().empty());
  layer_.lose(0);
  EXPECT_FALSE(devices().empty());
}

/// A problem in chunks of rows, with kernels that depend on each other over many commands.
Case chunked(const TestOperator& op, Place place) {
  Case c;
  c.op = &op;
  c.name = std::string("hostile_") + (place == Place::device ? "device" : "host");
  c.b = 37;
  c.h = 33;
  c.v = 301;
  c.bias = true;
  c.labels = Labels::some_ignored;
  c.place = place;
  c.workspace_bytes = 128 << 10;
  return c;
}

TEST_F(HostileTest, CommandsInAnyOrderThatTheirWaitListsAllow) {
  for (const bool staged : {false, true}) {
    layer_.reset();
    // A device that is no CPU has memory of its own.
    if (staged) layer_.limit("device_type", CL_DEVICE_TYPE_GPU);
    Context made(quiet());
    for (const cl_command_queue_properties properties :
         {cl_command_queue_properties{CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE},
          cl_command_queue_properties{0}}) {
      cl_int status = CL_SUCCESS;
      const cl_command_queue queue =
          clCreateCommandQueue(made.native_context(), made.native_device(), properties, &status);
      ASSERT_EQ(status, CL_SUCCESS);
      Context context = Context::from_queue(queue, quiet());
      clReleaseCommandQueue(queue);
      for (const TestOperator* op : test_operators()) {
        for (const Place place : {Place::host, Place::device}) {
          for (const char* implementation : {"opencl.cpu", "opencl.simt", "eigen"}) {
            if (staged && implementation == std::string("opencl.cpu")) continue;
            for (std::uint64_t seed = 1; seed <= 3; ++seed) {
              layer_.shuffle(seed);
              EXPECT_TRUE(
                  run_case(context, implementation, Pass::value_and_grad, chunked(*op, place)));
              layer_.shuffle(0);
              ++calls_;
              ++right_;
            }
          }
        }
      }
    }
  }
}

TEST_F(HostileTest, CallsOfTheDriverThatTakeLong) {
  Context context(quiet());
  const auto cases = host_fault_cases();
  std::vector<std::vector<float>> expected;
  for (const auto& one : cases) {
    one.run(context, {});
    expected.push_back(one.values());
  }
  for (const auto& kind : Layer::kinds) {
    // Of these a call makes none, or very many.
    const std::string name = kind.name;
    if (name.starts_with("get_") || name.starts_with("create_") || name == "build_program")
      continue;
    layer_.reset();
    layer_.delay(kind.name, name == "set_kernel_arg" ? 20 : 500);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(cases[i].name + ", slow: " + name);
      cases[i].run(context, {});
      EXPECT_EQ(cases[i].values(), expected[i]);
      ++calls_;
      ++right_;
    }
  }
}

/// What a broken driver might say: nothing, next to nothing, no power of two, and everything.
TEST_F(HostileTest, ADeviceThatSaysAbsurdThings) {
  std::vector<std::vector<float>> expected;
  auto cases = host_fault_cases();
  // Every combination builds its kernels.
  std::erase_if(cases, [](const FaultCase& one) { return !one.name.ends_with("value_and_grad"); });
  {
    Context context(quiet());
    for (const auto& one : cases) {
      one.run(context, {});
      expected.push_back(one.values());
    }
  }
  for (const char* limit : {"max_allocation", "global_memory", "local_memory", "max_work_group",
                            "compute_units", "native_float_vector", "cache", "host_unified"}) {
    for (const long long value : {0LL, 3LL, std::numeric_limits<long long>::max()}) {
      layer_.reset();
      layer_.limit(limit, value);
      Context context(quiet());
      for (std::size_t i = 0; i < cases.size(); ++i) {
        for (const ImplementationList& names :
             {ImplementationList(), ImplementationList("opencl")}) {
          SCOPED_TRACE(cases[i].name + ", " + limit + " " + std::to_string(value));
          run_disturbed(cases[i], context, names, expected[i], "");
        }
      }
    }
  }
  EXPECT_GT(fallbacks_, 0);
}

}  // namespace
}  // namespace tessera::test
