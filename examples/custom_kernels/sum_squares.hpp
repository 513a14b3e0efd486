// SPDX-License-Identifier: Apache-2.0
// A sum in two launches: work-groups leave theirs in scratch, one work-item adds them up. The size
// of a work-group is a block size, how many values a work-item takes is a knob.
#pragma once

#include <algorithm>

#include "tessera/custom_kernel.hpp"

namespace custom_kernels {

inline const char* const sum_squares_source = R"(
kernel void partial_sums(global const float* x, long count, local float* shared,
                         global float* sums) {
  const size_t item = get_local_id(0);
  float own = 0.0f;
  for (long i = 0; i < VALUES; ++i) {
    const long at = (long)get_group_id(0) * GROUP * VALUES + i * GROUP + item;
    if (at < count) own += x[at] * x[at];
  }
  shared[item] = own;
  // Every item of the group has stored its sum before one of them adds them up.
  barrier(CLK_LOCAL_MEM_FENCE);
  if (item != 0) return;
  float total = 0.0f;
  for (int other = 0; other < GROUP; ++other) total += shared[other];
  sums[get_group_id(0)] = total;
}

kernel void add_sums(global const float* sums, long groups, float scale, global float* result) {
  float total = 0.0f;
  for (long group = 0; group < groups; ++group) total += sums[group];
  *result = scale * total;
})";

/// scale * sum of x^2; the scale is the call's one scalar.
inline tessera::CustomKernel sum_squares() {
  using tessera::KernelArgument, tessera::KernelLaunch, tessera::TensorSpec;
  const auto groups = [](const tessera::KernelCall& call) {
    const std::int64_t values = call.value("GROUP") * call.value("VALUES");
    return std::max<std::int64_t>(1, (call.inputs[0].size() + values - 1) / values);
  };
  return tessera::custom_kernel(
      {.source = sum_squares_source,
       .name = "sum_squares",
       .inputs = {"x"},
       .outputs = {"sum"},
       .shape =
           [](const auto& in) {
             return std::vector<TensorSpec>{{{}, in[0].dtype()}};
           },
       .block_sizes = {{.name = "GROUP", .standard = 64, .most = 1024}},
       .knobs = {{.name = "VALUES", .standard = 16}},
       .check =
           [](const auto& call) {
             return call.scalars.size() == 1 ? "" : "it takes one scalar, the scale";
           },
       .launches =
           [=](const auto& call) {
             const std::int64_t group = call.value("GROUP"), count = groups(call);
             return std::vector<KernelLaunch>{
                 {.entry = "partial_sums",
                  .global = {count * group},
                  .local = {group},
                  .arguments = {{KernelArgument::input(0), call.inputs[0].size(),
                                 KernelArgument::local(sizeof(float) *
                                                       static_cast<std::size_t>(group)),
                                 KernelArgument::scratch(0)}}},
                 {.entry = "add_sums",
                  .global = {1},
                  .arguments = {{KernelArgument::scratch(0), count, call.scalars[0],
                                 KernelArgument::output(0)}}}};
           },
       .scratch =
           [=](const auto& call) {
             return std::vector<TensorSpec>{{{groups(call)}, tessera::DType::f32}};
           }});
}

}  // namespace custom_kernels
