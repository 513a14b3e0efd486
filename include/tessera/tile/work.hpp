// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "tessera/version.hpp"

namespace tessera::tile {

/// What operations ask of a core's units. Counts, not times: the time model turns them into
/// seconds.
struct Work {
  double flops = 0;         ///< of the products, as the author wrote them: 2 m n k
  double padded_flops = 0;  ///< of the products padded to the MXU's sides, one pass each
  double mxu_flops = 0;     ///< what the MXU really multiplies: padded, all bf16 passes of f32
  double mxu_seconds = 0;   ///< mxu_flops at the core's published peak for the type
  double vpu_ops = 0;       ///< 32-bit element operations of the vector unit
  double eup_ops = 0;       ///< elements of exp, log, tanh, division and the like
  double xlu_ops = 0;       ///< elements that move across lanes: lane reductions, transposes

  Work& operator+=(const Work& other) noexcept {
    flops += other.flops;
    padded_flops += other.padded_flops;
    mxu_flops += other.mxu_flops;
    mxu_seconds += other.mxu_seconds;
    vpu_ops += other.vpu_ops;
    eup_ops += other.eup_ops;
    xlu_ops += other.xlu_ops;
    return *this;
  }
};

/// What a kernel costs, as its author says (Pallas' CostEstimate: a hint to XLA) or as the machine
/// counted.
struct CostEstimate {
  double flops = 0;            ///< of products
  double transcendentals = 0;  ///< elements of exp, log, tanh, division and the like, padding too
  double bytes_accessed = 0;   ///< copies from and to HBM
  double remote_bytes_transferred = 0;
};

/// Both, of one run of a kernel that was given an estimate.
struct KernelCost {
  std::string kernel{};
  CostEstimate estimated{};
  CostEstimate counted{};
};

namespace detail {
/// Adds to the report and to what the running core has done.
TESSERA_API void charge(const Work& work);
}  // namespace detail

}  // namespace tessera::tile
