// SPDX-License-Identifier: Apache-2.0
// The runtime on drivers that fail and on devices with other limits (tests/layer).
#include "tests/layer/layer_fixture.hpp"
#include "tests/support/opencl_fixture.hpp"

namespace tessera::opencl {
namespace {

using LayerTest = test::LayerFixture<>;

/// A life of a context: host memory in place and staged, device memory, an out-of-order queue.
void scenario() {
  const auto runtime = Runtime::open({});
  if (runtime == nullptr) throw Error(ErrorCode::device_not_found, "no device was found");
  const auto state = make_state(runtime);
  const auto x = iota(64);
  const auto expect = [](const std::vector<float>& y, float last) {
    if (y.back() != last) throw std::logic_error("a call that did not fail gave a wrong result");
  };
  for (const bool staged : {false, true}) {
    runtime->facts_for_test().zero_copy = !staged;
    std::vector<float> y(64, 1.0f);
    run_scale(state, View(x), MutableView(y), 2.0f, true)->wait_once();
    expect(y, 129.0f);
    std::vector<float> z(9, 5.0f);
    run_scale(state, View::host(x.data(), {5}, {3}), MutableView::host(z.data(), {5}, {2}), 2.0f,
              false)
        ->wait_once();
    expect(z, 26.0f);
    if (z[1] != 5.0f) throw std::logic_error("a gap was written");
  }
  cl_int status = CL_SUCCESS;
  const cl::CommandQueue queue(
      clCreateCommandQueue(runtime->native_context(), runtime->native_device(),
                           CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &status),
      false);
  if (status != CL_SUCCESS) throw Error(ErrorCode::execution_failed, "the caller's own queue");
  const cl::Buffer memory(
      clCreateBuffer(runtime->native_context(), CL_MEM_READ_WRITE, 256, nullptr, &status), false);
  if (status != CL_SUCCESS) throw Error(ErrorCode::out_of_memory, "the caller's own buffer");
  runtime->check_queue(queue());
  runtime->check_memory(View::device(memory(), 0, DType::f32, {64}), "y", true);
  dispatch::Attempt attempt;
  auto numbers = std::make_shared<std::vector<float>>();
  Call call(state, *runtime, {.queue = queue()}, attempt);
  const auto scratch = call.scratch(64, "between");
  const auto out = call.write(MutableView::device(memory(), 0, DType::f32, {64}), "y", false);
  launch_scale(call, scratch, scratch, 0.0f, false);
  launch_scale(call, scratch, out, 1.0f, false);
  call.read_back(scratch, 64, numbers);
  Completion completion(call.finish());
  completion.wait();
}

TEST_F(LayerTest, EveryFailedCallEndsInAnErrorAndLeaksNothing) {
  scenario();
  ASSERT_EQ(layer_.live(), before_);
  std::map<std::string, long> calls;
  for (const auto& kind : test::Layer::kinds) calls[kind.name] = layer_.calls(kind.name);
  long errors = 0;
  long runs = 0;
  for (const auto& kind : test::Layer::kinds) {
    // Failing each of the many device queries says nothing new: every third is enough.
    const long step = calls[kind.name] > 60 ? 3 : 1;
    for (long k = 1; k <= calls[kind.name]; k += step) {
      SCOPED_TRACE(std::string(kind.name) + " " + std::to_string(k));
      layer_.reset();
      layer_.fail(kind.name, k, kind.code);
      ++runs;
      try {
        scenario();
      } catch (const Error& error) {
        ++errors;
        EXPECT_GT(std::string(error.what()).size(), 10u);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "not a tessera::Error: " << error.what();
      }
      EXPECT_EQ(layer_.failed(), 1);
      EXPECT_EQ(layer_.live(), before_);
    }
  }
  RecordProperty("runs", std::to_string(runs));
  EXPECT_GT(errors, runs / 2);
  layer_.reset();
  scenario();
}

TEST_F(LayerTest, FailedBuildsCarryTheLog) {
  layer_.fail_builds(true);
  try {
    scenario();
    FAIL() << "it built";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::build_failed);
    EXPECT_EQ(error.build_log(), "error: this build was failed by the test layer");
    EXPECT_NE(std::string(error.what()).find("failed by the test layer"), std::string::npos);
  }
  EXPECT_EQ(layer_.live(), before_);
}

TEST_F(LayerTest, ADeviceThatLooksLikeAGpuIsStaged) {
  layer_.limit("device_type", CL_DEVICE_TYPE_GPU);
  const auto runtime = Runtime::open({});
  EXPECT_TRUE(runtime->facts().is_gpu);
  EXPECT_FALSE(runtime->facts().is_cpu);
  EXPECT_FALSE(runtime->facts().zero_copy);
  EXPECT_EQ(runtime->info().type, "gpu");
  const auto x = iota(64);
  std::vector<float> y(64);
  run_scale(make_state(runtime), View(x), MutableView(y), 2.0f, false)->wait_once();
  EXPECT_EQ(y[63], 128.0f);
  EXPECT_EQ(layer_.bytes("enqueue_write"), 256);
  EXPECT_EQ(layer_.bytes("enqueue_read"), 256);
}

TEST_F(LayerTest, HostMemoryOfACpuIsNeverCopied) {
  const auto runtime = Runtime::open({});
  if (!runtime->facts().zero_copy) GTEST_SKIP() << "host memory is staged here";
  const auto x = iota(64);
  std::vector<float> y(64);
  run_scale(make_state(runtime), View(x), MutableView(y), 2.0f, false)->wait_once();
  EXPECT_EQ(layer_.bytes("enqueue_write") + layer_.bytes("enqueue_read"), 0);
  EXPECT_EQ(layer_.bytes("create_buffer"), 0);
}

TEST_F(LayerTest, ReportedLimitsReachTheFacts) {
  layer_.limit("max_allocation", 1024);
  layer_.limit("local_memory", 32768);
  layer_.limit("max_work_group", 64);
  layer_.limit("host_unified", 0);
  const auto runtime = Runtime::open({});
  EXPECT_EQ(runtime->facts().max_allocation_bytes, 1024);
  EXPECT_EQ(runtime->facts().local_memory_bytes, 32768);
  EXPECT_EQ(runtime->facts().max_work_group_size, 64);
  EXPECT_FALSE(runtime->facts().zero_copy);
  cl_int status = CL_SUCCESS;
  EXPECT_EQ(clCreateBuffer(runtime->native_context(), CL_MEM_READ_WRITE, 1025, nullptr, &status),
            nullptr);
  EXPECT_EQ(status, CL_INVALID_BUFFER_SIZE);
}

TEST_F(LayerTest, ASteadyCallMakesNoObjectsButWrapsAndEvents) {
  const auto runtime = Runtime::open({});
  const auto state = make_state(runtime);
  runtime->facts_for_test().zero_copy = false;
  const auto x = iota(64);
  std::vector<float> y(64);
  run_scale(state, View(x), MutableView(y), 2.0f, false)->wait_once();
  layer_.reset();
  run_scale(state, View(x), MutableView(y), 2.0f, false)->wait_once();
  for (const char* kind : {"create_buffer", "create_program", "build_program", "create_kernel",
                           "create_queue", "get_device_info", "get_queue_info"}) {
    EXPECT_EQ(layer_.calls(kind), 0) << kind;
  }
}

TEST_F(LayerTest, SetsOnlyTheArgumentsThatChanged) {
  const auto runtime = Runtime::open({});
  const auto state = make_state(runtime);
  const auto x = iota(64);
  std::vector<float> y(64);
  // x -> scratch of the pool -> y.
  const auto arguments_set = [&](float a, const std::vector<float>& from) {
    layer_.reset();
    dispatch::Attempt attempt;
    Call call(state, *runtime, {}, attempt);
    const Binding in = call.read(View(from), "x");
    const Binding out = call.write(MutableView(y), "y", false);
    const Scratch between = call.scratch(64, "between");
    auto dense = between;
    launch_scale(call, in, dense, a, false);
    launch_scale(call, dense, out, 1.0f, false, "-DOTHER");
    call.finish()->wait_once();
    EXPECT_EQ(y.back(), a * from.back());
    return layer_.calls("set_kernel_arg");
  };
  EXPECT_EQ(arguments_set(2.0f, x), 6);  // two kernels: two pointers and a struct each
  // The caller's memory is set always: a handle that is the same may be that of another buffer.
  EXPECT_EQ(arguments_set(2.0f, x), 2);
  EXPECT_EQ(arguments_set(3.0f, x), 3);
  // The pool's memory is set again once the pool has freed something.
  runtime->trim();
  EXPECT_EQ(arguments_set(3.0f, x), 4);
  EXPECT_EQ(arguments_set(3.0f, x), 2);
  std::vector<float> other(64, 7.0f);
  EXPECT_EQ(arguments_set(3.0f, other), 2);
  // What the driver refused is unknown, and set the next time.
  layer_.reset();
  layer_.fail("set_kernel_arg", 2, CL_INVALID_ARG_VALUE);
  dispatch::Attempt attempt;
  EXPECT_THROW(run_scale(state, View(x), MutableView(y), 5.0f, true, {}, &attempt), Error);
  EXPECT_GT(layer_.failed(), 0);
  layer_.reset();
  run_scale(state, View(x), MutableView(y), 5.0f, false)->wait_once();
  EXPECT_EQ(y.back(), 5.0f * x.back());
}

}  // namespace
}  // namespace tessera::opencl
