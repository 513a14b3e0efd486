// SPDX-License-Identifier: Apache-2.0
// A stranger asks whether a TPU takes his blocks.
#include <iostream>
#include <tessera/tile/loss_rules.hpp>

int main() {
  namespace tile = tessera::tile;
  const tile::Chip& chip = tile::find_chip("TPU v5 lite");
  const tile::LossShape shape{1024, 4096, 128256, tile::ElementType::bf16, tile::ElementType::bf16};
  if (!tile::check_loss_blocks(chip, {}, shape, tessera::Pass::backward).empty()) return 1;
  try {
    tile::find_chip("abacus");
  } catch (const tessera::Error& error) {  // caught by type across the library
    std::cout << error.what() << "\n";
    return 0;
  }
  return 1;
}
