// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "host/engines/engine.hpp"
#include "host/rms_norm/request.hpp"

namespace tessera::rms_norm {

/// How one call is cut into work-groups.
struct Schedule {
  std::string name = "row_by_row";
  BlockSizes blocks{};
  BlockSource source = BlockSource::heuristic;
  std::int64_t scratch_words = 0;
};

/// Words of a work-group's sums: whole vectors of any width.
inline std::int64_t sum_words(const Request& r) { return engines::round_up(r.h, 16); }
std::int64_t least_scratch_bytes(const Request& request);

/// `engine` is the one of `shapes` that keeps the machine busiest. Throws Error
/// workspace_too_small.
Schedule make_schedule(const Request& request, const engines::EngineShapes& shapes,
                       const opencl::DeviceFacts& facts,
                       std::shared_ptr<const engines::Engine>& engine);

/// Of the sums of so many work-groups those that are added up first, side by side with others; 1:
/// all are added up at once.
std::int64_t sums_of_part(std::int64_t groups, const engines::RowPass& pass);
/// Columns of sums that one work-item adds up: SUM_LANES.
inline std::int64_t column_lanes(const engines::RowPass& pass) {
  return pass.items > 1 ? 1 : pass.lanes;
}
/// Work-items of a group that adds up sums.
std::int64_t column_items(const Request& request, const engines::RowPass& pass);

ConsideredSchedule explain(const Request& request, const engines::Engine& engine,
                           const Schedule& schedule);

}  // namespace tessera::rms_norm
