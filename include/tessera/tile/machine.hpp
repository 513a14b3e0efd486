// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/tile/ref.hpp"
#include "tessera/tile/time.hpp"
#include "tessera/tile/work.hpp"
#include "tessera/view.hpp"

namespace tessera::tile {

/// When a copy that was started moves its data. A program that waits for what it uses cannot tell.
enum class DmaMode {
  eager,    ///< at once
  on_wait,  ///< when somebody waits for it, the latest first
};

/// What memory holds before anything is written: NaN (integers: their largest value), or zeros.
enum class Uninitialized { nan, zero };

/// Something that a core did, for whoever wants to follow a schedule.
struct ScheduleEvent {
  enum class Kind {
    step,  ///< a point of a grid begins
    copy,  ///< a copy was started
    wait,  ///< a wait for `semaphore` has ended
  };
  Kind kind = Kind::step;
  int device = 0;
  int core = 0;
  Shape grid_point{};  ///< of the innermost grid; empty outside of grids
  std::string from{};  ///< copy: the buffers' names
  std::string to{};
  Shape from_start{};  ///< copy: the first element in each buffer
  Shape to_start{};
  std::string semaphore{};  ///< copy, wait; a pipeline's are "x window slot 1"
};

struct MachineOptions {
  Chip chip = find_chip("v5p");
  int devices = 1;
  DmaMode dma = DmaMode::on_wait;
  Uninitialized uninitialized = Uninitialized::nan;
  bool detect_races = true;
  /// The rules of tiles: R2, R3 and R5 for blocks, R6 for copies that a kernel starts itself.
  bool check_layout = true;
  /// Which core goes first where several could; 0: each goes on until it waits.
  std::uint64_t seed = 0;
  /// The schedule, its checks and its counts without data. What may steer a kernel has values all
  /// the same: SMEM, arrays that are the caller's memory, and new_ref's of 32-bit integers.
  bool dry_run = false;
  /// Of the host, for the arithmetic of large operations and, without detect_races, seed and
  /// recorder, for cores beside each other; results do not depend on it. 0: one per hardware
  /// thread.
  int threads = 0;
  /// Keeps what every core did and models its time (some 100 bytes per copy or wait).
  bool model_time = true;
  /// What the time model goes by; empty: `time_parameters` of the chip.
  std::optional<TimeParameters> time{};
  /// Keeps the timeline for `perfetto_json` (some 150 bytes per copy, wait or piece of work).
  bool trace = false;
  /// Called for every event, on the thread of the core that runs.
  std::function<void(const ScheduleEvent&)> recorder{};
};

/// Traffic of one array or scratch buffer, all kernels and devices together.
struct BufferReport {
  std::string name{};
  MemorySpace space = MemorySpace::hbm;
  std::int64_t bytes_read = 0;     ///< by copies out of it
  std::int64_t bytes_written = 0;  ///< by copies into it
  std::int64_t copies = 0;
};

/// What happened since the machine was made, or since reset_report.
struct Report {
  std::int64_t kernels = 0;
  std::int64_t copies = 0;  ///< DMAs, remote ones among them
  std::int64_t bytes_copied = 0;
  std::int64_t bytes_remote = 0;
  Work work{};                             ///< of all operations
  std::int64_t hbm_allocations = 0;        ///< arrays made, inside and outside of kernels
  std::int64_t vmem_high_water_bytes = 0;  ///< of the core that held most at a time
  std::int64_t smem_high_water_bytes = 0;
  std::vector<BufferReport> buffers{};  ///< in the order in which they were made
  std::vector<KernelCost> costs{};      ///< of kernels that were given a CostEstimate
  TimeReport time{};                    ///< empty without MachineOptions::model_time

