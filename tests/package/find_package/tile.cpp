// SPDX-License-Identifier: Apache-2.0
// A stranger asks whether a TPU takes a block, and runs a kernel, over the tile machine alone.
#include <iostream>
#include <tessera/tile/call.hpp>
#include <tessera/tile/ops.hpp>
#include <vector>

namespace {

/// y = 2 x through blocks.
bool runs_a_kernel() {
  using namespace tessera::tile;
  std::vector<float> x(64 * 128, 3.0f), y(x.size());
  Machine machine({.chip = find_chip("v6e")});
  const auto from =
      machine.array<float>("x", tessera::View::host(x.data(), tessera::DType::f32, {64, 128}));
  const auto to = machine.array<float>(
      "y", tessera::MutableView::host(y.data(), tessera::DType::f32, {64, 128}));
  const auto rows = BlockSpec::blocks({8, 128}, [](const GridPoint& g) { return ix(g[0], 0); });
  call(machine, "twice", {.grid = {8}, .in = {rows}, .out = {rows}}, [](auto a, auto b) {
    map(
        b, [](float v) { return 2 * v; }, a);
  })(from, to);
  return y.back() == 6.0f && machine.report().time.modelled_seconds > 0;
}

}  // namespace

int main() {
  namespace tile = tessera::tile;
  const tile::Chip& chip = tile::find_chip("TPU v5 lite");
  const auto rules = tile::check_block(chip, "x", {64, 512}, tile::ElementType::bf16,
                                       {.dims = tile::BlockDims{8, 100}});
  if (rules.size() != 1 || rules.front().rule != "R2") return 1;
  if (!runs_a_kernel()) return 1;
  try {
    tile::find_chip("abacus");
  } catch (const tessera::Error& error) {  // caught by type across the library
    std::cout << error.what() << "\n";
    return 0;
  }
  return 1;
}
