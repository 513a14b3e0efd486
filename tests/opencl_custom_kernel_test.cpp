// SPDX-License-Identifier: Apache-2.0
// Custom kernels on a device: layouts, memory, queues, and what the driver refuses.
#include <gtest/gtest.h>

#include <CL/opencl.hpp>
#include <array>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "examples/custom_kernels/sum_squares.hpp"
#include "examples/custom_kernels/swiglu.hpp"
#include "host/opencl/program_cache.hpp"
#include "host/opencl/runtime.hpp"
#include "tessera/custom_kernel.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/guarded_buffer.hpp"

namespace tessera::test {
namespace {

class CustomKernelOnDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (!context().has_device()) GTEST_SKIP() << "no OpenCL device";
  }
  /// One for all, so that no program is compiled twice.
  static Context& context() {
    static Context one{ContextOptions{.warning_handler = [](const auto&) {}}};
    return one;
  }
  static opencl::Runtime& runtime() { return *opencl::runtime_of(context().state()); }
};

/// y = x with the order of the elements reversed, whatever their type.
CustomKernel reversed(const char* word) {
  return custom_kernel({.source = R"(
      kernel void reversed(global const void* x, global void* y) {
        const size_t i = get_global_id(0), last = get_global_size(0) - 1;
        ((global WORD*)y)[last - i] = ((global const WORD*)x)[i];
      })",
                        .entry = "reversed",
                        .inputs = {"x"},
                        .outputs = {"y"},
                        .shape = [](const auto& in) { return std::vector<TensorSpec>{in[0]}; },
                        .build_options = std::string("-DWORD=") + word});
}

struct Layout {
  const char* name;
  Dims strides;  // of [3, 4]
  std::int64_t offset;
  std::int64_t elements;
  bool is_copied_on_host;
};

/// Kernels find [3, 4] dense wherever it lies; an output's gaps stay as they were.
void check_layouts(Context& context, Place place) {
  const Layout layouts[] = {{"dense", {4, 1}, 0, 12, false},
                            {"transposed", {1, 3}, 0, 12, true},
                            {"with gaps", {10, 2}, 0, 28, true},
                            {"in the middle", {4, 1}, 5, 20, false}};
  const std::pair<DType, const char*> types[] = {
      {DType::f32, "uint"}, {DType::bf16, "ushort"}, {DType::i64, "ulong"}};
  for (const auto& [type, word] : types) {
    const auto kernel = reversed(word);
    for (const auto& in : layouts) {
      for (const auto& out : layouts) {
        SCOPED_TRACE(std::string(in.name) + " to " + out.name + " of " + to_string(type));
        Storage x(context, place, type, in.elements), y(context, place, type, out.elements);
        const auto at = [](const Layout& layout, std::int64_t i) {
          return layout.offset + i / 4 * layout.strides[0] + i % 4 * layout.strides[1];
        };
        const bool is_integer = !is_floating(type);
        x.poison();
        y.poison();
        for (std::int64_t i = 0; i < 12; ++i) {
          is_integer ? x.set_integer(at(in, i), 100 + i) : x.set(at(in, i), 1.0 + double(i));
        }
        x.upload();
        y.upload();
        auto completion = kernel.run(context, {x.view({3, 4}, in.strides, in.offset)},
                                     {y.mutable_view({3, 4}, out.strides, out.offset)});
        completion.wait();
        ASSERT_EQ(y.download(), "");
        std::int64_t written = 0;
        for (std::int64_t i = 0; i < out.elements; ++i) written += y.is_poison(i) ? 0 : 1;
        EXPECT_EQ(written, 12);
        for (std::int64_t i = 0; i < 12; ++i) {
          if (is_integer) {
            ASSERT_EQ(y.get_integer(at(out, i)), 111 - i);
          } else {
            ASSERT_EQ(y.get(at(out, i)), 12.0 - double(i));
          }
        }
        const auto& notes = completion.dispatch().notes;
        if (place == Place::host && opencl::runtime_of(context.state())->facts().zero_copy) {
          EXPECT_EQ(notes.size(), in.is_copied_on_host || out.is_copied_on_host ? 1u : 0u);
        }
      }
    }
  }
}

