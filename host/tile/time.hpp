// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "host/tile/events.hpp"
#include "tessera/tile/machine.hpp"
#include "tessera/tile/time.hpp"

// When everything happens that the cores' logs tell of: a replay in the order of time. Copies queue
// for their device's HBM channel, first come first served within a priority; a core's clock is the
// later of its own and of what it waits for.
namespace tessera::tile {

/// A chip and parameters as rates. Throws TileError (usage) for what is not above zero.
struct Rates {
  double mxu = 0;  ///< seconds that products take, per second at peak
  double vpu = 0;  ///< operations per second
  double eup = 0;
  double xlu = 0;
  double subcore = 0;  ///< operations per second of a SparseCore's subcore, of any kind
  double unit_overlap = 0;
  double hbm = 0;   ///< bytes per second of one channel
  double vmem = 0;  ///< of copies that stay on a core
  double ici = 0;   ///< of one link
  double dma_latency = 0;
  double ici_latency = 0;
  double step_overhead = 0;
  double launch_overhead = 0;
  bool shared_hbm = false;  ///< a device's cores have one channel (Megacore)
};
Rates rates_of(const Chip& chip, const TimeParameters& parameters);

/// Ring distance between two of `devices`.
int hops(int from, int to, int devices);

/// Something that lasts, for the timeline.
struct Span {
  enum class Track : std::uint8_t {
    steps,
    work,
    waits,
    copies_in,
    copies_out,
    copies_on_chip,
    ici
  };
  enum class Wait : std::uint8_t { copy, signal, barrier };
  Track track = Track::work;
  int device = 0;
  int core = 0;  ///< ici: the device at the other end
  double start = 0;
  double end = 0;
  std::size_t from_buffer = 0;  ///< of a copy, and of a wait for one
  std::size_t to_buffer = 0;
  std::int64_t bytes = 0;  ///< of a copy
  Wait wait = Wait::copy;
  UnitSeconds units{};                   ///< of work
  std::shared_ptr<const Place> place{};  ///< of the step
};

/// One kernel on the timeline.
struct Timeline {
  std::string name{};
  double start = 0;  ///< after the kernels before it
  double seconds = 0;
  std::vector<Span> spans{};
};

/// What a core waited for, in all.
struct Waits {
  std::vector<double> by_buffer{};  ///< of Report::buffers
  double signals = 0;
  double barriers = 0;
};

struct Replay {
  KernelTime time{};  ///< without a name
  Waits waits{};      ///< of the core that ended last
};

/// Replays the logs of all cores of one kernel. `buffers`: of Report::buffers. `spans`: where not
/// null, the timeline is added to it. Throws TileError (deadlock) where the logs cannot end, which
/// is a fault of the library: the run that wrote them has ended.
Replay replay(const Rates& rates, std::span<const CoreLog> logs, std::size_t buffers,
              std::vector<Span>* spans = nullptr);

/// Adds a kernel to the report's time; `report.work` is that of all kernels with it.
void add_kernel(Report& report, Waits& waits, const Chip& chip, std::string name, Replay one);

}  // namespace tessera::tile
