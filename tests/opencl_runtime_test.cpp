// SPDX-License-Identifier: Apache-2.0
// The OpenCL runtime below the operators, with a kernel of its own.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <thread>

#include "host/opencl/errors.hpp"
#include "tests/support/opencl_fixture.hpp"

namespace tessera::opencl {
namespace {

using ::testing::Test;

template <class F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::invalid_argument, "");
}

void expect_says(const Error& error, ErrorCode code, std::initializer_list<const char*> words) {
  EXPECT_EQ(to_string(error.code()), std::string(to_string(code))) << error.what();
  for (const char* word : words) {
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
        << "\"" << word << "\" is not in: " << error.what();
  }
}

// First, while this process has not touched a driver: a child that forks before any Context exists
// can use one, and so can its parent afterwards.
TEST(Fork, BeforeAContextIsSafe) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int result = 1;
    try {
      auto runtime = Runtime::open({});
      result = 0;
      if (runtime != nullptr) {
        auto x = iota(8);
        std::vector<float> y(8);
        run_scale(make_state(runtime), View(x), MutableView(y), 2.0f, false)->wait_once();
        result = y[7] == 16.0f ? 0 : 2;
      }
    } catch (...) {
      result = 3;
    }
    _exit(result);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(DeviceSelection, ListsWhatIsThereWhenNothingMatches) {
  const auto error = error_of([] { Runtime::open({.device = "no such device"}); });
  expect_says(error, ErrorCode::device_not_found, {"no such device", "ContextOptions::device"});
  for (const auto& device : devices()) {
    EXPECT_NE(std::string(error.what()).find(device.name), std::string::npos) << error.what();
  }
}