TEST_F(CustomKernelOnDevice, FindsArraysDenseWhereverTheyLie) {
  check_layouts(context(), Place::host);
  check_layouts(context(), Place::device);
}

TEST_F(CustomKernelOnDevice, FindsCopiesOfHostArraysOnADeviceWithMemoryOfItsOwn) {
  auto& facts = runtime().facts_for_test();
  facts.zero_copy = false;
  check_layouts(context(), Place::host);
  facts.zero_copy = true;
}

TEST_F(CustomKernelOnDevice, APartOfABufferNeedsNoCopyWhereTheDeviceCanFormIt) {
  std::vector<float> x(1024, 1.0f), y(512);
  cl::Buffer memory(cl::Context(context().native_context(), true),
                    CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, x.size() * sizeof(float), x.data());
  const auto part = View::device(memory(), 512 * sizeof(float), DType::f32, {512});
  auto completion = reversed("uint").run(context(), {part}, {y});
  completion.wait();
  EXPECT_EQ(completion.dispatch().staged_bytes, 0);
  EXPECT_EQ(y, std::vector<float>(512, 1.0f));
}

TEST_F(CustomKernelOnDevice, WhatItWritesToAnInputIsForItsCallAlone) {
  using Argument = KernelArgument;
  const auto kernel =
      custom_kernel({.source = R"(
          kernel void twice(global float* x) { x[get_global_id(0)] *= 2; }
          kernel void add(global const float* x, constant float* y, global float* none,
                          global float* sum) {
            const size_t i = get_global_id(0);
            sum[i] = x[i] + y[i];
          })",
                     .name = "add_twice",
                     .inputs = {"x", "y", "none"},
                     .shape = [](const auto& in) { return std::vector<TensorSpec>{in[0]}; },
                     .launches =
                         [](const auto& call) {
                           const std::vector<std::int64_t> all = {call.inputs[0].size()};
                           return std::vector<KernelLaunch>{
                               {"twice", all, {}, {{Argument::input(0)}}}, {"add", all}};
                         }});
  std::vector<float> x = {1.0f, 2.0f, 3.0f, 4.0f};
  const std::vector<float> y(4, 10.0f), before = x, expected = {12.0f, 14.0f, 16.0f, 18.0f};
  const cl::Buffer memory(cl::Context(context().native_context(), true),
                          CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, x.size() * sizeof(float),
                          x.data());
  for (const auto& view : {View(x), View::device(memory(), 0, DType::f32, {4})}) {
    const auto result = kernel(context(), {view, y, View::host(nullptr, DType::f32, {0})});
    const auto sums = result[0].as<float>();
    EXPECT_EQ(std::vector<float>(sums.begin(), sums.end()), expected);
    const auto& notes = result.dispatch.notes;
    EXPECT_TRUE(notes.size() == 1 && notes[0].ends_with("global const float*`): x"));
  }
  EXPECT_EQ(x, before);
  const cl::CommandQueue queue(context().native_queue(), true);
  queue.enqueueReadBuffer(memory, CL_TRUE, 0, x.size() * sizeof(float), x.data());
  EXPECT_EQ(x, before);
}

TEST_F(CustomKernelOnDevice, NumbersAreCompiledInOnceForEachValue) {
  const auto kernel = custom_kernel(
      {.source =
           "kernel void fill(global float* y) { y[get_global_id(0)] = A * 100 + B * 10 + C; }",
       .entry = "fill",
       .shape =
           [](const auto& in) {
             return std::vector<TensorSpec>{{{in.value("A")}, DType::f32}};
           },
       .parameters = {{.name = "A", .standard = 3}},
       .block_sizes = {{.name = "B", .standard = 4}},
       .knobs = {{.name = "C", .standard = 5}}});
  const auto first = [&](const CustomOptions& options) {
    const auto result = kernel(context(), {}, options);
    EXPECT_EQ(result.dispatch.knobs[0].value + result.dispatch.block_sizes[0].value * 10,
              static_cast<std::int64_t>(result[0].as<float>()[0]) % 100);
    EXPECT_EQ(static_cast<float>(result[0].size()), std::floor(result[0].as<float>()[0] / 100.0f));
    return result[0].as<float>()[0];
  };
  EXPECT_EQ(first({}), 345.0f);
  const auto builds = runtime().programs().builds();
  EXPECT_EQ(first({.parameters = {{"A", 1}}}), 145.0f);
  EXPECT_EQ(first({.block_sizes = {{"B", 1}}}), 315.0f);
  EXPECT_EQ(first({.knobs = {{"C", 1}}}), 341.0f);
  EXPECT_EQ(first({}), 345.0f);
  EXPECT_EQ(first({.knobs = {{"C", 1}}}), 341.0f);
  EXPECT_EQ(runtime().programs().builds(), builds + 3);
}

