// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "tessera/cost_estimate.hpp"

namespace tessera::dispatch {

/// For a call that runs on `threads` threads of this machine: sends the OpenMP threads that
/// belong to the calling one to rest, in each OpenMP runtime that the process has loaded. After a
/// parallel region they spin for milliseconds, on the processors that the call needs; the next
/// region starts them anew. Nothing is done for a call of less than some milliseconds, within a
/// parallel region, in a forked process, or where OMP_WAIT_POLICY is passive. No OpenMP is linked
/// or loaded for it.
/// `cost` is asked only where there is one, and what it throws counts as a short call.
void rest_openmp(const std::function<CostEstimate()>& cost, std::int64_t threads) noexcept;

}  // namespace tessera::dispatch
