// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/tile/block_spec.hpp"

namespace tessera::tile {

/// How far each participant (a core, or a copy in flight) has come, as somebody knows it.
using Clock = std::vector<std::uint32_t>;

/// After this `clock` knows what `other` knows.
void join(Clock& clock, const Clock& other);

/// An event of one participant.
struct Stamp {
  int slot = 0;
  std::uint32_t tick = 0;
};
/// Whether who has this clock comes after the event.
bool knows(const Clock& clock, const Stamp& stamp);

/// Slots of clocks. A copy takes one of its own while it is in flight, so that nothing is ordered
/// after it but by waiting for it; the slot serves another copy only when its issuer knows that the
/// last one has ended, so that no order is invented either.
class ClockSlots {
 public:
  explicit ClockSlots(int cores) : cores_(cores), ticks_(static_cast<std::size_t>(cores), 0) {}
  /// The next event of a core.
  Stamp tick(int core);
  /// The event of a copy that somebody with `known` starts.
  Stamp start_copy(const Clock& known);

 private:
  int cores_;
  std::vector<std::uint32_t> ticks_;
};

/// Who did something, and where its kernel stood, for messages.
struct Place {
  std::string core{};
  Shape grid_point{};
  std::string text() const;  ///< "core 0 at grid point (1, 2)"
};

/// What was done to parts of one buffer, as far as it may still collide with what comes.
class AccessLog {
 public:
  struct Access {
    Stamp stamp{};
    std::vector<Slice> where{};
    bool writes = false;
    bool copy = false;  ///< by a DMA
    std::shared_ptr<const Place> place{};
  };

  /// Adds an access of somebody with the clock `known`. The earlier one that overlaps, of which one
  /// writes, and that `known` does not know of, if there is one.
  std::optional<Access> add(Access access, const Clock& known);
  void clear() { accesses_.clear(); }

 private:
  std::vector<Access> accesses_;
};

}  // namespace tessera::tile
