// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tessera/linear_cross_entropy.hpp"
#include "tessera/tile/block_spec.hpp"

namespace tessera::tile {

/// The fused loss as its block rules see it.
struct LossShape {
  std::int64_t b = 0;
  std::int64_t h = 0;
  std::int64_t v = 0;
  ElementType x_type = ElementType::f32;
  ElementType w_type = ElementType::f32;
};

/// Whose kernel: Marin's rules are R7 to R10, Tokamax's configuration asks for R11 as well.
enum class LossKernel { marin, tokamax };

/// Windows and scratch that the schedule of `pass` (forward or backward) declares: x and w in two
/// buffers, three vectors of b elements in two, the f32 logits tile, and for backward the f32 tiles
/// in which dx and dw are read, added to and written.
TESSERA_API std::vector<Allocation> loss_allocations(const linear_cross_entropy::BlockSizes& blocks,
                                                     Pass pass, ElementType x_type,
                                                     ElementType w_type);

/// VMEM with the compiler's temporaries, bytes, as Tokamax estimates it: forward keeps four f32
/// tiles of b x v, backward three. An estimate beside the declared sum, not a reason to refuse.
TESSERA_API std::int64_t loss_vmem_with_temporaries(const linear_cross_entropy::BlockSizes& blocks,
                                                    Pass pass, ElementType x_type,
                                                    ElementType w_type);

/// Rules R7 to R11 and R13 for block sizes of the fused loss; empty when they are legal. `pass` is
/// forward or backward; any other throws TileError (usage).
TESSERA_API std::vector<Violation> check_loss_blocks(const Chip& chip,
                                                     const linear_cross_entropy::BlockSizes& blocks,
                                                     const LossShape& shape, Pass pass,
                                                     LossKernel kernel = LossKernel::marin);

}  // namespace tessera::tile
