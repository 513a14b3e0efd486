// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "host/tile/compute.hpp"
#include "host/tile/events.hpp"
#include "host/tile/races.hpp"
#include "host/tile/scheduler.hpp"
#include "host/tile/time.hpp"
#include "tessera/tile/kernel.hpp"

// What the machine consists of. Everything here belongs to one machine, and one core runs at a
// time.
namespace tessera::tile::detail {

struct LaunchState;

struct Buffer {
  MachineState* machine = nullptr;
  std::string name{};
  MemorySpace space = MemorySpace::hbm;
  ElementType type = ElementType::f32;
  Shape shape{};
  Shape strides{};  ///< in elements
  int device = 0;
  int agent = -1;             ///< whose on-chip memory it is
  std::byte* data = nullptr;  ///< null where a dry run has no values
  std::unique_ptr<std::byte[]> owned{};
  bool writable = true;
  bool frozen = false;
  bool ended = false;             ///< with the run_scoped that made it
  std::int64_t padded_bytes = 0;  ///< what it takes on chip
  std::size_t report = 0;         ///< of Report::buffers
  AccessLog log{};
  int in_flight = 0;  ///< copies from or to it that were started and not waited for
  /// The same scratch or argument of every core, by agent, while a kernel runs that others know it
  /// in.
  const std::vector<Buffer*>* siblings = nullptr;

  std::size_t element_bytes() const { return static_cast<std::size_t>(bits_of(type)) / 8; }
};

/// Strides of consecutive elements.
Shape row_major(const Shape& shape);
/// Row-major, without memory. Throws TileError (usage) for extents below 1.
std::unique_ptr<Buffer> make_buffer(MachineState& machine, std::string name, MemorySpace space,
                                    ElementType type, const Shape& extents, int device);
/// Memory of its own; in a dry run only to SMEM.
void give_memory(Buffer& buffer, bool poisoned = true);
Region whole(Buffer& buffer);
/// Fills with what uninitialised memory holds.
void poison(const Region& region);

/// What a semaphore was given, until it is taken.
struct Arrival {
  std::int64_t amount = 0;
  Clock clock{};
  Buffer* from = nullptr;  ///< of a copy: what it is no longer in flight of then
  Buffer* to = nullptr;
};

struct SemaphoreState {
  std::string name{};
  SemaphoreKind kind = SemaphoreKind::regular;
  int agent = 0;
  int id = 0;  ///< of its launch
  std::int64_t count = 0;
  std::deque<Arrival> arrivals{};
  /// Copies that were started and will signal it, oldest first.
  std::vector<std::shared_ptr<Transfer>> in_flight{};
  const std::vector<SemaphoreState*>* siblings = nullptr;
};

/// One DMA.
struct Transfer {
  Region from{}, to{};
  Region indices{};  ///< of rows of one side; no buffer: none
  Indexed side = Indexed::from;
  SemaphoreState* send = nullptr;         ///< of a remote copy: counts what has left
  SemaphoreState* receive = nullptr;      ///< counts what has come
  SemaphoreState* own_receive = nullptr;  ///< remote: the issuer's, on which wait_recv waits
  CopyOptions options{};
  std::int64_t bytes = 0;    ///< of the elements: what semaphores count
  std::int64_t counted = 0;  ///< what the memory system moves: whole tiles
  bool started = false;
  bool moved = false;
  Stamp stamp{};
  Clock clock{};  ///< what its issuer knew, and its own event
  std::shared_ptr<const Place> place{};
};

/// One core while a kernel runs.
struct CoreState {
  MachineState* machine = nullptr;
  LaunchState* launch = nullptr;
  int agent = 0;
  int device = 0;
  int part = 0;  ///< of its launch
  int core = 0;
  int subcore = 0;
  CoreKind kind = CoreKind::tensor_core;
  Clock clock{};
  std::shared_ptr<const Place> place{};
  std::vector<const Buffer*> held{};  ///< on-chip memory in use
  /// Without their memory, so that a ref that a body has kept names something.
  std::vector<std::unique_ptr<Buffer>> ended{};
  std::int64_t vmem_bytes = 0;  ///< of what is held, padded
  std::int64_t smem_bytes = 0;
  struct Grid {
    Shape extents{};
    Shape point{};
  };
  std::vector<Grid> grids{};    ///< that run, the innermost last
  std::vector<Event> events{};  ///< for the time model; empty where that is not asked for

