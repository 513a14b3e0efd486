// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/linear_cross_entropy.hpp"
#include "tessera/tile/block_spec.hpp"
#include "tessera/tile/machine.hpp"

/// How long the fused loss would take on a TPU, with which blocks, and which blocks a TPU refuses.
/// These functions are in libtessera, beside the kernels of the implementation `tpu_tile`; the tile
/// machine that they run on (tessera::tile) knows no operator.
namespace tessera::linear_cross_entropy::tpu_tile {

/// The fused loss as its block rules see it.
struct ProblemShape {
  std::int64_t b = 0;
  std::int64_t h = 0;
  std::int64_t v = 0;
  tile::ElementType x_type = tile::ElementType::f32;
  tile::ElementType w_type = tile::ElementType::f32;
};

/// Which published kernel's rules the blocks must obey: those of Marin's (R7 to R10), or these and
/// what Tokamax's configuration asks for beyond them (R11).
enum class BlockRules { marin, tokamax };

/// Windows and scratch that the published schedule of `pass` (forward or backward) declares: x and
/// w in two buffers, three vectors of b elements in two, the f32 logits block, and for backward the
/// f32 blocks in which dx and dw are read, added to and written. Throws TileError (usage) for any
/// other pass.
TESSERA_API std::vector<tile::Allocation> published_allocations(const BlockSizes& blocks, Pass pass,
                                                                tile::ElementType x_type,
                                                                tile::ElementType w_type);

/// VMEM with the compiler's temporaries, bytes, as Tokamax estimates it: forward keeps four f32
/// blocks of b x v, backward three. An estimate beside the declared sum, not a reason to refuse.
/// Throws TileError (usage) for a pass that is neither forward nor backward.
TESSERA_API std::int64_t vmem_with_temporaries(const BlockSizes& blocks, Pass pass,
                                               tile::ElementType x_type, tile::ElementType w_type);

/// Rules R7 to R11 and R13 for block sizes of the fused loss; empty when they are legal. `pass` is
/// forward or backward; any other throws TileError (usage).
TESSERA_API std::vector<tile::Violation> check_blocks(const tile::Chip& chip,
                                                      const BlockSizes& blocks,
                                                      const ProblemShape& shape, Pass pass,
                                                      BlockRules rules = BlockRules::marin);

/// One kernel of the fused loss, as a question.
struct Problem {
  ProblemShape shape{};       ///< every extent at least 1
  Pass pass = Pass::forward;  ///< or backward
  /// Not given: those of a tuned table where they fit, else those that move the fewest bytes.
  std::optional<BlockSizes> blocks{};
  bool w_is_vh = false;  ///< w is [V, H], not [H, V]
  /// How a TPU would multiply f32; `tpu_tile` itself never rounds f32 operands.
  tile::F32Passes f32_passes = tile::F32Passes::one;
};

struct ModelReport {
  BlockSizes blocks{};
  BlockSource source = BlockSource::fallback;
  std::int64_t vmem_declared_bytes = 0;
  std::int64_t vmem_with_temporaries_bytes = 0;  ///< an estimate; vmem_with_temporaries
  tile::Report report{};
  std::string trace{};  ///< perfetto_json where MachineOptions::trace is set
};

/// Every rule that `problem.blocks` break on this chip; empty: legal, or none are given. Throws
/// TileError (usage) for another pass or an extent below 1.
TESSERA_API std::vector<tile::Violation> check(const tile::Chip& chip, const Problem& problem);

/// Runs the kernel on a machine of one device with these options: in a dry run without data, else
/// on random operands. Returns when the kernel has ended. Throws TileError: with every rule that
/// the blocks break; (usage) as `check`.
TESSERA_API ModelReport model(const tile::MachineOptions& options, const Problem& problem);

/// One choice of block sizes in a sweep.
struct Candidate {
  BlockSizes blocks{};
  std::vector<tile::Violation> refused{};  ///< empty: legal, and the rest is known
  double modelled_seconds = 0;
  std::string bound{};
  double mxu_utilisation = 0;
  std::int64_t dma_bytes = 0;
  std::int64_t vmem_declared_bytes = 0;
  std::int64_t vmem_with_temporaries_bytes = 0;
  /// Modelled from the first blocks of rows, which are alike: the whole grid has too many steps.
  bool extrapolated = false;
};

/// Every candidate of b, h and v in powers of two and what lies between, legal ones first by
/// modelled time, each in a dry run. `problem.blocks` is not read. `progress` is told, on the
/// calling thread, how many of all are done. Throws TileError (usage) as `check`.
TESSERA_API std::vector<Candidate> sweep(
    const tile::MachineOptions& options, const Problem& problem,
    const std::function<void(std::size_t done, std::size_t all)>& progress = {});

}  // namespace tessera::linear_cross_entropy::tpu_tile
