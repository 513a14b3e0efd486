// SPDX-License-Identifier: Apache-2.0
// Whole calls on device memory: the caller's handles, queues and events, memory that is not copied
// and not allocated twice.
#include <CL/cl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <numeric>
#include <thread>

#include "host/opencl/program_cache.hpp"
#include "host/opencl/runtime.hpp"
#include "host/opencl/workspace_pool.hpp"
#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

class OpenclCall : public ImplementationTest {
 protected:
  lce::ExecutionOptions on() const {
    lce::ExecutionOptions execution;
    execution.implementation = GetParam();
    return execution;
  }
  cl_command_queue make_queue(cl_command_queue_properties properties) {
    cl_int code = CL_SUCCESS;
    const auto queue = clCreateCommandQueue(shared_context().native_context(),
                                            shared_context().native_device(), properties, &code);
    EXPECT_EQ(code, CL_SUCCESS);
    queues_.push_back(queue);
    return queue;
  }
  cl_event make_gate() {
    cl_int code = CL_SUCCESS;
    const auto event = clCreateUserEvent(shared_context().native_context(), &code);
    EXPECT_EQ(code, CL_SUCCESS);
    events_.push_back(event);
    return event;
  }
  Plan plan_of(const Case& c) const {
    Context& context = shared_context();
    const Expected& e = expected_of(c);
    Arguments arguments(context, c, e.problem);
    Results results(context, c, e, Pass::value_and_grad, GetParam());
    return lce::plan(context, Pass::value_and_grad, arguments.inputs<lce::Operator>(),
                     results.outputs(), results.gradients<lce::Operator>(arguments), c.options,
                     on());
  }
  void TearDown() override {
    for (const auto event : events_) clReleaseEvent(event);
    for (const auto queue : queues_) clReleaseCommandQueue(queue);
  }

 private:
  std::vector<cl_command_queue> queues_;
  std::vector<cl_event> events_;
};

Case on_device(const std::string& name) {
  Case c;
  c.name = "call_" + name;
  c.b = tiny() ? 5 : 37;
  c.h = tiny() ? 7 : 33;
  c.v = tiny() ? 37 : 301;
  c.bias = true;
  c.labels = Labels::some_ignored;
  c.dlse = Cotangent::given;
  c.options.logsumexp_weight = 1e-2f;
  c.place = Place::device;
  return c;
}

constexpr Pass passes[] = {Pass::forward, Pass::backward, Pass::value_and_grad};

TEST_P(OpenclCall, RunsOnTheCallersContextAndQueues) {
  Context& shared = shared_context();
  const Case c = on_device("handles");
  Context on_handles(shared.native_context(), shared.native_device());
  EXPECT_EQ(on_handles.native_context(), shared.native_context());
  for (const Pass pass : passes) run_case(on_handles, GetParam(), pass, c);
  for (const cl_command_queue_properties properties :
       {cl_command_queue_properties{0},
        cl_command_queue_properties{CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE}}) {
    Context on_queue = Context::from_queue(make_queue(properties));
    for (const Pass pass : passes) {
      run_case(on_queue, GetParam(), pass, c);
      Case host = c;
      host.place = Place::host;
      run_case(on_queue, GetParam(), pass, host);
    }
  }
}