  void note(Event event);
  /// For the recorder, if there is one.
  void record(ScheduleEvent::Kind what, const Transfer* transfer, const SemaphoreState* semaphore);
  /// The memories of this kind of core.
  std::int64_t vmem_limit() const;
  Tiling tiling() const;
  /// Of the cores of its device that share a grid with it, which one it is, and how many they are.
  int share() const;
  int shares() const;
  /// What it does from here on is another event, which nobody knows of yet.
  Stamp tick();
  /// The event that it is in: all that it does between two of its signals and copies.
  Stamp now() const;
  /// Throws TileError (vmem, smem) with all that is held when `buffer` is more than there is.
  void hold(const Buffer& buffer);
  /// The buffer of a region. Throws TileError (usage) for a ref of nothing, of another device's HBM
  /// or of another core's memory: a body can keep one that a core before it was given.
  Buffer& own(const Region& region) const;
  void release(const Buffer& buffer);
  [[noreturn]] void refuse_memory(const Buffer& buffer) const;
};

/// Where cores wait for each other.
struct Barrier {
  int waiting = 0;
  std::int64_t completed = 0;
  Clock gathered{};  ///< of those who have come to the next
  Clock last{};      ///< of all who came to the last completed
};

/// A kernel while it runs.
struct LaunchState {
  MachineState* machine = nullptr;
  std::string name{};
  std::vector<Mesh> parts{};
  std::vector<int> first_of_part{};  ///< agent of a device
  int per_device = 1;                ///< agents
  std::vector<CoreState> agents{};
  ClockSlots slots{1};
  int semaphores = 0;  ///< made so far, run_scoped's among them
  Barrier barrier{};
  std::vector<Barrier> subcore_barriers{};  ///< by the agent of a SparseCore's first subcore
};

struct MachineState {
  MachineOptions options{};
  Report report{};
  Rates rates{};                      ///< of the time model
  Waits waits{};                      ///< of all kernels
  std::vector<Timeline> timelines{};  ///< where MachineOptions::trace is set
  /// Where not null, every kernel's logs go there instead of ending, for those who fit the model.
  std::vector<std::vector<CoreLog>>* keep_logs = nullptr;
  std::unique_ptr<Scheduler> scheduler{};
  std::vector<std::unique_ptr<Buffer>> arrays{};
  LaunchState* running = nullptr;
  std::unique_ptr<Compute> compute{};

  std::size_t add_to_report(const std::string& name, MemorySpace space);
};

/// "device 1, core 0" or "SparseCore 0 subcore 3"; the device only where there are several.
std::string name_of(const CoreState& core);
/// Throws TileError (usage) where the chip has no such cores.
void check_mesh(const Chip& chip, const std::string& kernel, const Mesh& mesh);

/// The core that runs on this thread. Throws TileError (usage) outside of a kernel.
CoreState& current_core(const char* what);
/// Makes `core` the one that runs on this thread.
class Running {
 public:
  explicit Running(CoreState& core);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};
/// While a function of the caller computes: no core runs on this thread, so that accesses from
/// within are refused.
class Aside {
 public:
  Aside();
  ~Aside();
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

 private:
  CoreState* core_;
};

/// Computes something of the running core, beside other cores where the machine allows that: not
/// where races are looked for, or a seed or a recorder wants one order.
void beside(const std::function<void()>& work);

/// Adds a kernel that has ended to the report's time; its cores' logs end here.
void model_time(LaunchState& launch);

/// "'x' of kernel 'add', core 0 at grid point (1, 2)"; `what` is "'x'".
std::string located(const CoreState& core, const std::string& what);
/// Of the running core; outside of kernels the buffer's quoted name alone.
std::string located(const std::string& buffer);
/// "copy 'x' -> 'tile'"
std::string title(const Transfer& transfer);

/// Where an element of the region's first corner lies, and the extents and strides of what is left.
Elements elements_of(const Region& region);
/// Throws TileError (race) where `log` has something that `known` does not order.
void record_access(Buffer& buffer, const std::vector<Slice>& where, bool writes, bool copy,
                   const Stamp& stamp, const Clock& known,
                   const std::shared_ptr<const Place>& place);

/// Without the checks of a copy that a kernel's author makes.
std::shared_ptr<Transfer> make_transfer(const Region& from, const Region& to,
                                        const CopyOptions& options);
/// Starts a transfer of the running core. Throws TileError (usage) when it was started before.
void begin(const std::shared_ptr<Transfer>& transfer);
/// What one copy moves from where to where: everything, or row by row as its indices say. Throws
/// TileError (bounds) for an index outside. In a dry run the rows are not known, and none is given.
void for_each_part(const Transfer& transfer,
                   const std::function<void(const Region& from, const Region& to)>& body);
/// Copies (or adds) the elements; nothing where one side has no values.
void move_elements(const Transfer& transfer);
/// Moves a transfer's data and signals its semaphores.
void move_data(const std::shared_ptr<Transfer>& transfer);
/// Throws TileError (usage) for a semaphore of the other kind; `what` takes it.
void require_kind(const CoreState& core, const Semaphore& semaphore, SemaphoreKind kind,
                  const std::function<std::string()>& what);
/// The agent that `target` is. Throws TileError (bounds).
std::size_t agent_of(const CoreState& core, const Target& target);
/// The same semaphore of another agent. Throws TileError (usage) for one of run_scoped.
SemaphoreState* sibling(const SemaphoreState& semaphore, const CoreState& core, std::size_t agent);
/// Until the semaphore holds `amount`, which is taken. Moves what is in flight to it, as the DMA
/// mode says.
void take(SemaphoreState& semaphore, std::int64_t amount);
void give(SemaphoreState& semaphore, Arrival arrival);
/// Throws for semaphores that are not zero and copies that nobody waited for.
void check_at_exit(const SemaphoreState& semaphore, const CoreState& core);

}  // namespace tessera::tile::detail