TEST(DeviceSelection, TakesTextAndIndicesAndTheEnvironment) {
  const auto all = devices();
  if (all.empty()) GTEST_SKIP() << "no OpenCL device";
  for (const auto& device : all) {
    const auto selector =
        std::to_string(device.platform_index) + ":" + std::to_string(device.device_index);
    EXPECT_EQ(Runtime::open({.device = selector})->info().name, device.name);
    std::string upper = device.name;
    for (auto& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    EXPECT_EQ(Runtime::open({.device = upper})->info().name, device.name);
  }
  expect_says(error_of([] { Runtime::open({.device = "97:3"}); }), ErrorCode::device_not_found,
              {"97:3"});
  ASSERT_EQ(setenv("TESSERA_DEVICE", "nowhere", 1), 0);
  expect_says(error_of([] { Runtime::open({}); }), ErrorCode::device_not_found,
              {"TESSERA_DEVICE", "nowhere"});
  EXPECT_EQ(Runtime::open({.device = all[0].name})->info().name, all[0].name);
  unsetenv("TESSERA_DEVICE");
}

TEST(DeviceSelection, HostOnlyOpensNothing) {
  EXPECT_EQ(Runtime::open({.host_only = true}), nullptr);
}

TEST(EmbeddedKernels, ResolvesIncludesOnce) {
  override_embedded_kernel("test/a.cl", "#include \"test/b.cl\"\n# include \"test/c.cl\"\nA\n");
  override_embedded_kernel("test/b.cl", "#include \"test/c.cl\"\nB\n");
  override_embedded_kernel("test/c.cl", "C\n");
  const auto text = assemble_source("test/a.cl");
  EXPECT_EQ(text.find("#include"), std::string::npos);
  EXPECT_EQ(text.find("C\n"), text.rfind("C\n"));
  EXPECT_LT(text.find("C\n"), text.find("B\n"));
  EXPECT_LT(text.find("B\n"), text.find("A\n"));
  override_embedded_kernel("test/d.cl", "#include \"test/none.cl\"\n");
  expect_says(error_of([] { assemble_source("test/d.cl"); }), ErrorCode::build_failed,
              {"test/none.cl", "test/d.cl"});
}

TEST(EmbeddedKernels, AreMadeOnceForEachNameOfAProduct) {
  override_embedded_kernel("test/part.cl",
                           "int product_part;  // of product_\nint byproduct_, a_product_;\n");
  override_embedded_kernel("test/product.cl",
                           "#include \"test/c.cl\"\n#include \"test/part.cl\"  // as product\n"
                           "product_x(PRODUCT_Y)\n");
  override_embedded_kernel("test/c.cl", "C\n");
  override_embedded_kernel("test/two.cl",
                           "#include \"test/product.cl\"  // as left_2\n"
                           "#include \"test/product.cl\" // as right\nmine\n");
  EXPECT_EQ(assemble_source("test/two.cl"),
            "#line 1 \"test/two.cl\"\n#line 1 \"test/product.cl\"\n#line 1 \"test/c.cl\"\nC\n"
            "#line 2 \"test/product.cl\"\n#line 1 \"test/part.cl\"\n"
            "int left_2_part;  // of left_2_\nint byproduct_, a_product_;\n"
            "#line 3 \"test/product.cl\"\nleft_2_x(LEFT_2_Y)\n"
            "#line 2 \"test/two.cl\"\n#line 1 \"test/product.cl\"\n"
            "#line 2 \"test/product.cl\"\n#line 1 \"test/part.cl\"\n"
            "int right_part;  // of right_\nint byproduct_, a_product_;\n"
            "#line 3 \"test/product.cl\"\nright_x(RIGHT_Y)\n"
            "#line 3 \"test/two.cl\"\nmine\n");
  // By itself it compiles under its own name.
  EXPECT_NE(assemble_source("test/product.cl").find("product_x(PRODUCT_Y)"), std::string::npos);
}

TEST(EmbeddedKernels, RefuseIncludesThatMakeNoProgram) {
  override_embedded_kernel("test/product.cl", "product_x\n");
  override_embedded_kernel("test/old.cl", "#define ENGINE_MULTIPLY(tile)\n// product_x\n");
  override_embedded_kernel("test/round.cl", "\n#include \"test/round_2.cl\"\n");
  override_embedded_kernel("test/round_2.cl", "#include \"test/round.cl\"\n");
  const auto refuses = [](const std::string& line, std::initializer_list<const char*> words) {
    SCOPED_TRACE(line);
    override_embedded_kernel("test/wrong.cl", "\n" + line + "\n");
    const auto error = error_of([] { assemble_source("test/wrong.cl"); });
    expect_says(error, ErrorCode::build_failed, words);
    expect_says(error, ErrorCode::build_failed, {"test/wrong.cl:2"});
  };
  refuses("#include \"test/product.cl\"", {"test/product.cl", "needs a name", "// as NAME"});
  refuses("#include \"test/product.cl\"  // as Left", {"Left", "small letters"});
  refuses("#include \"test/product.cl\"  // as product", {"product", "already"});
  refuses("#include \"test/old.cl\"  // as left", {"test/old.cl", "is no product"});
  refuses("#include \"test/none.cl\"  // as left", {"test/none.cl"});
  refuses("#include \"test/wrong.cl\"", {"test/wrong.cl", "includes itself"});
  expect_says(error_of([] { assemble_source("test/round.cl"); }), ErrorCode::build_failed,
              {"test/round.cl", "includes itself", "test/round_2.cl:1"});
  override_embedded_kernel("test/twice.cl",
                           "#include \"test/product.cl\"  // as left\n"
                           "#include \"test/product.cl\"  // as left\n");
  expect_says(error_of([] { assemble_source("test/twice.cl"); }), ErrorCode::build_failed,
              {"left", "already", "test/twice.cl:2"});
}

TEST(Errors, NameTheCallTheCodeAndTheDevice) {
  expect_says(error_of([] { throw_error(CL_OUT_OF_RESOURCES, "clFoo", "Dev", "doing it"); }),
              ErrorCode::out_of_memory,
              {"clFoo", "CL_OUT_OF_RESOURCES (-5)", "Dev", "doing it", "workspace_bytes"});
  expect_says(error_of([] { throw_error(cl::Error(-11, "clBar"), "Dev"); }),
              ErrorCode::build_failed, {"clBar", "CL_BUILD_PROGRAM_FAILURE"});
  EXPECT_EQ(code_name(-4242), "unknown code (-4242)");
}

class RuntimeTest : public OpenclTest {};

TEST_F(RuntimeTest, BindsHostAndDeviceMemoryWithOffsetsAndStrides) {
  const auto x = iota(40);
  for (const bool staged : {false, true}) {
    runtime_->facts_for_test().zero_copy = !staged;
    // A transposed window of x into a window of y with gaps; sentinels must survive.
    std::vector<float> y(60, -1.0f);
    dispatch::Attempt attempt;
    run_scale(state_, View::host(x.data() + 3, {4, 3}, {1, 8}),
              MutableView::host(y.data() + 5, {4, 3}, {12, 3}), 2.0f, false, {}, &attempt)
        ->wait_once();
    EXPECT_TRUE(attempt.outputs_touched);
    EXPECT_EQ(attempt.dispatch.staged_bytes, staged ? 2 * 12 * 4 : 0);
    for (std::size_t k = 0; k < y.size(); ++k) {
      const std::size_t at = k - 5;
      const bool inside = k >= 5 && at / 12 < 4 && at % 12 % 3 == 0 && at % 12 / 3 < 3;
      const float expected = inside ? 2.0f * x[3 + at / 12 + 8 * (at % 12 / 3)] : -1.0f;
      EXPECT_EQ(y[k], expected) << k << " staged " << staged;
    }
    // The same with device memory and byte offsets: nothing is staged, the call may be in flight.
    const cl_mem from = make_buffer(x);
    const cl_mem to = make_buffer(std::vector<float>(60, -1.0f));
    auto state = run_scale(state_, View::device(from, 12, DType::f32, {4, 3}, {1, 8}),
                           MutableView::device(to, 20, DType::f32, {4, 3}, {12, 3}), 2.0f, false);
    EXPECT_NE(state->event(), nullptr);
    state->wait_once();
    EXPECT_EQ(content(to, 60), y);
  }
}

TEST_F(RuntimeTest, KeepsWhatIsThereWhenAdding) {
  const auto x = iota(6);
  for (const bool staged : {false, true}) {
    runtime_->facts_for_test().zero_copy = !staged;
    std::vector<float> y(12, 100.0f);
    run_scale(state_, View(x), MutableView::host(y.data(), {6}, {2}), 1.0f, true)->wait_once();
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(y[2 * i], 101.0f + static_cast<float>(i));
      EXPECT_EQ(y[2 * i + 1], 100.0f);
    }
  }
}

