// SPDX-License-Identifier: Apache-2.0
// The same function of shapes over two bodies: OpenCL C for devices, and one for the tile machine.
#pragma once

#include <stdexcept>

#include "tessera/custom_kernel.hpp"
#include "tessera/tile/call.hpp"
#include "tessera/tile/ops.hpp"
#include "tessera/tile_body.hpp"

namespace custom_kernels {

inline const auto shape_of_sum = [](const auto& in) {
  if (!(in[0] == in[1])) throw std::invalid_argument("x and y have to be alike");
  return std::vector<tessera::TensorSpec>{in[0]};
};

inline tessera::CustomKernel add_vectors() {
  return tessera::custom_kernel({.source = R"(
      kernel void add_vectors(global const INPUT_0_TYPE* x, global const INPUT_1_TYPE* y,
                              global OUTPUT_0_TYPE* sum) {
        const size_t i = get_global_id(0);
        sum[i] = x[i] + y[i];
      })",
                                 .entry = "add_vectors",
                                 .shape = shape_of_sum});
}

/// Arrays of rank 4 on the tile machine: the last two axes are a block.
inline tessera::CustomKernel add_tiles() {
  using namespace tessera::tile;
  const auto add = [](Machine& machine, const auto& in, const auto& out, const auto& /*call*/) {
    const auto& extents = in[0].extents();
    const auto block = BlockSpec::blocks({squeezed(), squeezed(), extents[2], extents[3]},
                                         [](auto& g) { return ix(g[0], g[1], 0, 0); });
    const auto x = machine.array<float>("x", in[0]);
    const auto y = machine.array<float>("y", in[1]);
    const auto sum = machine.array<float>("sum", out[0]);
    call(machine, "add_vectors",
         {.grid = {extents[0], extents[1]}, .in = {block, block}, .out = {block}},
         [](auto a, auto b, auto o) {
           map(
               o, [](float u, float v) { return u + v; }, a, b);
         })(x, y, sum);
  };
  return tessera::custom_kernel({.name = "add_vectors", .shape = shape_of_sum, .tile = body(add)});
}

}  // namespace custom_kernels
