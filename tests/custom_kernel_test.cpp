// SPDX-License-Identifier: Apache-2.0
// Custom kernels without a device: what they refuse, their function for the host, and a body for
// the tile machine.
#include "tessera/custom_kernel.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tessera/tile/call.hpp"
#include "tessera/tile/ops.hpp"
#include "tessera/tile_body.hpp"
#include "tests/support/expect_error.hpp"

namespace tessera::test {
namespace {

/// Twice x, on the host.
CustomKernelSpec doubling() {
  return {.source = "kernel void twice(global const float* x, global float* y) {}",
          .entry = "twice",
          .inputs = {"x"},
          .outputs = {"y"},
          .shape = [](const auto& in) { return std::vector<TensorSpec>{in[0]}; },
          .parameters = {{.name = "N", .standard = 2, .most = 8}},
          .host =
              [](const auto& in, const auto& call) {
                std::vector<HostTensor> results;
                results.emplace_back(DType::f32, call.outputs[0].extents());
                const auto* x = static_cast<const float*>(in[0].host_data());
                for (float& y : results[0].template as<float>()) {
                  y = static_cast<float>(call.value("N")) * *x++;
                }
                return results;
              }};
}

struct Mistake {
  const char* name;
  std::function<void(CustomKernelSpec&)> breaks;
  std::vector<std::string> says;
};

TEST(CustomKernel, ADescriptionThatCannotBeRightIsRefusedAtOnce) {
  using Spec = CustomKernelSpec;
  const Mistake all[] = {
      {"no shape", [](Spec& s) { s.shape = {}; }, {"twice: `shape` is not given"}},
      {"no body", [](Spec& s) { s.source = {}; }, {"neither `source` nor `tile`"}},
      {"no entry",
       [](Spec& s) {
         s.entry = {};
         s.name = "two";
       },
       {"two: neither `entry` nor `launches`"}},
      {"no name",
       [](Spec& s) {
         s.entry = {};
         s.launches = [](const auto&) { return std::vector<KernelLaunch>(); };
       },
       {"custom_kernel: `name` is not given"}},
      {"no macro", [](Spec& s) { s.knobs = {{.name = "2 N"}}; }, {"\"2 N\"", "letters"}},
      {"twice the same", [](Spec& s) { s.block_sizes = {{.name = "N"}}; }, {"two numbers \"N\""}},
      {"default out of range",
       [](Spec& s) { s.parameters[0].standard = 9; },
       {"N is 9 by default", "1 to 8"}},
      {"too many", [](Spec& s) { s.inputs.resize(21); }, {"21 inputs", "most of each is 20"}},
  };
  for (const auto& mistake : all) {
    SCOPED_TRACE(mistake.name);
    auto spec = doubling();
    mistake.breaks(spec);
    expect_error(ErrorCode::invalid_argument, mistake.says, [&] { custom_kernel(spec); });
  }
  Context context(ContextOptions{.host_only = true});
  expect_error(ErrorCode::invalid_argument, {"CustomKernel is none"},
               [&] { CustomKernel()(context, {}); });
}

TEST(CustomKernel, WhatItsFunctionsDoWrongIsOneErrorAndNoOutputIsTouched) {
  using Spec = CustomKernelSpec;
  const auto returns = [](DType type, const Dims& extents) {
    return [=](const auto&, const auto&) {
      std::vector<HostTensor> results;
      results.emplace_back(type, extents);
      return results;
    };
  };
  const Mistake all[] = {
      {"shape throws",
       [](Spec& s) {
         s.shape = [](const auto&) -> std::vector<TensorSpec> {
           throw std::runtime_error("x is odd");
         };
       },
       {"twice: its function `shape` threw: x is odd"}},
      {"shape reads too far",
       [](Spec& s) { s.shape = [](const auto& in) { return std::vector<TensorSpec>{in[1]}; }; },
       {"`shape` threw"}},
      {"no such number",
       [](Spec& s) {
         s.shape = [](const auto& in) {
           return std::vector<TensorSpec>{{{in.value("M")}, DType::f32}};
         };
       },
       {"`shape` threw", "\"M\""}},
      {"negative",
       [](Spec& s) {
         s.shape = [](const auto&) { return std::vector<TensorSpec>{{{2, -3}, DType::f32}}; };
       },
       {"f32 [2, -3] for y", "least extent is 0"}},
      {"no output",
       [](Spec& s) { s.shape = [](const auto&) { return std::vector<TensorSpec>(); }; },
       {"gives no output"}},
      {"one more output",
       [](Spec& s) {
         s.shape = [](const auto& in) { return std::vector<TensorSpec>{in[0], in[0]}; };
       },
       {"2 outputs of the shape function, it has 1: y"}},
      {"check",
       [](Spec& s) { s.check = [](const auto&) { return "x is too long"; }; },
       {"twice: x is too long"}},
      {"host throws",
       [](Spec& s) {
         s.host = [](const auto&, const auto&) -> std::vector<HostTensor> {
           throw std::runtime_error("no luck");
         };
       },
       {"`host` threw: no luck"}},
      {"host returns nothing",
       [](Spec& s) { s.host = [](const auto&, const auto&) { return std::vector<HostTensor>(); }; },
       {"`host` returned 0 tensors", "says 1"}},
      {"host returns another shape",
       [&](Spec& s) { s.host = returns(DType::f32, {4}); },
       {"returned f32 [4] for y", "says f32 [3]"}},
      {"host returns another type",
       [&](Spec& s) { s.host = returns(DType::i32, {3}); },
       {"returned i32 [3] for y"}},
  };
  Context context(ContextOptions{.host_only = true});
  const std::vector<float> x = {1, 2, 3};
  for (const auto& mistake : all) {
    SCOPED_TRACE(mistake.name);
    auto spec = doubling();
    mistake.breaks(spec);
    std::vector<float> y(3, -1.0f);
    expect_error(ErrorCode::invalid_argument, mistake.says,
                 [&] { custom_kernel(spec).run(context, {x}, {y}, {.implementation = "host"}); });
    EXPECT_EQ(y, std::vector<float>(3, -1.0f));
  }
}

TEST(CustomKernel, ArgumentsThatDisagreeAreNamed) {
  Context context(ContextOptions{.host_only = true});
  const auto twice = custom_kernel(doubling());
  std::vector<float> x = {1, 2, 3}, y(3);
  const auto refused = [&](std::initializer_list<std::string> parts, const auto& call) {
    expect_error(ErrorCode::invalid_argument, parts, call);
  };
  refused({"twice: it is given 2 inputs, it has 1: x"}, [&] { twice(context, {x, x}); });
  refused({"twice: x is not given"}, [&] { twice(context, {View()}); });
  refused({"x has extents [-1]"}, [&] { twice(context, {View::host(x.data(), {-1})}); });
  refused({"y is i32 [3], its shape function says f32 [3]"}, [&] {
    std::vector<std::int32_t> other(3);
    twice.run(context, {x}, {other});
  });
  refused({"y is f32 [2], its shape function says f32 [3]"},
          [&] { twice.run(context, {x}, {MutableView::host(y.data(), {2})}); });
  refused({"it is given 2 outputs; its shape function says 1"}, [&] {
    twice.run(context, {x}, {y, y});
  });
  refused({"y overlaps the input x"}, [&] { twice.run(context, {x}, {x}); });
  refused({"N is 9; its range is 1 to 8"}, [&] {
    twice(context, {x}, {.parameters = {{"N", 9}}});
  });
  refused({"parameters has N twice, as 1 and as 2"}, [&] {
    twice(context, {x}, {.parameters = {{"N", 1}, {"N", 2}}});
  });
  refused({"parameters has no \"M\"; the kernel has N"}, [&] {
    twice(context, {x}, {.parameters = {{"M", 1}}});
  });
  refused({"block_sizes has no \"N\"; the kernel has none"}, [&] {
    twice(context, {x}, {.block_sizes = {{"N", 1}}});
  });
  refused({"unknown name \"eigen\"", "opencl, host"},
          [&] { twice(context, {x}, {.implementation = "eigen"}); });
  refused({"twice.backward: the kernel has none"}, [&] { twice.backward(context, {x}, {y}); });
}

TEST(CustomKernel, TheHostFunctionFindsArraysDenseAndServesWhereNoDeviceCan) {
  std::vector<std::string> warnings;
  Context context(ContextOptions{
      .host_only = true, .warning_handler = [&](const auto& text) { warnings.push_back(text); }});
  const auto twice = custom_kernel(doubling());
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};
  std::vector<float> y(12, -1.0f);
  // The columns of [2, 3] as rows, into every second element.
  const auto columns = View::host(x.data(), {3, 2}, {1, 3});
  auto completion = twice.run(context, {columns}, {MutableView::host(y.data(), {3, 2}, {4, 2})});
  completion.wait();
  EXPECT_EQ(y, (std::vector<float>{2, -1, 8, -1, 4, -1, 10, -1, 6, -1, 12, -1}));
  EXPECT_EQ(completion.dispatch().implementation, "host");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("opencl refused twice"), std::string::npos) << warnings[0];
  EXPECT_NE(twice.why_unsupported(context, "opencl", {columns}), std::nullopt);
  EXPECT_EQ(twice.why_unsupported(context, "host", {columns}), std::nullopt);
  EXPECT_EQ(twice.plan(context, {columns}).dispatch.implementation, "host");
  EXPECT_EQ(twice.shapes({columns})[0], TensorSpec({3, 2}, DType::f32));
  expect_error(ErrorCode::unsupported, {"twice: opencl cannot run it"},
               [&] { twice(context, {columns}, {.implementation = "opencl"}); });
  // Nothing to do is done.
  EXPECT_EQ(twice(context, {View::host(x.data(), {0})})[0].size(), 0);
}

