// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/linear_cross_entropy.hpp"
#include "tessera/tile/loss_rules.hpp"
#include "tessera/tile/machine.hpp"

// How long the fused loss would take on a TPU, and with which blocks. These functions are in
// libtessera, beside the kernels of `tpu_tile`.
namespace tessera::tile {

/// One kernel of the fused loss, as a question.
struct LossRun {
  LossShape shape{};
  Pass pass = Pass::forward;  ///< or backward
  /// Not given: published ones where they fit, else those that move the fewest bytes.
  std::optional<linear_cross_entropy::BlockSizes> blocks{};
  bool w_is_vh = false;  ///< w is [V, H], not [H, V]
  /// How a TPU would multiply f32; `tpu_tile` itself never rounds f32 operands.
  F32Passes f32_passes = F32Passes::one;
};

struct LossReport {
  linear_cross_entropy::BlockSizes blocks{};
  BlockSource source = BlockSource::fallback;
  std::int64_t vmem_declared_bytes = 0;
  std::int64_t vmem_with_temporaries_bytes = 0;  ///< an estimate; loss_vmem_with_temporaries
  Report report{};
  std::string trace{};  ///< perfetto_json where MachineOptions::trace is set
};

/// Every rule that `run.blocks` break on this chip; empty: legal, or none are given.
TESSERA_API std::vector<Violation> check_loss(const Chip& chip, const LossRun& run);

/// Runs the kernel on a machine of one device with these options: in a dry run without data, else
/// on random operands. Throws TileError with every rule that the blocks break.
TESSERA_API LossReport model_loss(const MachineOptions& options, const LossRun& run);

/// One choice of block sizes in a sweep.
struct LossCandidate {
  linear_cross_entropy::BlockSizes blocks{};
  std::vector<Violation> refused{};  ///< empty: legal, and the rest is known
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
/// modelled time. `run.blocks` is not read. `progress` is told how many of all are done.
TESSERA_API std::vector<LossCandidate> sweep_loss(
    const MachineOptions& options, const LossRun& run,
    const std::function<void(std::size_t done, std::size_t all)>& progress = {});

}  // namespace tessera::tile
