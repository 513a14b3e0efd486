// SPDX-License-Identifier: Apache-2.0
// Profiles of calls on a device: kernels, their order among other commands, queues of callers.
#include <gtest/gtest.h>

#include <CL/opencl.hpp>
#include <optional>
#include <thread>

#include "host/opencl/runtime.hpp"
#include "tessera/tessera.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/small_call.hpp"
#include "tests/support/trace_checker.hpp"

namespace tessera::test {
namespace {

namespace lce = linear_cross_entropy;
namespace norm = rms_norm;

constexpr std::int64_t b = 48, h = 32, v = 96;

class ProfileOnDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (!context().has_device()) GTEST_SKIP() << "no OpenCL device";
  }
  /// One for all, so that no program is compiled twice.
  static Context& context() {
    static Context one{ContextOptions{.warning_handler = [](const auto&) {}}};
    return one;
  }
  static cl::CommandQueue make_queue(cl_context in, cl_device_id device,
                                     cl_command_queue_properties properties = 0) {
    cl_int status = CL_SUCCESS;
    cl::CommandQueue queue(clCreateCommandQueue(in, device, properties, &status), false);
    EXPECT_EQ(status, CL_SUCCESS);
    return queue;
  }
  static cl::CommandQueue make_queue(cl_command_queue_properties properties) {
    return make_queue(context().native_context(), context().native_device(), properties);
  }
  static cl::Event user_event() {
    cl_int status = CL_SUCCESS;
    cl::Event event(clCreateUserEvent(context().native_context(), &status), false);
    EXPECT_EQ(status, CL_SUCCESS);
    return event;
  }
};

std::vector<float> numbers(std::int64_t count, float step) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(step * static_cast<float>(i));
  return values;
}

std::map<std::string, ProfileRow> kernels_of(const Profile& profile) {
  return rows_of_kind(profile, ProfileKind::kernel);
}

struct Loss {
  std::vector<float> x = numbers(b * h, 0.37f), w = numbers(h * v, 0.53f);
  std::vector<std::int32_t> labels = std::vector<std::int32_t>(b, 7);
  lce::Inputs inputs() const {
    return {.x = View::host(x.data(), {b, h}),
            .labels = View(labels),
            .w = View::host(w.data(), {h, v})};
  }
};

/// y of rms_norm: one kernel, which is quick to compile.
struct Norm {
  std::vector<float> x = numbers(b * h, 0.37f), y = std::vector<float>(b * h, -1.0f);
  Completion run(Context& context, const norm::ExecutionOptions& execution = {}) {
    return norm::forward(context, {.x = View::host(x.data(), {b, h})},
                         {.y = MutableView::host(y.data(), {b, h})}, {}, execution);
  }
};

/// The kernels that multiply have the launches and work-groups that the plan says.
TEST_F(ProfileOnDevice, NamesAndCountsTheKernelsOfASchedule) {
  const Loss loss;
  const auto plan =
      lce::plan(context(), Pass::value_and_grad, loss.inputs(), {}, {}, LossOptions{});
  if (!plan.dispatch.implementation.starts_with("opencl")) GTEST_SKIP() << "another one runs";
  std::vector<PlannedLaunches> planned;
  for (const auto& one : plan.considered) {
    if (one.is_taken) planned = one.launches;
  }
  ASSERT_FALSE(planned.empty());
  const Profile profile(context());
  const auto result = lce::value_and_grad(context(), loss.inputs());
  lce::value_and_grad(context(), loss.inputs());
  const auto kernels = kernels_of(profile);
  for (const auto& launches : planned) {
    ASSERT_TRUE(kernels.count(launches.kernel)) << launches.kernel;
    const auto& row = kernels.at(launches.kernel);
    EXPECT_EQ(row.calls, 2 * launches.times) << launches.kernel;
    EXPECT_EQ(row.work_groups, launches.groups) << launches.kernel;
  }
  for (const auto& [name, row] : kernels) {
    EXPECT_EQ(row.calls % 2, 0) << name;
    EXPECT_EQ(row.untimed, 0) << name;
    EXPECT_LE(row.min_ns, row.max_ns) << name;
    EXPECT_LE(row.max_ns, row.total_ns) << name;
    EXPECT_EQ(row.implementation, result.dispatch.implementation);
    EXPECT_EQ(row.block_sizes, result.dispatch.block_sizes);
    EXPECT_EQ(row.knobs, result.dispatch.knobs);
  }
  EXPECT_FALSE(rows_of_kind(profile, ProfileKind::wait).empty());
  EXPECT_GT(profile.times().kernels, 0.0);
  EXPECT_TRUE(profile.notes().empty());
  expect_nested(checked_trace(profile));
}

