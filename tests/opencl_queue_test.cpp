// SPDX-License-Identifier: Apache-2.0
// Queues, events, threads and foreign handles, below the operators.
#include <chrono>
#include <thread>

#include "tessera/tessera.hpp"
#include "tests/support/opencl_fixture.hpp"

namespace tessera::opencl {
namespace {

class QueueTest : public OpenclTest {
 protected:
  cl::CommandQueue make_queue(cl_command_queue_properties properties) {
    cl_int status = CL_SUCCESS;
    cl::CommandQueue queue(clCreateCommandQueue(runtime_->native_context(),
                                                runtime_->native_device(), properties, &status),
                           false);
    EXPECT_EQ(status, CL_SUCCESS);
    return queue;
  }
  cl::Event user_event() {
    cl_int status = CL_SUCCESS;
    cl::Event event(clCreateUserEvent(runtime_->native_context(), &status), false);
    EXPECT_EQ(status, CL_SUCCESS);
    return event;
  }
  template <class F>
  void expect_error(ErrorCode code, const std::string& word, F&& f) {
    try {
      f();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), std::string(to_string(code))) << error.what();
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }
};

TEST_F(QueueTest, ReturnsWhileAnEventHoldsTheQueue) {
  for (const cl_command_queue_properties properties :
       {cl_command_queue_properties{0},
        cl_command_queue_properties{CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE}}) {
    const auto queue = make_queue(properties);
    const cl_mem x = make_buffer(iota(32));
    const cl_mem y = make_buffer(std::vector<float>(32, -1.0f));
    const auto gate = user_event();
    dispatch::Attempt attempt;
    std::unique_ptr<Completion::State> state;
    {
      Call call(state_, *runtime_, {.queue = queue(), .wait_for = {gate()}}, attempt);
      const auto in = call.read(View::device(x, 0, DType::f32, {32}), "x");
      const auto out = call.write(MutableView::device(y, 0, DType::f32, {32}), "y", false);
      auto last = in;
      // A chain in which every command needs the one before it.
      for (int i = 0; i < 20; ++i) {
        const auto next = call.scratch(32, "chain");
        launch_scale(call, last, next, i % 2 == 0 ? 2.0f : 0.5f, false);
        last = next;
      }
      launch_scale(call, last, out, 3.0f, false);
      state = call.finish();
    }
    ASSERT_NE(state->event(), nullptr);
    cl_int status = CL_COMPLETE;
    clGetEventInfo(state->event(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status,
                   nullptr);
    EXPECT_GT(status, CL_COMPLETE);
    EXPECT_EQ(content(y, 1)[0], -1.0f);
    std::thread opener([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      clSetUserEventStatus(gate(), CL_COMPLETE);
    });
    state->wait_once();
    opener.join();
    EXPECT_EQ(content(y, 32)[4], 15.0f);
  }
}

TEST_F(QueueTest, HostViewsWaitForTheWaitListBeforeTheyAreRead) {
  for (const bool staged : {false, true}) {
    runtime_->facts_for_test().zero_copy = !staged;
    std::vector<float> x(16, 0.0f);
    std::vector<float> y(16);
    const auto gate = user_event();
    std::thread producer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      x.assign(16, 7.0f);
      clSetUserEventStatus(gate(), CL_COMPLETE);
    });
    run_scale(state_, View(x), MutableView(y), 1.0f, false, {.wait_for = {gate()}})->wait_once();
    producer.join();
    EXPECT_EQ(y, std::vector<float>(16, 7.0f));
  }
}

TEST_F(QueueTest, AFailedWaitListReachesTheCompletion) {
  const cl_mem x = make_buffer(iota(4));
  const cl_mem y = make_buffer(iota(4));
  const auto gate = user_event();
  auto state =
      run_scale(state_, View::device(x, 0, DType::f32, {4}),
                MutableView::device(y, 0, DType::f32, {4}), 2.0f, false, {.wait_for = {gate()}});
  clSetUserEventStatus(gate(), -5);
  expect_error(ErrorCode::execution_failed,
               "wait_for[0] is an event of a command that failed with CL_OUT_OF_RESOURCES (-5)",
               [&] { state->wait_once(); });
  // The context stays usable.
  run_scale(state_, View::device(x, 0, DType::f32, {4}), MutableView::device(y, 0, DType::f32, {4}),
            2.0f, false)
      ->wait_once();
  EXPECT_EQ(content(y, 4)[3], 8.0f);
}

