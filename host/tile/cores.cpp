// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "host/tile/buffer.hpp"
#include "host/tile/core.hpp"
#include "host/tile/launch.hpp"
#include "host/tile/machine_state.hpp"
#include "host/tile/semaphore.hpp"
#include "host/tile/transfer.hpp"

// The cores that run a kernel: what they are, what they hold, and where they meet.
namespace tessera::tile {
namespace detail {
namespace {

thread_local CoreState* running_core = nullptr;

}  // namespace

CoreState& current_core(const char* what) {
  if (running_core == nullptr) {
    throw TileError(ErrorKind::usage,
                    fmt::format("{} is for the body of a kernel, and not for the functions that "
                                "operations take",
                                what));
  }
  return *running_core;
}

Running::Running(CoreState& core) { running_core = &core; }
Running::~Running() { running_core = nullptr; }
Aside::Aside() : core_(std::exchange(running_core, nullptr)) {}
Aside::~Aside() { running_core = core_; }

void beside(const std::function<void()>& work) {
  MachineState& machine = *current_core("an operation").machine;
  const MachineOptions& options = machine.options;
  if (options.threads == 1 || options.detect_races || options.seed != 0 || options.recorder) {
    return work();
  }
  machine.scheduler->beside(work);
}

std::string located(const CoreState& core, const std::string& what) {
  return fmt::format("{} of kernel '{}', {}", what, core.launch->name, core.place->text());
}

std::string located(const std::string& buffer) {
  const std::string name = fmt::format("'{}'", buffer);
  return running_core != nullptr ? located(*running_core, name) : name;
}

Stamp CoreState::tick() {
  const Stamp stamp = launch->slots.tick(agent);
  machine->scheduler->advance();
  const auto slot = static_cast<std::size_t>(agent);
  if (clock.size() <= slot) clock.resize(slot + 1, 0);
  clock[slot] = stamp.tick;
  return stamp;
}

Stamp CoreState::now() const { return {agent, clock[static_cast<std::size_t>(agent)]}; }

void CoreState::note(Event event) {
  if (!machine->options.model_time) return;
  // What is done between two other events is one piece of work.
  if (auto* more = std::get_if<WorkEvent>(&event); more != nullptr && !events.empty()) {
    if (auto* last = std::get_if<WorkEvent>(&events.back()); last != nullptr) {
      last->work += more->work;
      return;
    }
  }
  events.push_back(std::move(event));
}

void charge(const Work& work) {
  CoreState& core = current_core("an operation");
  core.machine->report.work += work;
  core.note(WorkEvent{work});
}

void CoreState::record(ScheduleEvent::Kind what, const Transfer* transfer,
                       const SemaphoreState* semaphore) {
  if (!machine->options.recorder) return;
  ScheduleEvent event{.kind = what, .device = device, .core = core};
  if (!grids.empty()) event.grid_point = grids.back().point;
  const auto start_of = [](const Region& region) {
    Shape start;
    for (const Slice& slice : region.slices) start.push_back(slice.start);
    return start;
  };
  if (transfer != nullptr) {
    event.from = transfer->from.buffer->name;
    event.to = transfer->to.buffer->name;
    event.from_start = start_of(transfer->from);
    event.to_start = start_of(transfer->to);
  }
  if (semaphore != nullptr) event.semaphore = semaphore->name;
  machine->options.recorder(event);
}

void CoreState::hold(const Buffer& buffer) {
  const bool vmem = buffer.space == MemorySpace::vmem;
  auto& bytes = vmem ? vmem_bytes : smem_bytes;
  auto& high_water =
      vmem ? machine->report.vmem_high_water_bytes : machine->report.smem_high_water_bytes;
  if (bytes + buffer.padded_bytes > (vmem ? vmem_limit() : machine->options.chip.smem_bytes)) {
    refuse_memory(buffer);
  }
  held.push_back(&buffer);
  bytes += buffer.padded_bytes;
  high_water = std::max(high_water, bytes);
}

Buffer& CoreState::own(const Region& region) const {
  if (region.buffer == nullptr) {
    throw TileError(ErrorKind::usage, located(*this,
                                              "a ref that names nothing, made without a "
                                              "value,"));
  }
  Buffer& buffer = *region.buffer;
  if (!buffer.ended_with.empty()) {
    throw TileError(ErrorKind::usage,
                    fmt::format("{} has ended with {}; a ref of scratch is not kept longer",
                                located(*this, "'" + buffer.name + "'"), buffer.ended_with),
                    {}, buffer.name);
  }
  if (buffer.machine != machine) {
    throw TileError(ErrorKind::usage,
                    located(*this, "'" + buffer.name + "'") +
                        " belongs to another machine; give arrays of the one that runs the kernel",
                    {}, buffer.name);
  }
  if (buffer.frozen) {
    throw TileError(ErrorKind::usage, located(*this, "'" + buffer.name + "'") + " has been frozen",
                    {}, buffer.name);
  }
  const bool on_chip = buffer.agent >= 0;
  if (on_chip ? buffer.agent == agent : buffer.device == device) return buffer;
  throw TileError(
      ErrorKind::usage,
      fmt::format("{} is {}; only remote copies reach it", located(*this, "'" + buffer.name + "'"),
                  on_chip ? "another core's scratch" : "in another device's HBM"),
      {}, buffer.name);
}

void CoreState::refuse_memory(const Buffer& buffer) const {
  const bool vmem = buffer.space == MemorySpace::vmem;
  VmemUse use;
  use.limit = vmem ? vmem_limit() : machine->options.chip.smem_bytes;
  const auto add = [&](const Buffer& one) {
    if (one.space != buffer.space) return;
    use.entries.push_back({one.name, one.padded_bytes});
    use.declared += one.padded_bytes;
  };
  for (const Buffer* one : held) add(*one);
  add(buffer);
  if (vmem && kind == CoreKind::scalar_subcore) {
    throw TileError(ErrorKind::vmem,
                    located(*this, "'" + buffer.name + "'") + ": a scalar subcore has no VMEM", {},
                    buffer.name);
  }
  if (vmem) {
    auto violations = check_vmem(use);
    for (Violation& violation : violations) {
      violation.message += " (" + located(*this, "'" + buffer.name + "'") + ")";
    }
    require(violations);
  }
  std::string text = fmt::format("SMEM of {}: {} bytes are held, the core has {};",
                                 located(*this, "'" + buffer.name + "'"), use.declared, use.limit);
  for (const auto& entry : use.entries) text += fmt::format(" {} {}", entry.buffer, entry.bytes);
  throw TileError(ErrorKind::smem, text, {}, buffer.name);
}

void CoreState::release(const Buffer& buffer) {
  std::erase(held, &buffer);
  (buffer.space == MemorySpace::vmem ? vmem_bytes : smem_bytes) -= buffer.padded_bytes;
}

std::int64_t CoreState::vmem_limit() const {
  const Chip& chip = machine->options.chip;
  switch (kind) {
    case CoreKind::tensor_core:
      return chip.scoped_vmem_bytes;
    case CoreKind::vector_subcore:
      return chip.sparse_cores->vmem_bytes;
    case CoreKind::scalar_subcore:
      break;
  }
  return 0;
}

Tiling CoreState::tiling() const {
  return kind == CoreKind::tensor_core ? Tiling::compact : Tiling::sparse_core;
}

int CoreState::share() const {
  return core * launch->parts[static_cast<std::size_t>(part)].subcores + subcore;
}

int CoreState::shares() const {
  const Mesh& mesh = launch->parts[static_cast<std::size_t>(part)];
  return mesh.cores * mesh.subcores;
}

std::string name_of(const CoreState& core) {
  std::string name =
      core.machine->options.devices > 1 ? fmt::format("device {}, ", core.device) : std::string();
  switch (core.kind) {
    case CoreKind::tensor_core:
      return name + fmt::format("core {}", core.core);
    case CoreKind::scalar_subcore:
      return name + fmt::format("SparseCore {}", core.core);
    case CoreKind::vector_subcore:
      break;
  }
  return name + fmt::format("SparseCore {} subcore {}", core.core, core.subcore);
}

void check_mesh(const Chip& chip, const std::string& kernel, const Mesh& mesh) {
  const auto refuse = [&](const std::string& what) {
    throw TileError(ErrorKind::usage, fmt::format("kernel '{}': {}", kernel, what));
  };
  const bool tensor = mesh.kind == CoreKind::tensor_core;
  if (!tensor && !chip.sparse_cores) refuse(fmt::format("{} has no SparseCores", chip.name));
  const int cores = tensor ? chip.cores : chip.sparse_cores->cores;
  if (mesh.cores < 1 || mesh.cores > cores) {
    refuse(fmt::format("a mesh of {} cores on {}, which has {}", mesh.cores, chip.name, cores));
  }
  const int subcores = mesh.kind == CoreKind::vector_subcore ? chip.sparse_cores->subcores : 1;
  if (mesh.subcores < 1 || mesh.subcores > subcores) {
    refuse(fmt::format("a mesh of {} subcores on {}, which has {}", mesh.subcores, chip.name,
                       subcores));
  }
}

namespace {

/// Until `members` cores have come.
void meet(CoreState& core, Barrier& barrier, int group, int members, const char* what) {
  join(barrier.gathered, core.clock);
  const std::int64_t mine = barrier.completed;
  if (++barrier.waiting == members) {
    barrier.waiting = 0;
    ++barrier.completed;
    barrier.last = std::exchange(barrier.gathered, {});
  } else {
    core.machine->scheduler->wait_until(
        [&] { return barrier.completed > mine; },
        [&] { return fmt::format("the others at a {} of kernel '{}'", what, core.launch->name); });
  }
  join(core.clock, barrier.last);
  core.tick();
  core.note(BarrierEvent{.group = group, .members = members});
}

}  // namespace
}  // namespace detail

Mesh tensorcore_mesh(const Machine& machine, int cores) {
  const Chip& chip = machine.options().chip;
  return {.cores = cores > 0 ? cores : chip.megacore ? chip.cores : 1};
}

namespace {

const SparseCores& sparse_cores_of(const Machine& machine) {
  const Chip& chip = machine.options().chip;
  if (chip.sparse_cores) return *chip.sparse_cores;
  throw TileError(ErrorKind::usage, fmt::format("{} has no SparseCores", chip.name));
}

}  // namespace

Mesh scalar_subcore_mesh(const Machine& machine, int cores) {
  const SparseCores& sparse = sparse_cores_of(machine);
  return {.cores = cores > 0 ? cores : sparse.cores, .kind = CoreKind::scalar_subcore};
}

Mesh vector_subcore_mesh(const Machine& machine, int cores, int subcores) {
  const SparseCores& sparse = sparse_cores_of(machine);
  return {.cores = cores > 0 ? cores : sparse.cores,
          .kind = CoreKind::vector_subcore,
          .subcores = subcores > 0 ? subcores : sparse.subcores};
}

namespace {

const Mesh& mesh_of(const detail::CoreState& core) {
  return core.launch->parts[static_cast<std::size_t>(core.part)];
}

}  // namespace

int core_index() { return detail::current_core("core_index").core; }
int num_cores() { return mesh_of(detail::current_core("num_cores")).cores; }
int subcore_index() { return detail::current_core("subcore_index").subcore; }
int num_subcores() { return mesh_of(detail::current_core("num_subcores")).subcores; }
int device_index() { return detail::current_core("device_index").device; }
int num_devices() { return detail::current_core("num_devices").machine->options.devices; }

void barrier() {
  detail::CoreState& core = detail::current_core("barrier");
  detail::meet(core, core.launch->barrier, -1, static_cast<int>(core.launch->agents.size()),
               "barrier");
}

void subcore_barrier() {
  detail::CoreState& core = detail::current_core("subcore_barrier");
  if (core.kind != CoreKind::vector_subcore) {
    throw TileError(ErrorKind::usage,
                    core.place->text() + ": subcore_barrier is for vector subcores");
  }
  const int first = core.agent - core.subcore;
  detail::meet(core, core.launch->subcore_barriers[static_cast<std::size_t>(first)], first,
               num_subcores(), "subcore barrier");
}

}  // namespace tessera::tile
