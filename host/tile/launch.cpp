// SPDX-License-Identifier: Apache-2.0
#include "host/tile/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "host/tile/buffer.hpp"
#include "host/tile/core.hpp"
#include "host/tile/machine_state.hpp"
#include "host/tile/semaphore.hpp"
#include "host/tile/text.hpp"

namespace tessera::tile {
namespace detail {
namespace {

/// On chip, where the core has room for it: that is judged before the host is asked for as much.
std::shared_ptr<Buffer> make_scratch(CoreState& core, MemorySpace space, ElementType type,
                                     const Shape& extents, const std::string& name,
                                     bool poisoned = true) {
  auto buffer = make_buffer(*core.machine, name, space, type, extents, core.device);
  // SMEM holds words, VMEM tiles.
  const auto word = std::max<std::int64_t>(4, static_cast<std::int64_t>(buffer->element_bytes()));
  buffer->padded_bytes =
      space == MemorySpace::smem
          ? std::accumulate(extents.begin(), extents.end(), word, std::multiplies<std::int64_t>())
          : padded_bytes(core.machine->options.chip, extents, type, core.tiling());
  buffer->agent = core.agent;
  core.hold(*buffer);
  give_memory(*buffer, poisoned);
  return buffer;
}

std::shared_ptr<SemaphoreState> make_semaphore(const CoreState& core, SemaphoreKind kind,
                                               const std::string& name) {
  auto semaphore = std::make_shared<SemaphoreState>();
  semaphore->name = name;
  semaphore->kind = kind;
  semaphore->agent = core.agent;
  semaphore->id = core.launch->semaphores++;
  return semaphore;
}

}  // namespace

struct Launch::Impl {
  LaunchState state;
  /// By index of scratch, then by agent.
  struct Scratch {
    std::vector<std::shared_ptr<Buffer>> buffers;
    std::vector<Buffer*> siblings;
    std::vector<std::shared_ptr<SemaphoreState>> semaphores;
    std::vector<SemaphoreState*> semaphore_siblings;
  };
  std::vector<std::unique_ptr<Scratch>> scratch;
  /// Arrays of which every device has one, by agent.
  std::vector<std::unique_ptr<std::vector<Buffer*>>> spread;
  std::optional<CostEstimate> estimated;
};

namespace {

/// All kernels so far.
CostEstimate counted(const Report& report) {
  CostEstimate cost;
  cost.flops = report.work.flops;
  cost.transcendentals = report.work.eup_ops;
  for (const BufferReport& buffer : report.buffers) {
    if (buffer.space != MemorySpace::hbm) continue;
    cost.bytes_accessed += static_cast<double>(buffer.bytes_read + buffer.bytes_written);
  }
  cost.remote_bytes_transferred = static_cast<double>(report.bytes_remote);
  return cost;
}

}  // namespace

Launch::Launch(Machine& machine, std::string name, const std::vector<Mesh>& meshes)
    : impl_(std::make_unique<Impl>()) {
  auto& state = impl_->state;
  state.machine = &machine.state();
  if (state.machine->running != nullptr) {
    throw TileError(ErrorKind::usage, fmt::format("kernel '{}' is called inside kernel '{}'", name,
                                                  state.machine->running->name));
  }
  state.name = std::move(name);
  state.parts = meshes;
  state.per_device = 0;
  for (const Mesh& mesh : meshes) {
    check_mesh(machine.options().chip, state.name, mesh);
    state.first_of_part.push_back(state.per_device);
    state.per_device += mesh.cores * mesh.subcores;
  }
  const int devices = machine.options().devices;
  state.slots = ClockSlots(state.per_device * devices);
  state.subcore_barriers.resize(static_cast<std::size_t>(state.per_device * devices));
  for (int device = 0; device < devices; ++device) {
    for (std::size_t part = 0; part < meshes.size(); ++part) {
      for (int i = 0; i < meshes[part].cores * meshes[part].subcores; ++i) {
        CoreState core;
        core.machine = state.machine;
        core.launch = &state;
        core.agent = static_cast<int>(state.agents.size());
        core.device = device;
        core.part = static_cast<int>(part);
        core.kind = meshes[part].kind;
        core.core = i / meshes[part].subcores;
        core.subcore = i % meshes[part].subcores;
        core.place = std::make_shared<Place>(Place{name_of(core), {}});
        state.agents.push_back(std::move(core));
      }
    }
  }
}

Launch::~Launch() {
  for (const auto& arrays : impl_->spread) {
    for (Buffer* array : *arrays) array->siblings = nullptr;
  }
  const std::string with = fmt::format("kernel '{}'", impl_->state.name);
  for (const auto& scratch : impl_->scratch) {
    for (const auto& buffer : scratch->buffers) end(*buffer, with);
    for (const auto& semaphore : scratch->semaphores) end(*semaphore, with);
  }
}

int Launch::add_memory(MemorySpace space, ElementType type, const Shape& extents,
                       const std::string& name) {
  auto scratch = std::make_unique<Impl::Scratch>();
  for (CoreState& core : impl_->state.agents) {
    auto buffer = make_scratch(core, space, type, extents, name);
    scratch->siblings.push_back(buffer.get());
    scratch->buffers.push_back(std::move(buffer));
  }
  for (Buffer* buffer : scratch->siblings) buffer->siblings = &scratch->siblings;
  impl_->scratch.push_back(std::move(scratch));
  return static_cast<int>(impl_->scratch.size()) - 1;
}

int Launch::add_semaphore(SemaphoreKind kind, const std::string& name) {
  auto scratch = std::make_unique<Impl::Scratch>();
  for (const CoreState& core : impl_->state.agents) {
    auto semaphore = make_semaphore(core, kind, name);
    scratch->semaphore_siblings.push_back(semaphore.get());
    scratch->semaphores.push_back(std::move(semaphore));
  }
  for (auto* semaphore : scratch->semaphore_siblings) {
    semaphore->siblings = &scratch->semaphore_siblings;
  }
  impl_->scratch.push_back(std::move(scratch));
  return static_cast<int>(impl_->scratch.size()) - 1;
}

Region Launch::region(int agent, int index) const {
  return whole(*impl_->scratch.at(static_cast<std::size_t>(index))
                    ->buffers.at(static_cast<std::size_t>(agent)));
}

std::shared_ptr<SemaphoreState> Launch::semaphore(int agent, int index) const {
  return impl_->scratch.at(static_cast<std::size_t>(index))
      ->semaphores.at(static_cast<std::size_t>(agent));
}

int Launch::device_of(int agent) const {
  return impl_->state.agents.at(static_cast<std::size_t>(agent)).device;
}

int Launch::part_of(int agent) const {
  return impl_->state.agents.at(static_cast<std::size_t>(agent)).part;
}

void Launch::check_distinct(const std::vector<Region>& arrays) const {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (arrays[i].buffer != arrays[j].buffer) continue;
      throw TileError(ErrorKind::usage,
                      fmt::format("'{}' is argument {} and {} of kernel '{}'; pass it once",
                                  arrays[i].buffer->name, j, i, impl_->state.name),
                      {}, arrays[i].buffer->name);
    }
  }
}