template <class Operator>
class ProfileOfOperator : public ProfileOnDevice {};
TYPED_TEST_SUITE(ProfileOfOperator, OperatorTypes, OperatorName);

TYPED_TEST(ProfileOfOperator, SeesKernelsAndHasTheSameBits) {
  using Operator = TypeParam;
  const SmallCall<Operator> call({b}, h, v, std::vector<std::int32_t>(b, 7));
  typename Operator::ExecutionOptions execution;
  execution.implementation = "opencl";
  const auto run = [&] {
    return value_and_grad(this->context(), call.inputs(Pass::value_and_grad, Given::required),
                          call.all_options(), execution);
  };
  const auto before = run();
  const Profile profile(this->context());
  const auto within = run();
  const auto bits = [](const HostTensor& tensor) {
    const auto values = tensor.template as<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  EXPECT_EQ(bits(before.loss), bits(within.loss));
  for (const auto& gradient : OperatorTraits<Operator>::gradients) {
    EXPECT_EQ(bits(before.*gradient.owned), bits(within.*gradient.owned)) << gradient.name;
  }
  const auto kernels = kernels_of(profile);
  EXPECT_FALSE(kernels.empty());
  for (const auto& [name, row] : kernels) EXPECT_EQ(row.operation, OperatorTraits<Operator>::name);
  EXPECT_EQ(rows_of_kind(profile, ProfileKind::call).at("value_and_grad").calls, 1);
  expect_nested(checked_trace(profile));
}

TEST_F(ProfileOnDevice, SeesAPassWithoutLabelsAndStagedCopies) {
  // As on a device with memory of its own.
  Context own{ContextOptions{.warning_handler = [](const auto&) {}}};
  opencl::runtime_of(own.state())->facts_for_test().zero_copy = false;
  Norm norm, staged;
  const Profile profile(context()), of_own(own);
  norm.run(context(), {.implementation = "opencl"});
  staged.run(own, {.implementation = "opencl"});
  EXPECT_EQ(norm.y, staged.y);
  ASSERT_EQ(kernels_of(profile).size(), 1u);
  EXPECT_EQ(kernels_of(profile).begin()->second.calls, 1);
  const auto copies = rows_of_kind(of_own, ProfileKind::copy);
  for (const char* name : {"write", "read", "stage to the device", "stage to the host"}) {
    EXPECT_TRUE(copies.count(name)) << name;
  }
  expect_nested(checked_trace(of_own));
}

/// A call comes after what the context's queue has, and before what it gets later.
TEST_F(ProfileOnDevice, KeepsTheOrderOfTheContextsQueue) {
  const auto x = numbers(b * h, 0.37f);
  const std::size_t bytes = x.size() * sizeof(float);
  const auto make = [&] {
    cl_int status = CL_SUCCESS;
    cl::Buffer buffer(
        clCreateBuffer(context().native_context(), CL_MEM_READ_WRITE, bytes, nullptr, &status),
        false);
    EXPECT_EQ(status, CL_SUCCESS);
    return buffer;
  };
  const auto from = make(), to = make();
  const cl_command_queue queue = context().native_queue();
  const std::vector<float> zeros(x.size(), 0.0f);
  ASSERT_EQ(
      clEnqueueWriteBuffer(queue, from(), CL_TRUE, 0, bytes, zeros.data(), 0, nullptr, nullptr),
      CL_SUCCESS);
  const auto view = View::device(from(), 0, DType::f32, {b, h});
  const auto out = MutableView::device(to(), 0, DType::f32, {b, h});
  const auto norm = [&](std::vector<cl_event> wait_for) {
    return norm::forward(context(), {.x = view}, {.y = out}, {},
                         {.implementation = "opencl", .wait_for = std::move(wait_for)});
  };
  norm({}).wait();  // compiled
  const Profile profile(context());
  Norm expected;
  expected.run(context(), {.implementation = "reference"}).wait();
  std::vector<float> y(x.size());
  const auto read = [&] {
    cl_event done = nullptr;
    EXPECT_EQ(clEnqueueReadBuffer(queue, to(), CL_FALSE, 0, bytes, y.data(), 0, nullptr, &done),
              CL_SUCCESS);
    EXPECT_EQ(clFlush(queue), CL_SUCCESS);
    return cl::Event(done, false);
  };
  const auto wait_for = [](const cl::Event& event) {
    const cl_event one = event();
    EXPECT_EQ(clWaitForEvents(1, &one), CL_SUCCESS);
  };
  // The call comes after a write that is held back.
  const auto gate = user_event();
  const cl_event gates = gate();
  ASSERT_EQ(clEnqueueWriteBuffer(queue, from(), CL_FALSE, 0, bytes, x.data(), 1, &gates, nullptr),
            CL_SUCCESS);
  auto first = norm({});
  ASSERT_NE(first.event(), nullptr);
  EXPECT_TRUE(kernels_of(profile).empty()) << "not before it was waited for";
  clSetUserEventStatus(gate(), CL_COMPLETE);
  first.wait();
  EXPECT_EQ(kernels_of(profile).begin()->second.calls, 1);
  wait_for(read());
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected.y[i], 1e-5f) << i;
  // A read comes after a call that is held back.
  const std::vector<float> right = y;
  ASSERT_EQ(clEnqueueWriteBuffer(queue, to(), CL_TRUE, 0, bytes, zeros.data(), 0, nullptr, nullptr),
            CL_SUCCESS);
  const auto second_gate = user_event();
  auto second = norm({second_gate()});
  const auto done = read();
  clSetUserEventStatus(second_gate(), CL_COMPLETE);
  wait_for(done);
  EXPECT_EQ(y, right);
  second.wait();
  EXPECT_EQ(kernels_of(profile).begin()->second.calls, 2);
  checked_trace(profile);
}