/// Commands that do not wait for the event themselves follow one that fails.
TEST_F(QueueTest, AFailedWaitListEndsEveryCommand) {
  const cl_mem x = make_buffer(iota(4));
  const cl_mem y = make_buffer(iota(4));
  const cl_mem z = make_buffer(iota(4));
  const auto gate = user_event();
  const auto read = [](cl_mem memory) { return View::device(memory, 0, DType::f32, {4}); };
  const auto write = [](cl_mem memory) { return MutableView::device(memory, 0, DType::f32, {4}); };
  dispatch::Attempt attempt;
  Call call(state_, *runtime_, {.wait_for = {gate()}}, attempt);
  const auto in = call.read(read(x), "x");
  launch_scale(call, in, call.write(write(y), "y", false), 2.0f, false);
  launch_scale(call, in, call.write(write(z), "z", false), 2.0f, false);
  const auto state = call.finish();
  clSetUserEventStatus(gate(), -5);
  expect_error(ErrorCode::execution_failed, "wait_for[0]", [&] { state->wait_once(); });
  EXPECT_EQ(content(y, 4)[3], 4.0f);
  EXPECT_EQ(content(z, 4)[3], 4.0f);
}

/// Before the call: PoCL would wait for it for ever.
TEST_F(QueueTest, AnEventThatHasFailedIsRefused) {
  const auto good = user_event();
  const auto bad = user_event();
  clSetUserEventStatus(bad(), -5);
  const cl_event events[] = {good(), bad()};
  expect_error(ErrorCode::invalid_argument, "wait_for[1] is an event of a command that failed",
               [&] { runtime_->check_events(events); });
  // Where it fails while a call on the host waits for it.
  const cl_event late[] = {bad()};
  expect_error(ErrorCode::execution_failed,
               "wait_for[0] is an event of a command that failed with CL_OUT_OF_RESOURCES (-5)",
               [&] { runtime_->wait_for(late); });
  // As a caller meets it: with views in host memory, for which a call waits itself.
  Context context(runtime_->native_context(), runtime_->native_device());
  const std::vector<float> logits(6);
  const std::vector<std::int32_t> labels(2);
  softmax_cross_entropy::ExecutionOptions execution;
  execution.wait_for = {bad()};
  expect_error(ErrorCode::invalid_argument, "wait_for[0]", [&] {
    softmax_cross_entropy::forward(
        context, {.logits = View::host(logits.data(), {2, 3}), .labels = View(labels)},
        LossOptions{}, execution);
  });
}

/// While the call got ready, which takes seconds where it compiles.
TEST_F(QueueTest, AnEventThatFailsBeforeTheFirstCommand) {
  const cl_mem x = make_buffer(iota(4));
  const cl_mem y = make_buffer(iota(4));
  const auto gate = user_event();
  dispatch::Attempt attempt;
  Call call(state_, *runtime_, {.wait_for = {gate()}}, attempt);
  const auto in = call.read(View::device(x, 0, DType::f32, {4}), "x");
  const auto out = call.write(MutableView::device(y, 0, DType::f32, {4}), "y", false);
  clSetUserEventStatus(gate(), -5);
  expect_error(ErrorCode::invalid_argument,
               "wait_for[0] is an event of a command that failed with CL_OUT_OF_RESOURCES (-5)",
               [&] { launch_scale(call, in, out, 2.0f, false); });
}

TEST_F(QueueTest, CompletionsOutliveEverythingTheCallUsed) {
  const cl_mem y = make_buffer(iota(16));
  const auto gate = user_event();
  std::unique_ptr<Completion::State> state;
  {
    auto queue = make_queue(0);
    cl_int status = CL_SUCCESS;
    auto x = iota(16);
    const cl_mem memory =
        clCreateBuffer(runtime_->native_context(), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, 64,
                       x.data(), &status);
    state = run_scale(state_, View::device(memory, 0, DType::f32, {16}),
                      MutableView::device(y, 0, DType::f32, {16}), 4.0f, false,
                      {.queue = queue(), .wait_for = {gate()}});
    clReleaseMemObject(memory);
  }
  const auto own_queue = runtime_->queue();
  state_.reset();
  runtime_.reset();
  clSetUserEventStatus(gate(), CL_COMPLETE);
  state->wait_once();
  std::vector<float> values(16);
  clEnqueueReadBuffer(own_queue(), y, CL_TRUE, 0, 64, values.data(), 0, nullptr, nullptr);
  EXPECT_EQ(values[15], 64.0f);
}