/// x arrives through a command that a user event holds back: the call returns at once, has written
/// nothing, and is right once the event lets go.
TEST_P(OpenclCall, ReturnsWhileItsInputsAreStillOnTheirWay) {
  Context& context = shared_context();
  const Case c = on_device("gated");
  const Expected& e = expected_of(c);
  for (const cl_command_queue_properties properties :
       {cl_command_queue_properties{0},
        cl_command_queue_properties{CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE}}) {
    Arguments arguments(context, c, e.problem);
    Results results(context, c, e, Pass::value_and_grad, GetParam());
    const View x = arguments["x"].view();
    const auto bytes = static_cast<std::size_t>(c.b * c.h) * sizeof(float);
    std::vector<float> right(static_cast<std::size_t>(c.b * c.h)), wrong(right.size(), 3.0f);
    for (std::size_t i = 0; i < right.size(); ++i) {
      right[i] = static_cast<float>(arguments["x"].get(static_cast<std::int64_t>(i)));
    }
    const auto offset = static_cast<std::size_t>(x.byte_offset());
    clEnqueueWriteBuffer(context.native_queue(), x.device_memory(), CL_FALSE, offset, bytes,
                         wrong.data(), 0, nullptr, nullptr);
    clFinish(context.native_queue());
    // Compiled beforehand, so that only the wait can be slow.
    lce::plan(context, Pass::value_and_grad, arguments.inputs<lce::Operator>(), results.outputs(),
              results.gradients<lce::Operator>(arguments), c.options, on());

    const cl_event gate = make_gate();
    const auto writer = make_queue(0);
    cl_event written = nullptr;
    ASSERT_EQ(clEnqueueWriteBuffer(writer, x.device_memory(), CL_FALSE, offset, bytes, right.data(),
                                   1, &gate, &written),
              CL_SUCCESS);
    clFlush(writer);
    auto execution = on();
    execution.queue = make_queue(properties);
    execution.wait_for = {written};
    Completion done =
        lce::value_and_grad(context, arguments.inputs<lce::Operator>(), results.outputs(),
                            results.gradients<lce::Operator>(arguments), c.options, execution);
    EXPECT_EQ(done.dispatch().implementation, GetParam());
    ASSERT_NE(done.event(), nullptr);
    cl_int status = CL_COMPLETE;
    clGetEventInfo(done.event(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status,
                   nullptr);
    EXPECT_GT(status, CL_COMPLETE) << "finished before its input was written";
    clSetUserEventStatus(gate, CL_COMPLETE);
    done.wait();
    clReleaseEvent(written);
    arguments["x"].storage->upload();  // `check` compares with what the case uploaded
    results.check(arguments);
  }
}

/// An in-order queue that something else blocks: the call only joins it.
TEST_P(OpenclCall, ReturnsWhileAUserEventHoldsTheQueue) {
  Context& context = shared_context();
  const Case c = on_device("held");
  const Expected& e = expected_of(c);
  Arguments arguments(context, c, e.problem);
  Results results(context, c, e, Pass::forward, GetParam());
  auto execution = on();
  execution.queue = make_queue(0);
  const cl_event gate = make_gate();
  ASSERT_EQ(clEnqueueMarkerWithWaitList(execution.queue, 1, &gate, nullptr), CL_SUCCESS);
  Completion done = lce::forward(context, arguments.inputs<lce::Operator>(Pass::forward),
                                 results.outputs(), c.options, execution);
  clSetUserEventStatus(gate, CL_COMPLETE);
  done.wait();
  results.check(arguments);
}

/// The next command of the caller waits for the completion's event, not for the host.
TEST_P(OpenclCall, TheEventOrdersWhatFollows) {
  Context& context = shared_context();
  const Case c = on_device("chained");
  const Expected& e = expected_of(c);
  Arguments arguments(context, c, e.problem);
  Results results(context, c, e, Pass::forward, GetParam());
  auto execution = on();
  execution.queue = make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  Completion done = lce::forward(context, arguments.inputs<lce::Operator>(Pass::forward),
                                 results.outputs(), c.options, execution);
  std::vector<float> lse(static_cast<std::size_t>(c.b));
  const View view = results["lse"].view();
  const cl_event event = done.event();
  ASSERT_NE(event, nullptr);
  ASSERT_EQ(clEnqueueReadBuffer(make_queue(0), view.device_memory(), CL_TRUE,
                                static_cast<std::size_t>(view.byte_offset()),
                                lse.size() * sizeof(float), lse.data(), 1, &event, nullptr),
            CL_SUCCESS);
  for (std::size_t row = 0; row < lse.size(); ++row) {
    EXPECT_NEAR(lse[row], e.values.lse[row], e.tolerance.lse[row]) << row;
  }
  done.wait();
}

/// Peak resident memory of this process in bytes, since the last reset.
std::int64_t peak_resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

bool reset_peak() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5";
  clear.flush();
  return clear.good();
}

TEST_P(OpenclCall, HostArraysAreNotCopied) {
  if (tiny()) GTEST_SKIP() << "needs an array larger than the noise";
  if (!shared_context().device_info().shares_host_memory) {
    GTEST_SKIP() << "the device has memory of its own";
  }
  constexpr std::int64_t b = 8, h = 1024, v = 32'768;
  std::vector<float> x(b * h, 0.01f), w(h * v, 0.02f), grad_w(h * v, 0.0f), loss(1), grad_x(b * h);
  const std::vector<std::int32_t> labels(b, 5);
  Outputs outputs;
  outputs.loss = MutableView::host(loss.data(), {});
  lce::Gradients gradients;
  gradients.grad_x = MutableView::host(grad_x.data(), {b, h});
  gradients.grad_w = MutableView::host(grad_w.data(), {h, v}, {1, h});
  const lce::Inputs in{.x = View::host(x.data(), {b, h}),
                       .labels = labels,
                       .w = View::host(w.data(), {h, v}, {1, h})};
  auto call = [&] {
    auto done = lce::value_and_grad(shared_context(), in, outputs, gradients, LossOptions{}, on());
    done.wait();
    return done.dispatch();
  };
  const Dispatch first = call();
  EXPECT_EQ(first.staged_bytes, 0);
  if (!reset_peak()) GTEST_SKIP() << "the peak cannot be reset here";
  const std::int64_t before = peak_resident();
  const Dispatch second = call();
  EXPECT_EQ(second.staged_bytes, 0);
  // w is 128 MiB. A sixteenth of it is more than a steady call has any use for.
  EXPECT_LT(peak_resident() - before, std::int64_t{8} << 20);
}