TEST_F(RuntimeTest, RepeatsElementsOfStrideZeroWithoutCopyingThem) {
  const std::vector<float> one{3.0f};
  for (const bool staged : {false, true}) {
    runtime_->facts_for_test().zero_copy = !staged;
    std::vector<float> y(1000);
    dispatch::Attempt attempt;
    run_scale(state_, View::host(one.data(), {1000}, {0}), MutableView(y), 2.0f, false, {},
              &attempt)
        ->wait_once();
    EXPECT_EQ(y, std::vector<float>(1000, 6.0f));
    if (staged) {
      EXPECT_EQ(attempt.dispatch.staged_bytes, 4 + 4000);
    }
  }
}

TEST_F(RuntimeTest, InPlaceViewsShareOneBuffer) {
  for (const bool staged : {false, true}) {
    for (const bool output_first : {false, true}) {
      runtime_->facts_for_test().zero_copy = !staged;
      auto x = iota(16);
      dispatch::Attempt attempt;
      Call call(state_, *runtime_, {}, attempt);
      Binding in;
      Binding out;
      if (output_first) out = call.write(MutableView(x), "y", false);
      in = call.read(View(x), "x");
      if (!output_first) out = call.write(MutableView(x), "y", false);
      const auto part = call.read(View::host(x.data() + 4, {2}), "part");
      if (!staged) {
        EXPECT_EQ(in.memory, out.memory);
        EXPECT_EQ(in.memory, part.memory);
        EXPECT_EQ(part.offset, 4);
        EXPECT_EQ(runtime_->host_ranges().live(), 1);
      }
      launch_scale(call, in, out, 3.0f, false);
      call.finish()->wait_once();
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(x[i], 3.0f * (static_cast<float>(i) + 1.0f));
      }
      EXPECT_EQ(runtime_->host_ranges().live(), 0);
    }
  }
}