TEST_F(QueueTest, DroppedCallsWaitForWhatTheyEnqueued) {
  auto x = iota(1 << 16);
  std::vector<float> y(1 << 16);
  dispatch::Attempt attempt;
  {
    Call call(state_, *runtime_, {}, attempt);
    const auto in = call.read(View(x), "x");
    const auto out = call.write(MutableView(y), "y", false);
    launch_scale(call, in, out, 2.0f, false);
  }
  EXPECT_EQ(runtime_->host_ranges().live(), 0);
}

TEST_F(QueueTest, ConcurrentBuildsCompileOnce) {
  std::vector<std::thread> threads;
  std::vector<int> right(8);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const auto x = iota(64);
      std::vector<float> y(64);
      for (int i = 0; i < 20; ++i) {
        const float factor = static_cast<float>(t * 100 + i);
        run_scale(state_, View(x), MutableView(y), factor, false)->wait_once();
        right[static_cast<std::size_t>(t)] += y[63] == 64.0f * factor;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(8, 20));
  EXPECT_EQ(runtime_->programs().builds(), 1);
}

TEST_F(QueueTest, ReadersOfOneRangeShareItsBuffer) {
  if (!runtime_->facts().zero_copy) GTEST_SKIP() << "host memory is staged here";
  const auto x = iota(64);
  dispatch::Attempt attempt;
  Call one(state_, *runtime_, {}, attempt);
  Call two(state_, *runtime_, {}, attempt);
  EXPECT_EQ(one.read(View(x), "x").memory, two.read(View(x), "x").memory);
  EXPECT_EQ(runtime_->host_ranges().live(), 1);
}

TEST_F(QueueTest, ProgramsAreKeptPerSpecialisation) {
  dispatch::Attempt attempt;
  Call call(state_, *runtime_, {}, attempt);
  const auto x = call.scratch(4, "x");
  const auto y = call.scratch(4, "y");
  launch_scale(call, x, y, 1.0f, false, "-DA=1");
  launch_scale(call, x, y, 1.0f, false, "-DA=2");
  launch_scale(call, x, y, 1.0f, false, "-DA=1");
  call.finish()->wait_once();
  EXPECT_EQ(runtime_->programs().builds(), 2);
  expect_error(ErrorCode::invalid_argument, "no kernel \"nonesuch\"; it has scale",
               [&] { runtime_->programs().kernel(scale_specialisation("-DA=1"), "nonesuch"); });
}

TEST_F(QueueTest, AFailedBuildBringsItsLogAndIsRemembered) {
  for (int i = 0; i < 2; ++i) {
    try {
      runtime_->programs().kernel(scale_specialisation("-DBROKEN"), "scale");
      FAIL() << "it built";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::build_failed);
      EXPECT_NE(std::string(error.what()).find("-DBROKEN"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(test_kernel_file), std::string::npos);
      EXPECT_FALSE(error.build_log().empty());
    }
  }
  EXPECT_EQ(runtime_->programs().builds(), 1);
}

TEST_F(QueueTest, APatchedProgramIsAnother) {
  const auto plain = scale_specialisation();
  auto patched = plain;
  patched.patched_items = 384;
  EXPECT_FALSE(patched == plain);
  EXPECT_NE(hash_of(patched), hash_of(plain));
  // Found by ==, too, where two have one hash.
  patched.hash = hash_of(plain);
  auto& programs = runtime_->programs();
  programs.kernel(plain, "scale");
  // A processor's binary is no PTX; that of this kernel has no marks.
  const std::string why = runtime_->facts().is_cpu ? "it is no text" : "";
  for (int i = 0; i < 2; ++i) {
    for (const std::string& part :
         {std::string(test_kernel_file), "cannot be patched for sm_90a: " + why,
          std::string("another implementation may serve")}) {
      expect_error(ErrorCode::build_failed, part, [&] { programs.kernel(patched, "scale"); });
    }
  }
  programs.kernel(plain, "scale");
  EXPECT_EQ(programs.builds(), 2);
}