TEST_F(CustomKernelOnDevice, SourcesWithTheSameEntryAreToldApart) {
  const auto fill = [](const char* parameter, DType type) {
    return custom_kernel(
        {.source = std::string("kernel void put(") + parameter + ") { y[get_global_id(0)] = 7; }",
         .entry = "put",
         .shape = [type](const auto&) {
           return std::vector<TensorSpec>{{{2}, type}};
         }});
  };
  EXPECT_EQ(fill("global float* y", DType::f32)(context(), {})[0].as<float>()[1], 7.0f);
  EXPECT_EQ(fill("global int* y", DType::i32)(context(), {})[0].as<std::int32_t>()[1], 7);
}

TEST_F(CustomKernelOnDevice, ScratchLiesInTheLentBlock) {
  const auto kernel = custom_kernels::sum_squares();
  const std::vector<float> x(3000, 2.0f);
  CustomOptions options{.scalars = {1.0f}};
  const auto plan = kernel.plan(context(), {x}, {}, options);
  // Three sums, and what lets them begin where a part of a lent block may.
  const auto bytes = plan.workspace_bytes;
  EXPECT_GE(bytes, 3 * 4);
  EXPECT_EQ(plan.minimum_workspace_bytes, bytes);
  options.workspace_bytes = bytes - 1;
  expect_error(ErrorCode::workspace_too_small, {"sum_squares", "need " + std::to_string(bytes)},
               [&] { kernel(context(), {x}, options); });
  options.workspace_bytes = {};
  // A block that begins in the middle of a buffer.
  std::vector<float> zeros(4096, 0.0f);
  cl::Buffer memory(cl::Context(context().native_context(), true),
                    CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, zeros.size() * 4, zeros.data());
  options.workspace = MutableView::device(memory(), 20, DType::f32, {bytes / 4});
  EXPECT_EQ(kernel.plan(context(), {x}, {}, options).workspace_bytes, bytes);
  context().trim();
  EXPECT_EQ(kernel(context(), {x}, options)[0].item(), 12000.0f);
  EXPECT_EQ(context().pooled_bytes(), 0);
  std::vector<float> after(zeros.size());
  const cl::CommandQueue queue(context().native_queue(), true);
  queue.enqueueReadBuffer(memory, CL_TRUE, 0, after.size() * 4, after.data());
  EXPECT_NE(after, zeros);
  options.workspace = MutableView::device(memory(), 20, DType::f32, {16});
  expect_error(ErrorCode::workspace_too_small, {"is 64"}, [&] { kernel(context(), {x}, options); });
}

