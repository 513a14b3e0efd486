// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "host/tile/buffer.hpp"
#include "host/tile/events.hpp"
#include "host/tile/races.hpp"
#include "tessera/tile/kernel.hpp"

// The cores that run a kernel, and which of them runs on this thread.
namespace tessera::tile::detail {

struct LaunchState;
struct MachineState;
struct SemaphoreState;
struct Transfer;

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
  std::int64_t vmem_bytes = 0;        ///< of what is held, padded
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

/// "'x' of kernel 'add', core 0 at grid point (1, 2)"; `what` is "'x'".
std::string located(const CoreState& core, const std::string& what);
/// Of the running core; outside of kernels the buffer's quoted name alone.
std::string located(const std::string& buffer);

}  // namespace tessera::tile::detail
