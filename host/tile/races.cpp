// SPDX-License-Identifier: Apache-2.0
#include "host/tile/races.hpp"

#include <algorithm>

namespace tessera::tile {
namespace {

bool overlap(const std::vector<Slice>& a, const std::vector<Slice>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].start + a[i].size <= b[i].start || b[i].start + b[i].size <= a[i].start) return false;
  }
  return true;
}

bool contains(const std::vector<Slice>& outer, const std::vector<Slice>& inner) {
  for (std::size_t i = 0; i < outer.size(); ++i) {
    if (inner[i].start < outer[i].start ||
        inner[i].start + inner[i].size > outer[i].start + outer[i].size) {
      return false;
    }
  }
  return true;
}

/// Makes `one` both of them, where they are of one event and together a whole part.
bool absorb(AccessLog::Access& one, const AccessLog::Access& next) {
  if (one.stamp.slot != next.stamp.slot || one.stamp.tick != next.stamp.tick ||
      one.writes != next.writes || one.place != next.place) {
    return false;
  }
  std::optional<std::size_t> differs;
  for (std::size_t i = 0; i < one.where.size(); ++i) {
    if (one.where[i] == next.where[i]) continue;
    if (differs || one.where[i].start + one.where[i].size != next.where[i].start) return false;
    differs = i;
  }
  if (differs) one.where[*differs].size += next.where[*differs].size;
  return true;
}

}  // namespace

void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size(), 0);
  for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

bool knows(const Clock& clock, const Stamp& stamp) {
  const auto slot = static_cast<std::size_t>(stamp.slot);
  return slot < clock.size() && clock[slot] >= stamp.tick;
}

Stamp ClockSlots::tick(int core) { return {core, ++ticks_[static_cast<std::size_t>(core)]}; }

Stamp ClockSlots::start_copy(const Clock& known) {
  for (std::size_t slot = static_cast<std::size_t>(cores_); slot < ticks_.size(); ++slot) {
    if (slot < known.size() && known[slot] == ticks_[slot]) {
      return {static_cast<int>(slot), ++ticks_[slot]};
    }
  }
  ticks_.push_back(1);
  return {static_cast<int>(ticks_.size()) - 1, 1};
}

std::string Place::text() const {
  if (grid_point.empty()) return core;
  std::string text = core + " at grid point (";
  for (std::size_t i = 0; i < grid_point.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(grid_point[i]);
  }
  return text + ")";
}

std::optional<AccessLog::Access> AccessLog::add(Access access, const Clock& known) {
  std::optional<Access> collision;
  std::size_t remaining = 0;
  for (std::size_t i = 0; i < accesses_.size(); ++i) {
    Access& earlier = accesses_[i];
    const bool ordered = knows(known, earlier.stamp);
    if (!ordered && !collision && (earlier.writes || access.writes) &&
        overlap(earlier.where, access.where)) {
      collision = earlier;
    }
    // Whatever will collide with what is ordered before this access collides with this one too, if
    // this one covers it and writes where that one wrote.
    const bool covered =
        ordered && (access.writes || !earlier.writes) && contains(access.where, earlier.where);
    if (covered) continue;
    if (remaining != i) accesses_[remaining] = std::move(earlier);
    ++remaining;
  }
  accesses_.resize(remaining);
  accesses_.push_back(std::move(access));
  // Element by element and row by row becomes one part, so that loops over elements stay linear.
  while (accesses_.size() > 1 && absorb(accesses_[accesses_.size() - 2], accesses_.back())) {
    accesses_.pop_back();
  }
  return collision;
}

}  // namespace tessera::tile
