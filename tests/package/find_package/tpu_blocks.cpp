// SPDX-License-Identifier: Apache-2.0
// A stranger asks which blocks of the fused loss a TPU takes, and how long it would be.
#include <iostream>
#include <tessera/linear_cross_entropy_tile.hpp>

int main() {
  namespace tpu_tile = tessera::linear_cross_entropy::tpu_tile;
  namespace tile = tessera::tile;
  const tile::Chip& chip = tile::find_chip("TPU v5 lite");
  const tpu_tile::Problem problem{
      .shape = {1024, 512, 1500, tile::ElementType::bf16, tile::ElementType::bf16},
      .blocks = tessera::linear_cross_entropy::BlockSizes{1024, 512, 512}};
  if (!tpu_tile::check(chip, problem).empty()) return 1;
  if (tpu_tile::check_blocks(chip, {100, 512, 512}, problem.shape, problem.pass).empty()) return 1;
  tile::MachineOptions options{.chip = chip};
  options.dry_run = true;
  const auto modelled = tpu_tile::model(options, problem);
  std::cout << modelled.report.time.modelled_seconds << " s\n";
  return modelled.report.time.modelled_seconds > 0 ? 0 : 1;
}