TEST_F(CustomKernelOnDevice, RunsInOrderOnTheCallersQueueBehindItsEvents) {
  const cl::Context cl_context(context().native_context(), true);
  cl_int status = CL_SUCCESS;
  const cl::CommandQueue queue(
      clCreateCommandQueue(cl_context(), context().native_device(),
                           CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &status),
      false);
  ASSERT_EQ(status, CL_SUCCESS);
  const cl::Buffer x(cl_context, CL_MEM_READ_WRITE, 3000 * sizeof(float));
  const cl::Buffer y(cl_context, CL_MEM_READ_WRITE, sizeof(float));
  const cl::UserEvent go(cl_context);
  const std::vector<float> values(3000, 3.0f);
  cl::Event written;
  const std::vector<cl::Event> after = {go};
  queue.enqueueWriteBuffer(x, CL_FALSE, 0, 3000 * sizeof(float), values.data(), &after, &written);
  auto completion = custom_kernels::sum_squares().run(
      context(), {View::device(x(), 0, DType::f32, {3000})},
      {MutableView::device(y(), 0, DType::f32, {})},
      {.scalars = {2.0f}, .queue = queue(), .wait_for = {written()}});
  ASSERT_NE(completion.event(), nullptr);
  cl_int state = 0;
  clGetEventInfo(completion.event(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(state), &state,
                 nullptr);
  EXPECT_NE(state, CL_COMPLETE);  // it waits
  cl::UserEvent(go).setStatus(CL_COMPLETE);
  completion.wait();
  float sum = 0.0f;
  queue.enqueueReadBuffer(y, CL_TRUE, 0, sizeof(float), &sum);
  EXPECT_EQ(sum, 54000.0f);
}

TEST_F(CustomKernelOnDevice, ASourceThatDoesNotBuildFallsBackOrSaysWhy) {
  auto spec = CustomKernelSpec{
      .source = "kernel void broken(global const float* x, global float* y) { y[0] = nothing; }",
      .entry = "broken",
      .shape = [](const auto& in) { return std::vector<TensorSpec>{in[0]}; }};
  const std::vector<float> x = {1.0f};
  try {
    custom_kernel(spec)(context(), {x});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::build_failed);
    EXPECT_NE(std::string(error.what()).find("broken"), std::string::npos) << error.what();
    EXPECT_NE(error.build_log().find("nothing"), std::string::npos) << error.build_log();
  }
  spec.host = [](const auto& in, const auto&) {
    std::vector<HostTensor> results;
    results.emplace_back(DType::f32, in[0].extents());
    results[0].template as<float>()[0] = 7.0f;
    return results;
  };
  const auto result = custom_kernel(spec)(context(), {x});
  EXPECT_EQ(result[0].item(), 7.0f);
  ASSERT_EQ(result.dispatch.refused.size(), 1u);
  EXPECT_EQ(result.dispatch.refused[0].implementation, "opencl");
  expect_error(ErrorCode::build_failed, {"broken"},
               [&] { custom_kernel(spec)(context(), {x}, {.implementation = "opencl"}); });
}

TEST_F(CustomKernelOnDevice, LaunchesThatDisagreeWithKernelOrDeviceAreRefused) {
  using Argument = KernelArgument;
  const auto limit = static_cast<std::int64_t>(context().device_info().max_work_group_size);
  struct Refused {
    const char* name;
    KernelLaunch launch;
    std::vector<std::string> says;
  };
  const auto launch = [](std::vector<std::int64_t> global, std::vector<std::int64_t> local) {
    return KernelLaunch{"scale",
                        std::move(global),
                        std::move(local),
                        {{Argument::input(0), 1.0f, Argument::output(0)}}};
  };
  const auto given = [](std::vector<KernelArgument> arguments) {
    return KernelLaunch{"scale", {2}, {}, std::move(arguments)};
  };
  const Refused all[] = {
      {"no such entry", {"scalar", {2}, {}, {}}, {"no kernel \"scalar\"", "it has scale"}},
      {"too few", {"scale", {2}, {}, {}}, {"3 parameters and is given 2 arguments"}},
      {"of another type",
       given({Argument::input(1), 1.0f, Argument::output(0)}),
       {"parameter 0, float* x", "inputs[1] of i32", "declare it global int*"}},
      {"an array for a scalar",
       given({Argument::input(0), Argument::input(0), Argument::output(0)}),
       {"parameter 1, float factor", "inputs[0]", "global pointer"}},
      {"a scalar of another type",
       given({Argument::input(0), std::int32_t{1}, Argument::output(0)}),
       {"parameter 1, float factor", "declare it int"}},
      {"a scalar for an array",
       given({1.0f, 1.0f, Argument::output(0)}),
       {"parameter 0", "given a scalar"}},
      {"local memory for an array",
       given({Argument::local(4), 1.0f, Argument::output(0)}),
       {"parameter 0", "declare it a local pointer"}},
      {"an input that is none",
       given({Argument::input(2), 1.0f, Argument::output(0)}),
       {"input(2)", "the call has 2"}},
      {"scratch that is none",
       given({Argument::scratch(0), 1.0f, Argument::output(0)}),
       {"scratch(0)", "the call has 0"}},
      {"no work-items", launch({0}, {}), {"global size is [0]", "at least 1"}},
      {"no dimension", launch({}, {}), {"global size is []"}},
      {"four dimensions", launch({1, 1, 1, 1}, {}), {"one to three"}},
      {"negative", launch({2}, {-1}), {"local size is [-1]"}},
      {"another rank", launch({2}, {1, 1}), {"[1, 1]", "as many sizes"}},
      {"no multiple",
       launch({3}, {2}),
       {"[3] is no multiple of its local size [2]", "round it up"}},
      {"beyond the device",
       launch({std::int64_t{1} << 40}, {std::int64_t{1} << 40}),
       {"the most on this device in dimension 0 is"}},
      {"beyond the device as a whole",
       launch({limit, 2}, {limit, 2}),
       {"work-items, the most on this device is "}},
  };
  const std::vector<float> x = {1.0f, 2.0f};
  const std::vector<std::int32_t> counts = {1, 2};
  for (auto [name, wrong, says] : all) {
    SCOPED_TRACE(name);
    says.push_back("scaling");
    const auto kernel = custom_kernel(
        {.source = "kernel void scale(global const float* x, float factor, global float* y) {"
                   "  const size_t i = get_global_id(0); y[i] = factor * x[i]; }",
         .name = "scaling",
         .shape = [](const auto& in) { return std::vector<TensorSpec>{in[0]}; },
         .launches =
             [wrong = wrong](const auto&) {
               auto one = wrong;
               if (one.entry == "scale" && !one.arguments) {
                 one.arguments = {{Argument::input(0), Argument::output(0)}};
               }
               return std::vector<KernelLaunch>{one};
             }});
    std::vector<float> y = {-1.0f, -1.0f};
    expect_error(ErrorCode::invalid_argument, says, [&] {
      kernel.run(context(), {x, counts}, {y});
    });
    EXPECT_EQ(y, (std::vector<float>{-1.0f, -1.0f}));
  }
}