TEST_F(RuntimeTest, EmptyViewsAndEmptyRangesAreLegal) {
  std::vector<float> y(4, 1.0f);
  const auto nothing = View::host(static_cast<const float*>(nullptr), {0});
  run_scale(state_, nothing, MutableView::host(y.data(), {0}), 1.0f, false)->wait_once();
  dispatch::Attempt attempt;
  Call call(state_, *runtime_, {}, attempt);
  const auto x = call.read(nothing, "x");
  EXPECT_EQ(x.memory, nullptr);
  EXPECT_EQ(call.read(View(), "absent").memory, nullptr);
  EXPECT_EQ(call.scratch(0, "nothing").memory, nullptr);
  // A null buffer as an argument of a kernel that does not touch it.
  Binding out = call.write(MutableView(y), "y", true);
  const Range none{{0, 1, 1}};
  call.launch(scale_specialisation(), none, kernels::scale_memory{.x = x, .y = out},
              {.x_row = 1, .x_column = 0, .y_row = 1, .y_column = 0, .factor = 1.0f, .add = 0});
  call.finish()->wait_once();
  EXPECT_EQ(y, std::vector<float>(4, 1.0f));
}

TEST_F(RuntimeTest, StagesPieceByPiece) {
  runtime_->facts_for_test().zero_copy = false;
  const auto x = iota(32);
  std::vector<float> y(32);
  dispatch::Attempt attempt;
  Call call(state_, *runtime_, {}, attempt);
  for (int piece = 0; piece < 4; ++piece) {
    const auto in = call.read(View::host(x.data() + 8 * piece, {8}), "x");
    const auto out = call.write(MutableView::host(y.data() + 8 * piece, {8}), "y", false);
    launch_scale(call, in, out, 2.0f, false);
    EXPECT_EQ(attempt.outputs_touched, piece > 0);
    call.release_staging();
    EXPECT_EQ(y[static_cast<std::size_t>(8 * piece + 7)], 16.0f * static_cast<float>(piece + 1));
  }
  call.finish()->wait_once();
  EXPECT_EQ(runtime_->pool().allocations(), 2);
}

TEST_F(RuntimeTest, RefusesCopiesBeyondTheMaximumAllocation) {
  const auto x = iota(64);
  std::vector<float> y(64);
  runtime_->facts_for_test().max_allocation_bytes = 128;
  dispatch::Attempt attempt;
  Call call(state_, *runtime_, {}, attempt);
  EXPECT_FALSE(call.fits(View(x)));
  EXPECT_TRUE(call.fits(View::host(x.data(), {32})));
  // The reach is too long for a wrap, the elements are few enough for a copy.
  const auto sparse = View::host(x.data(), {16}, {4});
  EXPECT_TRUE(call.fits(sparse));
  EXPECT_EQ(call.read(sparse, "x").strides[0], 1);
  expect_says(error_of([&] { call.read(View(x), "w"); }), ErrorCode::out_of_memory,
              {"w needs a device copy of 256 bytes", "128", "split"});
  expect_says(error_of([&] { call.scratch(33, "partial sums"); }), ErrorCode::out_of_memory,
              {"partial sums", "132", "128"});
}

