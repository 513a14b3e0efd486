// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/engines/engine.hpp"
#include "host/softmax_cross_entropy/request.hpp"

namespace tessera::softmax_cross_entropy {

/// How one call is cut into launches.
struct Schedule {
  std::string name{};  ///< "row_by_row" (fused) or "streamed"
  BlockSizes blocks{};
  BlockSource source = BlockSource::fallback;
  std::int64_t chunk_rows = 0;
  std::int64_t slices = 0;
  bool fused = false;  ///< value_and_grad: a work-item takes a row through both passes
  std::int64_t scratch_words = 0;
};

/// Throws Error invalid_argument for illegal blocks, workspace_too_small.
Schedule make_schedule(const Request& request, const engines::Engine& engine,
                       const opencl::DeviceFacts& facts);

/// Scratch of a call whose chunks have `chunk_rows` rows, cut into `slices`.
std::int64_t scratch_words(const Request& request, const engines::Engine& engine,
                           std::int64_t chunk_rows, std::int64_t slices);

/// What make_schedule chose `taken` from.
std::vector<ConsideredSchedule> explain(const Request& request, const engines::Engine& engine,
                                        const Schedule& taken);

}  // namespace tessera::softmax_cross_entropy