TEST_P(OpenclCall, ASteadyCallAllocatesNothing) {
  Context& context = shared_context();
  auto* runtime = opencl::runtime_of(context.state());
  ASSERT_NE(runtime, nullptr);
  for (const Place place : {Place::device, Place::host}) {
    Case c = on_device(place == Place::host ? "steady_host" : "steady");
    c.place = place;
    for (const Pass pass : passes) {
      run_case(GetParam(), pass, c);
      const auto bytes = context.pooled_bytes();
      const auto allocations = runtime->pool().allocations();
      const auto builds = runtime->programs().builds();
      for (int i = 0; i < 3; ++i) run_case(GetParam(), pass, c);
      EXPECT_EQ(context.pooled_bytes(), bytes) << to_string(pass);
      EXPECT_EQ(runtime->pool().allocations(), allocations) << to_string(pass);
      EXPECT_EQ(runtime->programs().builds(), builds) << to_string(pass);
    }
  }
  context.trim();
  EXPECT_EQ(context.pooled_bytes(), 0);
}

TEST_P(OpenclCall, UsesTheCallersWorkspace) {
  Context& context = shared_context();
  const Case c = on_device("lent");
  const Expected& e = expected_of(c);
  for (const Place place : {Place::device, Place::host}) {
    Arguments arguments(context, c, e.problem);
    Results results(context, c, e, Pass::value_and_grad, GetParam());
    const Plan plan =
        lce::plan(context, Pass::value_and_grad, arguments.inputs<lce::Operator>(),
                  results.outputs(), results.gradients<lce::Operator>(arguments), c.options, on());
    EXPECT_EQ(plan.dispatch.implementation, GetParam());
    EXPECT_LE(plan.minimum_workspace_bytes, plan.workspace_bytes);
    Argument block = make_argument(context, place, DType::f32, {(plan.workspace_bytes + 3) / 4});
    block.storage->upload();
    context.trim();
    auto execution = on();
    execution.workspace = block.mutable_view();
    auto done =
        lce::value_and_grad(context, arguments.inputs<lce::Operator>(), results.outputs(),
                            results.gradients<lce::Operator>(arguments), c.options, execution);
    done.wait();
    if (place == Place::device || context.device_info().shares_host_memory) {
      // Copies of host arrays, where they are made, are beside the workspace.
      EXPECT_EQ(context.pooled_bytes(), 0) << "the pool served a call that brought its own";
    }
    EXPECT_EQ(block.storage->download(), "") << "beside the lent block";
    results.check(arguments);

    // A quarter of the least that is accepted is refused before anything is written.
    Argument little = make_argument(context, place, DType::f32,
                                    {std::max<std::int64_t>(1, plan.minimum_workspace_bytes / 16)});
    little.storage->upload();
    execution.workspace = little.mutable_view();
    try {
      lce::value_and_grad(context, arguments.inputs<lce::Operator>(), results.outputs(),
                          results.gradients<lce::Operator>(arguments), c.options, execution)
          .wait();
      ADD_FAILURE() << "a workspace of " << little.size() * 4 << " bytes was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::workspace_too_small) << error.what();
    }
  }
}

/// What plan() calls the minimum is enough, for shapes whose blocks shrink to meet it.
TEST_P(OpenclCall, TheMinimumWorkspaceIsAccepted) {
  for (const std::int64_t b : {5, 37, 64, 150}) {
    Case c = on_device("minimum_" + std::to_string(b));
    c.b = b;
    c.workspace_bytes = static_cast<std::size_t>(plan_of(c).minimum_workspace_bytes);
    run_case(GetParam(), Pass::value_and_grad, c);
  }
}

TEST_P(OpenclCall, NoRowsAndNoDepthOnTheDevice) {
  for (const auto& [b, h] : {std::pair<std::int64_t, std::int64_t>{0, 5}, {3, 0}, {0, 0}}) {
    Case c = on_device("empty_" + std::to_string(b) + "_" + std::to_string(h));
    c.b = b;
    c.h = h;
    for (const Pass pass : passes) run_case(GetParam(), pass, c);
  }
}

TEST_P(OpenclCall, FewRowsAreOneChunkOrSeveral) {
  // 64 rows are the most that the kernels for small calls take; chunks of some of them, and rows
  // that do not count, need the general ones.
  for (const std::int64_t b : {1, 17, 48, 64, 65}) {
    for (const Labels labels : {Labels::uniform, Labels::some_ignored, Labels::all_ignored}) {
      Case c =
          on_device("few_" + std::to_string(b) + "_" + std::to_string(static_cast<int>(labels)));
      c.b = b;
      c.labels = labels;
      c.options.reduction = b % 2 == 0 ? Reduction::mean : Reduction::none;
      for (const Pass pass : passes) run_case(GetParam(), pass, c);
      c.workspace_bytes = static_cast<std::size_t>(2 * plan_of(c).minimum_workspace_bytes);
      run_case(GetParam(), Pass::value_and_grad, c);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OpenclCall,
                         testing::ValuesIn(implementations_of<lce::Operator>(is_on_opencl)),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpenclCall);

}  // namespace
}  // namespace tessera::test