TEST_F(RuntimeTest, LendsTheCallersWorkspace) {
  const cl_mem block = make_buffer(std::vector<float>(100, 0.0f));
  dispatch::Attempt attempt;
  {
    Call call(state_, *runtime_, {.workspace = MutableView::device(block, 8, DType::bf16, {150})},
              attempt);
    const auto first = call.scratch(3, "a");
    const auto second = call.scratch(10, "b");
    EXPECT_EQ(first.memory, block);
    EXPECT_EQ(first.offset, 16);
    EXPECT_EQ(second.offset, 32);
    EXPECT_EQ(call.scratch_bytes(), 52);
    expect_says(error_of([&] { call.scratch(100, "c"); }), ErrorCode::workspace_too_small,
                {"c needs 400", "plan()"});
  }
  EXPECT_EQ(runtime_->pool().allocations(), 0);
  std::vector<float> host(100);
  Call call(state_, *runtime_, {.workspace = MutableView(host)}, attempt);
  EXPECT_NE(call.scratch(16, "a").memory, nullptr);
  EXPECT_EQ(runtime_->pool().allocations(), runtime_->facts().zero_copy ? 0 : 1);
  call.finish()->wait_once();
}

TEST_F(RuntimeTest, ASteadyCallAllocatesNothing) {
  const cl_mem x = make_buffer(iota(64));
  const cl_mem y = make_buffer(iota(64));
  const auto call_once = [&] {
    dispatch::Attempt attempt;
    Call call(state_, *runtime_, {}, attempt);
    const auto in = call.read(View::device(x, 0, DType::f32, {64}), "x");
    const auto out = call.write(MutableView::device(y, 0, DType::f32, {64}), "y", false);
    auto between = call.scratch(64, "between");
    call.scratch(300, "more");
    launch_scale(call, in, between, 2.0f, false);
    launch_scale(call, between, out, 2.0f, false);
    call.finish()->wait_once();
  };
  call_once();
  EXPECT_EQ(content(y, 64)[9], 40.0f);
  const auto allocations = runtime_->pool().allocations();
  const auto bytes = runtime_->pooled_bytes();
  EXPECT_EQ(allocations, 2);
  EXPECT_EQ(bytes, 364 * 4);
  for (int i = 0; i < 10; ++i) call_once();
  EXPECT_EQ(runtime_->pool().allocations(), allocations);
  EXPECT_EQ(runtime_->programs().builds(), 1);
  runtime_->trim();
  EXPECT_EQ(runtime_->pooled_bytes(), 0);
}

TEST_F(RuntimeTest, ThePoolDoesNotKeepASizeForEveryCall) {
  auto& pool = runtime_->pool();
  for (std::int64_t bytes = 1000; bytes < 4000; bytes += 10) pool.acquire(bytes);
  EXPECT_LT(runtime_->pooled_bytes(), 3 * 4000);
  const auto big = pool.acquire(1 << 20);
  const auto small = pool.acquire(4000);
  EXPECT_LT(small.bytes(), 8001);
  runtime_->trim();
  EXPECT_EQ(pool.bytes(), big.bytes() + small.bytes());
}

TEST_F(RuntimeTest, ReadsScratchBackAndChecksOnCompletion) {
  const cl_mem x = make_buffer(iota(8));
  dispatch::Attempt attempt;
  auto numbers = std::make_shared<std::vector<float>>();
  Call call(state_, *runtime_, {}, attempt);
  const auto in = call.read(View::device(x, 0, DType::f32, {8}), "x");
  const auto out = call.scratch(8, "numbers");
  launch_scale(call, in, out, 5.0f, false);
  call.read_back(out, 8, numbers);
  call.check_on_completion([numbers] {
    if (numbers->at(3) == 20.0f) throw Error(ErrorCode::label_out_of_range, "row 3 is twenty");
  });
  Completion completion(call.finish());
  expect_says(error_of([&] { completion.wait(); }), ErrorCode::label_out_of_range, {"twenty"});
  EXPECT_FALSE(attempt.outputs_touched);
}

}  // namespace
}  // namespace tessera::opencl
