// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tessera/tile/chip.hpp"
#include "tessera/version.hpp"

namespace tessera::tile {

/// What the time model knows beyond a chip's published figures. Fitted to the measured kernels of
/// v7 are mxu_efficiency, unit_overlap and dma_latency_seconds; sources of the others and what the
/// fit leaves: docs/tile_reference.md, "Time".
struct TimeParameters {
  /// Part of the published peak that products reach once their operands are in VMEM, with rounding
  /// f32 operands, turning them round and adding to the result.
  double mxu_efficiency = 0.795;
  /// 32-bit element operations per second of one core's vector unit; 0: `vpu_rate` of the chip.
  double vpu_ops_per_second = 0;
  /// Elements of exp, log, tanh and the like, and elements that cross lanes, per VPU operation:
  /// one register goes into these units while the four ALUs take four.
  double eup_rate = 0.25;
  double xlu_rate = 0.25;
  /// How far MXU, VPU, EUP and XLU work at the same time within one piece of work: 1: it takes as
  /// long as the busiest of them; 0: as all together.
  double unit_overlap = 0;
  /// Part of the published HBM bandwidth that copies reach.
  double hbm_efficiency = 1;
  /// On-chip copies: bandwidth of VMEM as a multiple of the core's HBM bandwidth (Book: about 22).
  double vmem_over_hbm = 22;
  /// From the last byte of a copy until those who wait know.
  double dma_latency_seconds = 1.23e-6;
  double ici_latency_seconds = 1e-6;       ///< per hop (Book: about 1 us)
  double step_overhead_seconds = 0.35e-6;  ///< of a grid step, on its core
  /// Before a kernel's first instruction. Published intercepts of small kernels (about 0.9 us) are
  /// less than the latency of their two copies, which leaves nothing for it.
  double launch_overhead_seconds = 0;
};

/// The parameters for a chip: the same for all but the VPU's rate. Where the chip is not
/// `calibrated` they are a guess.
TESSERA_API TimeParameters time_parameters(const Chip& chip);

/// 32-bit element operations per second of one core: lanes x sublanes x 4 ALUs x the clock, which
/// from generation 6 on no published figure gives: 1.75 GHz, the highest of the earlier ones.
TESSERA_API double vpu_rate(const Chip& chip);

/// How long units worked. Each is that of the core, HBM channel or link that worked longest.
struct UnitSeconds {
  double mxu = 0;
  double vpu = 0;
  double eup = 0;
  double xlu = 0;
  double core = 0;  ///< any of these four, and the overhead of steps and launch
  double hbm = 0;   ///< a device's HBM moves bytes (a core's, where cores have their own)
  double vmem = 0;  ///< copies that stay on a core
  double ici = 0;   ///< a link to another device
};

/// When one core ended, and what it did until then.
struct CoreTime {
  int device = 0;
  int core = 0;
  double seconds = 0;  ///< from the start of the kernel
  double working = 0;
  double waiting = 0;       ///< for copies, signals and barriers; working + waiting = seconds
  bool tensor_core = true;  ///< else a vector or scalar subcore of a SparseCore
};

/// The modelled time of one run of a kernel.
struct KernelTime {
  std::string name{};
  double seconds = 0;
  UnitSeconds busy{};
  std::vector<CoreTime> cores{};
  /// max over units of what they are busy, and all durations end to end: T lies between them.
  double lower_bound_seconds = 0;
  double upper_bound_seconds = 0;
};

/// Modelled time of all kernels, which run one after the other.
struct TimeReport {
  double modelled_seconds = 0;
  std::vector<KernelTime> kernels{};
  UnitSeconds busy{};          ///< sums over the kernels
  double waiting_seconds = 0;  ///< of each kernel's core that ends last
  /// The array (or on-chip buffer) whose copies that core waited for longest, "signals" or
  /// "barriers"; empty: it never waited.
  std::string waits_for{};
  double waits_for_seconds = 0;
  /// What the time is nearest to: "mxu", "vpu", "eup", "xlu" (the busiest unit of cores that work
  /// most of the time), "hbm", "vmem", "ici", or "latency" where none of them is busy for
  /// `bound_fraction` of the time.
  std::string bound{};
  double lower_bound_seconds = 0;
  double upper_bound_seconds = 0;
  /// Multiplications asked for (2 m n k), per second, as part of the cores' peak for their types.
  double mxu_utilisation = 0;
  /// What the MXU multiplies for each flop asked for: with tiles padded to its sides, and with all
  /// bf16 passes of f32 as well. 0 without products.
  double padding_waste = 0;
  double padding_waste_with_passes = 0;
  bool calibrated = false;  ///< Chip::calibrated: the model was fitted to measurements of the chip
};

/// A unit bounds a kernel when it is busy for this part of the time.
inline constexpr double bound_fraction = 0.6;

class Machine;

/// The timeline of all kernels since the machine was made (or reset_report), as Chrome's trace
/// event JSON, which Perfetto opens: a process per device; per core its steps, work, waits and
/// copies; links. Throws TileError (usage) unless MachineOptions::trace is set.
TESSERA_API std::string perfetto_json(const Machine& machine);

}  // namespace tessera::tile