TEST(CustomKernel, ABodyForTheTileMachineRunsOnTheContextsChip) {
  const auto kernel = custom_kernel(
      {.name = "shifted",
       .shape = [](const auto& in) { return std::vector<TensorSpec>{in[0]}; },
       .tile = tile::body([](tile::Machine& machine, const auto& in, const auto& out,
                             const KernelCall&) {
         const auto x = machine.array<float>("x", in[0]);
         const auto y = machine.array<float>("y", out[0]);
         const auto block = tile::BlockSpec::blocks({8, 128}, [](auto&) { return tile::ix(0, 0); });
         tile::call(machine, "shifted", {.grid = {1}, .in = {block}, .out = {block}},
                    [](auto a, auto b) {
                      tile::map(
                          b, [](float v) { return v + 1.0f; }, a);
                    })(x, y);
       })});
  Context context(ContextOptions{.device = "v6e"});
  std::vector<float> x(8 * 128);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const auto result = kernel(context, {View::host(x.data(), {8, 128})});
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(result[0].as<float>()[i], x[i] + 1.0f);
  EXPECT_EQ(result.dispatch.implementation, "tpu_tile");
  ASSERT_EQ(result.dispatch.notes.size(), 1u);
  EXPECT_NE(result.dispatch.notes[0].find("v6e"), std::string::npos) << result.dispatch.notes[0];
}

}  // namespace
}  // namespace tessera::test
