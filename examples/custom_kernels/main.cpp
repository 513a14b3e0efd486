// SPDX-License-Identifier: Apache-2.0
// Kernels of one's own as operators: runs those beside this file on a device and on the tile
// machine, and compares each with plain C++.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "examples/custom_kernels/add_vectors.hpp"
#include "examples/custom_kernels/sum_squares.hpp"
#include "examples/custom_kernels/swiglu.hpp"
#include "tessera/tessera.hpp"

namespace {

using namespace custom_kernels;
using tessera::View;

int failures = 0;

std::vector<float> numbers(std::size_t count, float step) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = std::sin(step * static_cast<float>(i));
  return values;
}

/// Says what ran, and how far its result is from `expected(i)`.
template <class Expected>
void report(const char* name, const tessera::CustomResult& result, std::size_t output,
            float tolerance, const Expected& expected) {
  float worst = 0.0f;
  const auto values = result[output].as<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    worst = std::max(worst, std::abs(values[i] - expected(i)));
  }
  const bool good = worst <= tolerance;
  if (!good) ++failures;
  fmt::print("{:24} {:10} largest difference {:.1e} {}\n", name, result.dispatch.implementation,
             worst, good ? "" : "WRONG");
  for (const auto& note : result.dispatch.notes) fmt::print("{:24} {}\n", "", note);
}

void add(tessera::Context& context, const tessera::CustomKernel& kernel) {
  const auto x = numbers(3 * 2 * 128 * 4, 0.1f), y = numbers(3 * 2 * 128 * 4, 0.7f);
  const auto shaped = [](const auto& values) { return View::host(values.data(), {3, 2, 128, 4}); };
  const auto sum = kernel(context, {shaped(x), shaped(y)});
  report("add_vectors", sum, 0, 0.0f, [&](std::size_t i) { return x[i] + y[i]; });
}

void swiglu(tessera::Context& context) {
  const auto kernel = custom_kernels::swiglu();
  const auto gate = numbers(1000, 0.3f), up = numbers(1000, 1.1f), dy = numbers(1000, 0.9f);
  const auto sigmoid = [&](std::size_t i) { return 1.0f / (1.0f + std::exp(-gate[i])); };
  // exp is within 3 ulp in OpenCL, and the values are below 1.
  report("swiglu", kernel(context, {gate, up}), 0, 1e-6f,
         [&](std::size_t i) { return gate[i] * sigmoid(i) * up[i]; });
  if (!context.has_device()) return;
  const auto gradients = kernel.backward(context, {gate, up}, {dy});
  report("swiglu, gate", gradients, 0, 1e-6f, [&](std::size_t i) {
    return dy[i] * up[i] * sigmoid(i) * (1.0f + gate[i] * (1.0f - sigmoid(i)));
  });
  report("swiglu, up", gradients, 1, 1e-6f,
         [&](std::size_t i) { return dy[i] * gate[i] * sigmoid(i); });
}

void sum_squares(tessera::Context& context) {
  const auto kernel = custom_kernels::sum_squares();
  const auto x = numbers(10000, 0.01f);
  double sum = 0.0;
  for (const float value : x) sum += double{value} * double{value};
  // Sums of at most 16, 64 and 10 positive numbers, one after the other: 90 roundings.
  const auto tolerance = static_cast<float>(90 * 6e-8 * 0.5 * sum);
  for (const std::int64_t group : {1, 64}) {
    const auto result =
        kernel(context, {x}, {.block_sizes = {{"GROUP", group}}, .scalars = {0.5f}});
    report("sum_squares", result, 0, tolerance,
           [&](std::size_t) { return static_cast<float>(0.5 * sum); });
  }
}

}  // namespace

int main() {
  try {
    tessera::Context context;
    add(context, add_tiles());
    swiglu(context);
    if (context.has_device()) {
      add(context, add_vectors());
      sum_squares(context);
    }
  } catch (const tessera::Error& error) {
    fmt::print(stderr, "{}\n{}\n", error.what(), error.build_log());
    return 1;
  }
  return failures == 0 ? 0 : 1;
}
