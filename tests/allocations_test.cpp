// SPDX-License-Identifier: Apache-2.0
// What a steady call allocates on the calling thread (docs/design.md, "Bounded memory").
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "tests/support/matrix.hpp"

namespace {

thread_local bool counts = false;
thread_local std::int64_t blocks = 0;
thread_local std::int64_t bytes = 0;

void* counted(std::size_t size) {
  if (counts) {
    ++blocks;
    bytes += static_cast<std::int64_t>(size);
  }
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// The replacement is a pair for malloc and free; GCC 12 sees one half of it where it inlines.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif
void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

struct Allocated {
  std::int64_t blocks, bytes;
};

/// Of the fourth of equal calls.
Allocated steady_call(Context& context, const std::string& implementation, std::int64_t b,
                      std::int64_t v) {
  constexpr std::int64_t h = 16;
  const auto numbers = [](std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.01f * static_cast<float>(i % 7);
    return values;
  };
  auto x = numbers(b * h), w = numbers(h * v), grad_x = x, grad_w = w;
  std::vector<float> loss(1), lse(static_cast<std::size_t>(b));
  std::vector<std::int32_t> labels(static_cast<std::size_t>(b), 1);
  lce::Inputs inputs;
  inputs.x = View::host(x.data(), DType::f32, {b, h});
  inputs.w = View::host(w.data(), DType::f32, {h, v});
  inputs.labels = View::host(labels.data(), Dims{b});
  Outputs outputs;
  outputs.loss = MutableView::host(loss.data(), DType::f32, {});
  outputs.lse = MutableView::host(lse.data(), DType::f32, {b});
  lce::Gradients gradients;
  gradients.grad_x = MutableView::host(grad_x.data(), DType::f32, {b, h});
  gradients.grad_w = MutableView::host(grad_w.data(), DType::f32, {h, v});
  lce::ExecutionOptions execution;
  execution.implementation = {implementation};
  for (int i = 0; i < 4; ++i) {
    counts = i == 3;
    blocks = bytes = 0;
    lce::value_and_grad(context, inputs, outputs, gradients, {}, execution).wait();
    counts = false;
  }
  return {blocks, bytes};
}

class Allocations : public ImplementationTest {};

TEST_P(Allocations, OfASteadyCallDoNotGrow) {
  if (std::getenv("OPENCL_LAYERS") != nullptr) GTEST_SKIP() << "a layer allocates here too";
  Context& context = shared_context();
  const Allocated small = steady_call(context, GetParam(), 3, 100);
  const Allocated large = steady_call(context, GetParam(), 60, 3000);
  // The report and the completion: some forty blocks, with names and notes of no fixed number.
  EXPECT_LE(small.blocks, 48);
  EXPECT_LE(large.blocks, 48);
  // A row of logits would be 12,000 bytes.
  EXPECT_LE(small.bytes, 8192);
  EXPECT_LE(large.bytes, 8192);
  EXPECT_GT(small.blocks, 0) << "nothing is counted";
}

INSTANTIATE_TEST_SUITE_P(All, Allocations,
                         testing::ValuesIn(implementations_of<lce::Operator>(streams)),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Allocations);

}  // namespace
}  // namespace tessera::test