Region Launch::argument(const Region& array, int agent) const {
  const Buffer& buffer = buffer_of(array);
  if (buffer.machine != impl_->state.machine) {
    throw TileError(ErrorKind::usage,
                    fmt::format("'{}' of kernel '{}' belongs to another machine; give arrays of "
                                "the one that runs the kernel",
                                buffer.name, impl_->state.name),
                    {}, buffer.name);
  }
  if (buffer.frozen) {
    throw TileError(ErrorKind::usage, fmt::format("'{}' of kernel '{}' has been frozen",
                                                  buffer.name, impl_->state.name));
  }
  if (buffer.device != device_of(agent)) {
    throw TileError(ErrorKind::usage,
                    fmt::format("'{}' of kernel '{}' is on device {}, device {} cannot reach it; "
                                "pass an array for every device",
                                buffer.name, impl_->state.name, buffer.device, device_of(agent)));
  }
  return array;
}

Region Launch::argument(const std::vector<Region>& arrays, int agent) const {
  const auto& state = impl_->state;
  const auto devices = static_cast<std::size_t>(state.machine->options.devices);
  if (arrays.size() != devices) {
    throw TileError(ErrorKind::usage, fmt::format("kernel '{}': {} arrays for {} devices",
                                                  state.name, arrays.size(), devices));
  }
  Buffer& own = buffer_of(arrays[static_cast<std::size_t>(device_of(agent))]);
  if (own.siblings == nullptr) {
    auto& table = impl_->spread.emplace_back(std::make_unique<std::vector<Buffer*>>());
    for (const CoreState& core : state.agents) {
      Buffer* buffer = &buffer_of(arrays[static_cast<std::size_t>(core.device)]);
      if (buffer->shape != own.shape || buffer->type != own.type) {
        throw TileError(ErrorKind::usage,
                        fmt::format("kernel '{}': '{}' {} and '{}' {} are to be the same array of "
                                    "several devices",
                                    state.name, own.name, to_text(own.shape), buffer->name,
                                    to_text(buffer->shape)));
      }
      table->push_back(buffer);
    }
    for (Buffer* buffer : *table) buffer->siblings = table.get();
  }
  return argument(arrays[static_cast<std::size_t>(device_of(agent))], agent);
}

