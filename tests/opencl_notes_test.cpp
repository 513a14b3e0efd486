// SPDX-License-Identifier: Apache-2.0
// What a call says on GPUs and on devices that do not share the host's memory. Any device plays
// them.
#include <CL/cl.h>
#include <gtest/gtest.h>

#include "host/opencl/runtime.hpp"
#include "tessera/tessera.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;
namespace sce = softmax_cross_entropy;

using Notes = std::vector<std::string>;
constexpr std::int64_t b = 3, h = 4, v = 70;

class OpenclNotes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!context_.has_device()) GTEST_SKIP() << "no OpenCL device";
    facts().is_gpu = false;  // on a GPU each call would have its note
  }
  void TearDown() override {
    for (const cl_mem memory : memory_) clReleaseMemObject(memory);
  }
  opencl::DeviceFacts& facts() { return opencl::runtime_of(context_.state())->facts_for_test(); }
  cl_mem device_copy(void* data, std::size_t bytes) {
    cl_int status = CL_SUCCESS;
    memory_.push_back(clCreateBuffer(
        context_.native_context(), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, data, &status));
    EXPECT_EQ(status, CL_SUCCESS);
    return memory_.back();
  }
  Dispatch forward(const View& x, const View& w, const View& labels, const MutableView& loss) {
    auto done = lce::forward(context_, {.x = x, .labels = labels, .w = w}, {.loss = loss}, {},
                             {.implementation = "opencl.simt"});
    done.wait();
    return done.dispatch();
  }

  Context context_;
  std::vector<float> x_ = std::vector<float>(b * h, 0.5f), w_ = std::vector<float>(h * v, 0.25f);
  std::vector<std::int32_t> labels_{1, 2, 3};
  float loss_ = 0.0f;
  std::vector<cl_mem> memory_;
};

TEST_F(OpenclNotes, CopiesOfHostArraysAreCountedWithTheRemedy) {
  const View x = View::host(x_.data(), {b, h}), w = View::host(w_.data(), {h, v});
  const MutableView loss = MutableView::host(&loss_, {});
  facts().zero_copy = true;
  EXPECT_EQ(forward(x, w, labels_, loss).notes, Notes{});
  facts().zero_copy = false;
  const Dispatch staged = forward(x, w, labels_, loss);
  EXPECT_EQ(staged.staged_bytes, 4 * (b * h + h * v + b + 1));
  EXPECT_EQ(staged.notes,
            Notes{"copies of host arrays on the device take 1184 bytes in each such call; keep "
                  "what calls share in device memory (View::device, examples/device_memory)"});
  // With the remedy.
  const Dispatch kept =
      forward(View::device(device_copy(x_.data(), 4 * b * h), 0, DType::f32, {b, h}),
              View::device(device_copy(w_.data(), 4 * h * v), 0, DType::f32, {h, v}),
              View::device(device_copy(labels_.data(), 4 * b), 0, DType::i32, {b}),
              MutableView::device(device_copy(&loss_, 4), 0, DType::f32, {}));
  EXPECT_EQ(kept.staged_bytes, 0);
  EXPECT_EQ(kept.notes, Notes{});
}

TEST_F(OpenclNotes, KernelsThatNoSuchGpuHasRunSaySo) {
  const View x = View::host(x_.data(), {b, h}), w = View::host(w_.data(), {h, v});
  const View labels = View::host(labels_.data(), {b});
  const MutableView loss = MutableView::host(&loss_, {});
  const Notes never{"of GPUs these kernels were measured on NVIDIA's alone"};
  for (const bool is_gpu : {false, true}) {
    facts().is_gpu = is_gpu;
    const auto planned = lce::plan(context_, Pass::forward, {.x = x, .labels = labels, .w = w},
                                   {.loss = loss}, {}, {}, {.implementation = "opencl.simt"});
    EXPECT_EQ(planned.dispatch.notes, is_gpu ? never : Notes{});
    const auto of_logits = sce::plan(context_, Pass::forward,
                                     {.logits = View::host(w_.data(), {b, v}), .labels = labels},
                                     {.loss = loss}, {}, {}, {.implementation = "opencl.simt"});
    EXPECT_EQ(of_logits.dispatch.notes, is_gpu ? never : Notes{});
  }
}

}  // namespace
}  // namespace tessera::test