TEST_F(ProfileOnDevice, CountsKernelsOnAQueueThatKeepsNoTimes) {
  Norm norm;
  const auto without = make_queue(0), with = make_queue(CL_QUEUE_PROFILING_ENABLE);
  for (const bool keeps : {false, true}) {
    const Profile profile(context());
    const auto& queue = keeps ? with : without;
    norm.run(context(), {.implementation = "opencl", .queue = queue()}).wait();
    const auto row = kernels_of(profile).begin()->second;
    EXPECT_EQ(row.calls, 1);
    EXPECT_EQ(row.untimed, keeps ? 0 : 1);
    EXPECT_EQ(row.total_ns > 0, keeps);
    EXPECT_EQ(profile.notes().size(), keeps ? 0u : 1u);
    EXPECT_GT(rows_of_kind(profile, ProfileKind::call).at("forward").total_ns, 0);
    expect_nested(checked_trace(profile));
  }
  // Of a Context that was made of one it is the caller's own, too.
  Context of_queue = Context::from_queue(without());
  const Profile profile(of_queue);
  norm.run(of_queue, {.implementation = "opencl"}).wait();
  ASSERT_EQ(profile.notes().size(), 1u);
  EXPECT_NE(profile.notes()[0].find("CL_QUEUE_PROFILING_ENABLE"), std::string::npos);
}