void Launch::estimate(const std::optional<CostEstimate>& cost) { impl_->estimated = cost; }

void Launch::run(const std::function<void(int)>& body) {
  auto& state = impl_->state;
  MachineState& machine = *state.machine;
  for (auto& array : machine.arrays) array->log.clear();  // a kernel ends before the next begins
  std::vector<Scheduler::Agent> agents;
  for (CoreState& core : state.agents) {
    agents.push_back({core.place->core, [&core, &body] {
                        const Running running(core);
                        core.tick();
                        body(core.agent);
                      }});
  }
  const CostEstimate before = impl_->estimated ? counted(machine.report) : CostEstimate{};
  machine.running = &state;
  ++machine.report.kernels;
  try {
    machine.scheduler->run(agents);
    for (const auto& scratch : impl_->scratch) {
      for (const auto& semaphore : scratch->semaphores) {
        check_at_exit(*semaphore, state.agents[static_cast<std::size_t>(semaphore->agent)]);
      }
    }
  } catch (...) {
    machine.running = nullptr;
    throw;
  }
  machine.running = nullptr;
  if (impl_->estimated) {
    CostEstimate after = counted(machine.report);
    after.flops -= before.flops;
    after.transcendentals -= before.transcendentals;
    after.bytes_accessed -= before.bytes_accessed;
    after.remote_bytes_transferred -= before.remote_bytes_transferred;
    machine.report.costs.push_back({state.name, *impl_->estimated, after});
  }
  if (machine.options.model_time) model_time(state);
}

struct Scope::Impl {
  CoreState* core = nullptr;
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::vector<std::shared_ptr<SemaphoreState>> semaphores;
};

Scope::Scope() : impl_(std::make_unique<Impl>()) { impl_->core = &current_core("run_scoped"); }

Scope::~Scope() {
  const std::string with = "its run_scoped";
  for (const auto& buffer : impl_->buffers) {
    impl_->core->release(*buffer);
    end(*buffer, with);
  }
  for (const auto& semaphore : impl_->semaphores) end(*semaphore, with);
}

Region Scope::memory(MemorySpace space, ElementType type, const Shape& extents,
                     const std::string& name, bool poisoned) {
  impl_->buffers.push_back(make_scratch(*impl_->core, space, type, extents, name, poisoned));
  return whole(*impl_->buffers.back());
}

std::shared_ptr<SemaphoreState> Scope::semaphore(SemaphoreKind kind, const std::string& name) {
  impl_->semaphores.push_back(make_semaphore(*impl_->core, kind, name));
  return impl_->semaphores.back();
}

void Scope::check() const {
  for (const auto& buffer : impl_->buffers) {
    if (buffer->in_flight == 0) continue;
    throw TileError(
        ErrorKind::unfinished_dma,
        located(buffer->name) + " ends while a copy of it is in flight; wait for it in its scope",
        {}, buffer->name);
  }
  for (const auto& semaphore : impl_->semaphores) check_at_exit(*semaphore, *impl_->core);
}

}  // namespace detail

}  // namespace tessera::tile
