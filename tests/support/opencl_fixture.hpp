// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "host/dispatch/context_state.hpp"
#include "host/opencl/call.hpp"
#include "host/opencl/embedded_kernels.hpp"
#include "host/opencl/host_ranges.hpp"
#include "host/opencl/workspace_pool.hpp"
#include "tessera/context.hpp"
#include "tests/support/scale_arguments.h"

namespace tessera::opencl {

/// y[i, j] (+)= a * x[i, j]: enough of a kernel to see bindings, offsets, strides and order.
inline constexpr const char* test_kernel_file = "test/scale.cl";
inline constexpr const char* test_kernel_source = R"(
#include "test/scale_arguments.h"
__kernel void scale(__global const float* x, __global float* y, scale_arguments a) {
  const long i = get_global_id(0);
  const long j = get_global_id(1);
  __global float* out = y + a.at.y + i * a.size.y_row + j * a.size.y_column;
  const float value = a.size.factor * x[a.at.x + i * a.size.x_row + j * a.size.x_column];
  *out = a.size.add ? *out + value : value;
}
#ifdef BROKEN
this does not compile
#endif
)";

inline void register_test_kernel() {
  std::ifstream header(TESSERA_TEST_SUPPORT "/scale_arguments.h");
  const std::string text(std::istreambuf_iterator<char>(header), {});
  EXPECT_FALSE(text.empty()) << TESSERA_TEST_SUPPORT;
  override_embedded_kernel("test/scale_arguments.h", text);
  override_embedded_kernel(test_kernel_file, test_kernel_source);
}

/// A state with a runtime behind it, as a Context has; nullptr device: no driver here.
inline std::shared_ptr<ContextState> make_state(std::shared_ptr<Runtime> runtime) {
  register_test_kernel();
  return std::make_shared<ContextState>(ContextOptions{}, std::move(runtime));
}

inline Specialisation scale_specialisation(const std::string& options = "") {
  return {test_kernel_file, options};
}

/// Enqueues y (+)= a * x over two axes.
inline void launch_scale(Call& call, const Binding& x, const Binding& y, float a, bool add,
                         const std::string& options = "") {
  const auto stride = [](const Binding& b, int axis) -> std::int64_t {
    return b.strides.rank() > axis ? b.strides[axis] : 0;
  };
  const Range range{{static_cast<std::size_t>(y.extents[0]),
                     y.extents.rank() > 1 ? static_cast<std::size_t>(y.extents[1]) : std::size_t{1},
                     1}};
  call.launch(scale_specialisation(options), range, kernels::scale_memory{.x = x, .y = y},
              {.x_row = stride(x, 0),
               .x_column = stride(x, 1),
               .y_row = stride(y, 0),
               .y_column = stride(y, 1),
               .factor = a,
               .add = add});
}

/// A whole call: y (+)= a * x.
inline std::unique_ptr<Completion::State> run_scale(const std::shared_ptr<ContextState>& state,
                                                    const View& x, const MutableView& y, float a,
                                                    bool add, const CallOptions& options = {},
                                                    dispatch::Attempt* attempt = nullptr) {
  dispatch::Attempt own;
  Call call(state, *runtime_of(*state), options, attempt != nullptr ? *attempt : own);
  const Binding from = call.read(x, "x");
  const Binding to = call.write(y, "y", add);
  launch_scale(call, from, to, a, add);
  return call.finish();
}

inline std::vector<float> iota(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i) + 1.0f;
  return values;
}

/// Opens the default device, or skips the test where there is none.
class OpenclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    runtime_ = Runtime::open({});
    if (runtime_ == nullptr) GTEST_SKIP() << "no OpenCL device";
    state_ = make_state(runtime_);
  }

  cl_mem make_buffer(const std::vector<float>& values) {
    cl_int status = CL_SUCCESS;
    const cl_mem memory =
        clCreateBuffer(runtime_->native_context(), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                       values.size() * sizeof(float), const_cast<float*>(values.data()), &status);
    EXPECT_EQ(status, CL_SUCCESS);
    buffers_.emplace_back(memory, false);
    return memory;
  }

  std::vector<float> content(cl_mem memory, std::size_t count) {
    std::vector<float> values(count);
    EXPECT_EQ(clEnqueueReadBuffer(runtime_->native_queue(), memory, CL_TRUE, 0,
                                  count * sizeof(float), values.data(), 0, nullptr, nullptr),
              CL_SUCCESS);
    return values;
  }

  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<ContextState> state_;
  std::vector<cl::Buffer> buffers_;
};

}  // namespace tessera::opencl