TEST_F(ProfileOnDevice, LeavesAForeignQueueAnErrorAndItsOutputsUntouched) {
  const cl_device_id device = context().native_device();
  cl_int status = CL_SUCCESS;
  const cl::Context foreign(clCreateContext(nullptr, 1, &device, nullptr, nullptr, &status), false);
  ASSERT_EQ(status, CL_SUCCESS);
  const auto queue = make_queue(foreign(), device);
  Norm norm;
  const Profile profile(context());
  expect_error(ErrorCode::foreign_context, {"queue", "another cl_context"},
               [&] { norm.run(context(), {.implementation = "opencl", .queue = queue()}).wait(); });
  EXPECT_EQ(norm.y, std::vector<float>(b * h, -1.0f));
  EXPECT_TRUE(profile.kernels().empty());
  norm.run(context(), {.implementation = "opencl"}).wait();
  EXPECT_EQ(kernels_of(profile).size(), 1u);
}

TEST_F(ProfileOnDevice, TakesCallsOfSeveralThreadsAndOutlivesItsContext) {
  Norm expected;
  expected.run(context(), {.implementation = "opencl"}).wait();
  std::optional<Profile> profile;
  {
    Context gone{ContextOptions{.warning_handler = [](const auto&) {}}};
    profile.emplace(gone);
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&expected, copy = gone]() mutable {
        for (int turn = 0; turn < 5; ++turn) {
          Norm norm;
          norm.run(copy, {.implementation = "opencl"}).wait();
          EXPECT_EQ(norm.y, expected.y);
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  EXPECT_EQ(kernels_of(*profile).begin()->second.calls, 10);
  EXPECT_EQ(rows_of_kind(*profile, ProfileKind::call).at("forward").calls, 10);
  expect_nested(checked_trace(*profile));
}

TEST_F(ProfileOnDevice, HasTheMappingsOfAnImplementationOnTheHost) {
  cl_int status = CL_SUCCESS;
  const cl::Buffer buffer(
      clCreateBuffer(context().native_context(), CL_MEM_READ_WRITE, b * h * 4, nullptr, &status),
      false);
  ASSERT_EQ(status, CL_SUCCESS);
  const Norm norm;
  const Profile profile(context());
  norm::forward(context(), {.x = View::host(norm.x.data(), {b, h})},
                {.y = MutableView::device(buffer(), 0, DType::f32, {b, h})}, {},
                {.implementation = "eigen"})
      .wait();
  EXPECT_EQ(rows_of_kind(profile, ProfileKind::copy).at("map for the host").calls, 1);
  EXPECT_EQ(rows_of_kind(profile, ProfileKind::copy).at("unmap for the host").calls, 1);
  EXPECT_TRUE(rows_of_kind(profile, ProfileKind::task).count("forward"));
  expect_nested(checked_trace(profile));
}

TEST_F(ProfileOnDevice, NamesTheKernelsOfCallers) {
  const auto kernel =
      custom_kernel({.source = "kernel void twice(global const float* x, global float* y) {\n"
                               "  y[get_global_id(0)] = 2.0f * x[get_global_id(0)];\n}",
                     .entry = "twice",
                     .shape = [](const auto& in) { return std::vector<TensorSpec>{in[0]}; }});
  const std::vector<float> x = {1.0f, 2.0f};
  const Profile profile(context());
  EXPECT_EQ(kernel(context(), {View(x)})[0].as<float>()[1], 4.0f);
  const auto row = kernels_of(profile).at("twice");
  EXPECT_EQ(row.operation, "twice");
  EXPECT_EQ(row.pass, "");
  EXPECT_EQ(row.work_groups, 0) << "which the driver chose";
  // The first call compiles.
  EXPECT_EQ(rows_of_kind(profile, ProfileKind::wait).at("build a program").calls, 1);
}

}  // namespace
}  // namespace tessera::test