TEST_F(QueueTest, ForeignHandlesAreNamed) {
  const auto other = Runtime::open({});
  cl_int status = CL_SUCCESS;
  const cl::Buffer memory(
      clCreateBuffer(other->native_context(), CL_MEM_READ_WRITE, 64, nullptr, &status), false);
  const cl::Event event(clCreateUserEvent(other->native_context(), &status), false);
  expect_error(ErrorCode::foreign_context, "grad_w", [&] {
    runtime_->check_memory(View::device(memory(), 0, DType::f32, {4}), "grad_w", true);
  });
  expect_error(ErrorCode::foreign_context, "queue",
               [&] { runtime_->check_queue(other->native_queue()); });
  const cl_event events[] = {event()};
  expect_error(ErrorCode::foreign_context, "wait_for[0]", [&] { runtime_->check_events(events); });
  const cl_event null[] = {nullptr};
  expect_error(ErrorCode::invalid_argument, "wait_for[0]", [&] { runtime_->check_events(null); });
  expect_error(ErrorCode::invalid_argument, "reaches to byte 68", [&] {
    other->check_memory(View::device(memory(), 4, DType::f32, {16}), "x", false);
  });
  expect_error(ErrorCode::invalid_argument, "byte_offset 2", [&] {
    other->check_memory(View::device(memory(), 2, DType::f32, {4}), "x", false);
  });
  other->check_memory(View::device(memory(), 0, DType::f32, {16}), "x", false);
  runtime_->check_queue(nullptr);
  runtime_->check_queue(make_queue(0)());
}

TEST_F(QueueTest, WrapsTheCallersHandles) {
  const auto queue = make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  const auto wrapped = Runtime::wrap(nullptr, nullptr, queue());
  EXPECT_EQ(wrapped->native_context(), runtime_->native_context());
  EXPECT_EQ(wrapped->native_queue(), queue());
  EXPECT_TRUE(wrapped->is_out_of_order(queue()));
  const auto made = Runtime::wrap(runtime_->native_context(), runtime_->native_device(), nullptr);
  EXPECT_NE(made->native_queue(), runtime_->native_queue());
  EXPECT_EQ(made->info().device_index, runtime_->info().device_index);
  const auto x = iota(8);
  std::vector<float> y(8);
  run_scale(make_state(wrapped), View(x), MutableView(y), 2.0f, false)->wait_once();
  EXPECT_EQ(y[7], 16.0f);
  const auto other = Runtime::open({});
  expect_error(ErrorCode::foreign_context, "queue",
               [&] { Runtime::wrap(other->native_context(), other->native_device(), queue()); });
  expect_error(ErrorCode::invalid_argument, "null",
               [&] { Runtime::wrap(nullptr, runtime_->native_device(), nullptr); });
}

TEST_F(QueueTest, MapsDeviceMemoryForTheHost) {
  const cl_mem memory = make_buffer(iota(16));
  auto* values = static_cast<float*>(runtime_->map(nullptr, memory, 8, 16, true));
  EXPECT_EQ(values[0], 3.0f);
  values[1] = -4.0f;
  runtime_->unmap(memory, values);
  EXPECT_EQ(content(memory, 4)[3], -4.0f);
}

/// As threads do whose calls on the host read one buffer.
TEST_F(QueueTest, ManyThreadsMapOneBufferAtOnce) {
  const cl_mem memory = make_buffer(iota(16));
  const auto out_of_order = make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  std::vector<std::thread> threads;
  std::vector<std::string> wrong(8);
  for (std::size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const auto own = make_queue(0);
      const cl_command_queue queue = t % 3 == 0 ? nullptr : t % 3 == 1 ? own() : out_of_order();
      try {
        for (int i = 0; i < 1000; ++i) {
          auto* values = static_cast<float*>(runtime_->map(queue, memory, 8, 16, false));
          if (values[0] != 3.0f || values[3] != 6.0f) wrong[t] = "other values";
          runtime_->unmap(memory, values);
        }
      } catch (const Error& error) {
        wrong[t] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<std::string>(8));
}

/// A queue that waits for the caller keeps no other thread from mapping.
TEST_F(QueueTest, AQueueThatIsHeldHoldsNoOtherQueuesMaps) {
  const cl_mem memory = make_buffer(iota(16));
  const auto held = make_queue(0);
  const auto gate = user_event();
  const cl_event gates[] = {gate()};
  cl_event after = nullptr;
  ASSERT_EQ(clEnqueueMarkerWithWaitList(held(), 1, gates, &after), CL_SUCCESS);
  const cl::Event owner(after, false);
  std::thread waits([&] {
    auto* values = static_cast<float*>(runtime_->map(held(), memory, 0, 16, false));
    cl_int status = CL_QUEUED;
    clGetEventInfo(after, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr);
    EXPECT_EQ(status, CL_COMPLETE) << "mapped before the commands that came first";
    runtime_->unmap(memory, values);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  runtime_->unmap(memory, runtime_->map(nullptr, memory, 0, 16, false));
  clSetUserEventStatus(gate(), CL_COMPLETE);
  waits.join();
}

}  // namespace
}  // namespace tessera::opencl