  /// The buffer of that name. Throws TileError (usage) when there is none.
  TESSERA_API const BufferReport& buffer(const std::string& name) const;
};

namespace detail {
struct MachineState;
}

/// A handle of an array in a device's HBM; copies of it name the same array.
template <class T>
class Array {
 public:
  explicit Array(detail::Region region) : region_(std::move(region)) {}
  Shape extents() const { return detail::extents_of(region_); }
  const std::string& name() const { return detail::name_of(region_); }
  const detail::Region& region() const noexcept { return region_; }

 private:
  detail::Region region_;
};

/// One or several TPU devices of a chip, with their memories. Not for several threads at a time.
class TESSERA_API Machine {
 public:
  /// Throws TileError (usage) for options that can never be right: no device, threads below 0,
  /// `trace` without `model_time`, a rate of the time model that is not above zero.
  explicit Machine(MachineOptions options = {});
  ~Machine();
  /// What a machine was moved from is a TileError (usage) wherever it is used again.
  Machine(Machine&&) noexcept;
  Machine& operator=(Machine&&) noexcept;

  const MachineOptions& options() const;
  const Report& report() const;
  /// Begins the report, its time and the timeline anew; names of buffers stay.
  void reset_report();

  /// An array that is the caller's memory, row-major, for as long as the machine lives: nothing is
  /// copied. Throws TileError (usage) for device memory, another type than T, other strides, or a
  /// null pointer (except in a dry run).
  template <class T>
  Array<T> array(std::string name, const View& view, int device = 0) {
    return Array<T>(borrow(std::move(name), element_of<T>::value, view, device));
  }
  template <class T>
  Array<T> array(std::string name, const MutableView& view, int device = 0) {
    return Array<T>(borrow(std::move(name), element_of<T>::value, view, device));
  }
  /// An array of the machine's own that begins as a copy of `view` (Pallas' new_ref). Throws as
  /// `array`.
  template <class T>
  Array<T> new_ref(std::string name, const View& view, int device = 0) {
    return Array<T>(copy_of(std::move(name), element_of<T>::value, view, device));
  }
  /// An array of the machine's own, uninitialised (Pallas' empty_ref). Throws TileError (usage) for
  /// an extent below 1, more than 2^50 bytes or a device that the machine has not, and Error
  /// out_of_memory where the host has not that much.
  template <class T>
  Array<T> empty_ref(std::string name, const Shape& extents, int device = 0) {
    return Array<T>(allocate(std::move(name), element_of<T>::value, extents, device));
  }
  /// Ends the array's use (Pallas' freeze): a kernel that names it afterwards is refused. Its
  /// values stay where they are: in the caller's view, or in `values`. Throws TileError (usage) for
  /// an array that has been frozen before, or of another machine.
  template <class T>
  std::span<const T> freeze(const Array<T>& array) {
    const auto elements = freeze(array.region());
    return {static_cast<const T*>(elements.data), count_of(elements)};
  }
  /// The values of an array of the machine's own, row-major, as the kernels so far left them; valid
  /// while the machine lives. Empty in a dry run. Throws TileError (usage) for an array of another
  /// machine.
  template <class T>
  std::span<const T> values(const Array<T>& array) const {
    const auto elements = contents(array.region());
    return {static_cast<const T*>(elements.data), count_of(elements)};
  }

  detail::MachineState& state();
  const detail::MachineState& state() const;

 private:
  detail::Region borrow(std::string name, ElementType type, const View& view, int device);
  detail::Region borrow(std::string name, ElementType type, const MutableView& view, int device);
  detail::Region copy_of(std::string name, ElementType type, const View& view, int device);
  detail::Region allocate(std::string name, ElementType type, const Shape& extents, int device);
  detail::Elements freeze(const detail::Region& region);
  detail::Elements contents(const detail::Region& region) const;
  static std::size_t count_of(const detail::Elements& elements) {
    std::size_t count = elements.data != nullptr ? 1 : 0;
    for (const auto extent : elements.extents) count *= static_cast<std::size_t>(extent);
    return count;
  }

  std::unique_ptr<detail::MachineState> state_;
};

}  // namespace tessera::tile