TEST_F(CustomKernelOnDevice, WhatASourceAsksForIsComparedWithItsLaunch) {
  using Argument = KernelArgument;
  struct Refused {
    const char* name;
    const char* source;
    KernelLaunch launch;
    std::vector<std::string> says;
  };
  const auto launch = [](std::vector<KernelArgument> arguments,
                         std::vector<std::int64_t> local = {}) {
    return KernelLaunch{"k", {2}, std::move(local), std::move(arguments)};
  };
  const auto y = Argument::output(0);
  const Refused all[] = {
      {"local memory",
       "kernel void k(local float* s, global float* y) { s[0] = 1; y[get_global_id(0)] = s[0]; }",
       launch({Argument::local(std::size_t{1} << 50), y}),
       {"bytes of local memory", std::to_string(runtime().facts().local_memory_bytes)}},
      {"the kernel's own work-group",
       "kernel __attribute__((reqd_work_group_size(2, 1, 1))) void k(global float* y) { y[0] = 1; "
       "}",
       launch({y}, {1}),
       {"[1]", "reqd_work_group_size says [2, 1, 1]"}},
      {"a vector",
       "kernel void k(float4 s, global float* y) { y[0] = s.x; }",
       launch({1.0f, y}),
       {"parameter 0, float4 s", "declare it float"}},
      {"wider elements",
       "kernel void k(global double* y) { y[0] = 1; }",
       launch({y}),
       {"parameter 0, double* y", "declare it global float*"}},
  };
  for (const auto& [name, source, wrong, says] : all) {
    SCOPED_TRACE(name);
    if (std::string(source).find("double") != std::string::npos &&
        runtime().facts().extensions.find("cl_khr_fp64") == std::string::npos) {
      continue;  // it does not compile
    }
    const auto kernel = custom_kernel(
        {.source = source,
         .name = "asking",
         .shape =
             [](const auto&) {
               return std::vector<TensorSpec>{{{2}, DType::f32}};
             },
         .launches = [wrong = wrong](const auto&) { return std::vector<KernelLaunch>{wrong}; }});
    std::vector<float> out = {-1.0f, -1.0f};
    try {
      kernel.run(context(), {}, {out});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      for (const auto& part : says) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
    }
    EXPECT_EQ(out, (std::vector<float>{-1.0f, -1.0f}));
  }
}

TEST_F(CustomKernelOnDevice, ArraysBeyondAllBytesAreRefused) {
  const float one = 1.0f;
  const std::int64_t many = std::int64_t{1} << 31;
  const auto small = [](const auto&) { return std::vector<TensorSpec>{{{1}, DType::f32}}; };
  const char* const source = "kernel void first(global const float* x, global float* y) {}";
  // 2^62 elements of one, whose bytes are no number of 64 bits.
  expect_error(ErrorCode::out_of_memory, {"first", "inputs[0]", "largest allocation"}, [&] {
    const auto kernel = custom_kernel({.source = source, .entry = "first", .shape = small});
    kernel(context(), {View::host(&one, DType::f32, {many, many}, {0, 0})});
  });
  expect_error(ErrorCode::out_of_memory, {"first", "scratch[0]", "largest allocation"}, [&] {
    custom_kernel({.source = source, .entry = "first", .shape = small, .scratch = [&](const auto&) {
                     return std::vector<TensorSpec>{{{many << 9, many << 9}, DType::f32}};
                   }})(context(), {});
  });
  expect_error(ErrorCode::invalid_argument, {"first", "`launches` gives none"}, [&] {
    custom_kernel({.source = source, .name = "first", .shape = small, .launches = [](const auto&) {
                     return std::vector<KernelLaunch>();
                   }})(context(), {});
  });
}

TEST_F(CustomKernelOnDevice, BackwardGivesTheGradientOfEachFloatingInput) {
  const auto kernel = custom_kernels::swiglu();
  const std::vector<float> gate = {0.5f, -1.0f}, up = {2.0f, 3.0f}, dy = {1.0f, -1.0f};
  const auto gradients = kernel.backward(context(), {gate, up}, {dy});
  // Against central differences of the forward pass, whose error is some 1e-3 at a step of 0.01.
  for (std::size_t i = 0; i < 2; ++i) {
    const auto y = [&](float dg, float du) {
      auto g = gate, u = up;
      g[i] += dg;
      u[i] += du;
      return kernel(context(), {g, u})[0].as<float>()[i] * dy[i];
    };
    constexpr float h = 0.01f;
    EXPECT_NEAR(gradients[0].as<float>()[i], (y(h, 0) - y(-h, 0)) / (2 * h), 1e-3f);
    EXPECT_NEAR(gradients[1].as<float>()[i], (y(0, h) - y(0, -h)) / (2 * h), 1e-3f);
  }
  const auto refused = [&](std::initializer_list<std::string> parts, const auto& call) {
    expect_error(ErrorCode::invalid_argument, parts, call);
  };
  refused({"swiglu.backward", "0 cotangents", "1 outputs"}, [&] {
    kernel.backward(context(), {gate, up}, {});
  });
  refused({"the cotangent of y is [1], the output has [2]"}, [&] {
    kernel.backward(context(), {gate, up}, {View::host(dy.data(), {1})});
  });
  const auto with_one_more = custom_kernel(
      {.source = custom_kernels::swiglu_source,
       .entry = "swiglu",
       .shape = [](const auto& in) { return std::vector<TensorSpec>{in[0]}; },
       .backward = custom_kernel({.source = custom_kernels::swiglu_source,
                                  .entry = "swiglu_backward",
                                  .shape = [](const auto& in) {
                                    return std::vector<TensorSpec>{in[0], in[1], in[2]};
                                  }})});
  refused({"swiglu.backward", "gives 3 gradients; the floating inputs are 2"}, [&] {
    with_one_more.backward(context(), {gate, up}, {dy});
  });
}

TEST_F(CustomKernelOnDevice, SeveralThreadsMayCallOneKernel) {
  const auto kernel = custom_kernels::sum_squares();
  std::array<bool, 4> good{};
  std::vector<std::thread> threads;
  for (std::size_t id = 0; id < good.size(); ++id) {
    threads.emplace_back([&, id] {
      bool all = true;
      const std::vector<float> x(500, 1.0f);
      for (int i = 0; i < 20; ++i) {
        const auto scale = static_cast<float>(id + 1);
        all = all && kernel(context(), {x}, {.scalars = {scale}})[0].item() == 500.0f * scale;
      }
      good[id] = all;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, (std::array<bool, 4>{true, true, true, true}));
}

}  // namespace
}  // namespace tessera::test
