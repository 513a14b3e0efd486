// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "host/tile/state.hpp"
#include "host/tile/text.hpp"

namespace tessera::tile {
namespace detail {
namespace {

std::string core_name(const MachineState& machine, int device, int core) {
  return machine.options.devices > 1 ? fmt::format("device {}, core {}", device, core)
                                     : fmt::format("core {}", core);
}

std::unique_ptr<Buffer> make_scratch(const CoreState& core, MemorySpace space, ElementType type,
                                     const Shape& extents, const std::string& name) {
  auto buffer = make_buffer(*core.machine, name, space, type, extents, core.device);
  // SMEM holds words, VMEM tiles.
  const auto word = std::max<std::int64_t>(4, static_cast<std::int64_t>(buffer->element_bytes()));
  buffer->padded_bytes =
      space == MemorySpace::smem
          ? std::accumulate(extents.begin(), extents.end(), word, std::multiplies<std::int64_t>())
          : padded_bytes(core.machine->options.chip, extents, type);
  give_memory(*buffer);
  return buffer;
}

std::unique_ptr<SemaphoreState> make_semaphore(const CoreState& core, SemaphoreKind kind,
                                               const std::string& name) {
  auto semaphore = std::make_unique<SemaphoreState>();
  semaphore->name = name;
  semaphore->kind = kind;
  semaphore->agent = core.agent;
  semaphore->id = core.launch->semaphores++;
  return semaphore;
}

}  // namespace

Stamp CoreState::tick() {
  const Stamp stamp = launch->slots.tick(agent);
  const auto slot = static_cast<std::size_t>(agent);
  if (clock.size() <= slot) clock.resize(slot + 1, 0);
  clock[slot] = stamp.tick;
  return stamp;
}

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

void CoreState::hold(const Buffer& buffer) {
  const auto& chip = machine->options.chip;
  const bool vmem = buffer.space == MemorySpace::vmem;
  auto& bytes = vmem ? vmem_bytes : smem_bytes;
  auto& mark = vmem ? machine->report.vmem_high_water_bytes : machine->report.smem_high_water_bytes;
  if (bytes + buffer.padded_bytes > (vmem ? chip.scoped_vmem_bytes : chip.smem_bytes)) {
    refuse_memory(buffer);
  }
  held.push_back(&buffer);
  bytes += buffer.padded_bytes;
  mark = std::max(mark, bytes);
}

void CoreState::refuse_memory(const Buffer& buffer) const {
  const auto& chip = machine->options.chip;
  const bool vmem = buffer.space == MemorySpace::vmem;
  VmemUse use;
  use.limit = vmem ? chip.scoped_vmem_bytes : chip.smem_bytes;
  const auto add = [&](const Buffer& one) {
    if (one.space != buffer.space) return;
    use.entries.push_back({one.name, one.padded_bytes});
    use.declared += one.padded_bytes;
  };
  for (const Buffer* one : held) add(*one);
  add(buffer);
  if (vmem) require(check_vmem(use));
  std::string text = fmt::format("SMEM of {}: {} bytes are held, the core has {};",
                                 located(*this, "'" + buffer.name + "'"), use.declared, use.limit);
  for (const auto& entry : use.entries) text += fmt::format(" {} {}", entry.buffer, entry.bytes);
  throw TileError(ErrorKind::smem, text, {}, buffer.name);
}

void CoreState::release(const Buffer& buffer) {
  std::erase(held, &buffer);
  (buffer.space == MemorySpace::vmem ? vmem_bytes : smem_bytes) -= buffer.padded_bytes;
}

struct Launch::Impl {
  LaunchState state;
  /// By index of scratch, then by agent.
  struct Scratch {
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<Buffer*> siblings;
    std::vector<std::unique_ptr<SemaphoreState>> semaphores;
    std::vector<SemaphoreState*> semaphore_siblings;
  };
  std::vector<std::unique_ptr<Scratch>> scratch;
  /// Arrays of which every device has one, by agent.
  std::vector<std::unique_ptr<std::vector<Buffer*>>> spread;
};

Launch::Launch(Machine& machine, std::string name, Mesh mesh) : impl_(std::make_unique<Impl>()) {
  auto& state = impl_->state;
  state.machine = &machine.state();
  if (state.machine->running != nullptr) {
    throw TileError(ErrorKind::usage, fmt::format("kernel '{}' is called inside kernel '{}'", name,
                                                  state.machine->running->name));
  }
  const int most = machine.options().chip.cores;
  if (mesh.cores < 1 || mesh.cores > most) {
    throw TileError(ErrorKind::usage,
                    fmt::format("kernel '{}': a mesh of {} cores on {}, which has {}", name,
                                mesh.cores, machine.options().chip.name, most));
  }
  state.name = std::move(name);
  state.cores = mesh.cores;
  const int agents = mesh.cores * machine.options().devices;
  state.slots = ClockSlots(agents);
  for (int agent = 0; agent < agents; ++agent) {
    CoreState core;
    core.machine = state.machine;
    core.launch = &state;
    core.agent = agent;
    core.device = agent / mesh.cores;
    core.core = agent % mesh.cores;
    core.place =
        std::make_shared<Place>(Place{core_name(*state.machine, core.device, core.core), {}});
    state.agents.push_back(std::move(core));
  }
}

Launch::~Launch() {
  for (const auto& arrays : impl_->spread) {
    for (Buffer* array : *arrays) array->siblings = nullptr;
  }
}

int Launch::add_memory(MemorySpace space, ElementType type, const Shape& extents,
                       const std::string& name) {
  auto scratch = std::make_unique<Impl::Scratch>();
  for (CoreState& core : impl_->state.agents) {
    auto buffer = make_scratch(core, space, type, extents, name);
    core.hold(*buffer);
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

SemaphoreState* Launch::semaphore(int agent, int index) const {
  return impl_->scratch.at(static_cast<std::size_t>(index))
      ->semaphores.at(static_cast<std::size_t>(agent))
      .get();
}

int Launch::device_of(int agent) const {
  return impl_->state.agents.at(static_cast<std::size_t>(agent)).device;
}

Region Launch::argument(const Region& array, int agent) const {
  const Buffer& buffer = *array.buffer;
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
  Buffer& own = *arrays[static_cast<std::size_t>(device_of(agent))].buffer;
  if (own.siblings == nullptr) {
    auto& table = impl_->spread.emplace_back(std::make_unique<std::vector<Buffer*>>());
    for (const CoreState& core : state.agents) {
      Buffer* buffer = arrays[static_cast<std::size_t>(core.device)].buffer;
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
  if (machine.options.model_time) model_time(state);
}

struct Scope::Impl {
  CoreState* core = nullptr;
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<std::unique_ptr<SemaphoreState>> semaphores;
};

Scope::Scope() : impl_(std::make_unique<Impl>()) { impl_->core = &current_core("run_scoped"); }

Scope::~Scope() {
  for (const auto& buffer : impl_->buffers) impl_->core->release(*buffer);
}

Region Scope::memory(MemorySpace space, ElementType type, const Shape& extents,
                     const std::string& name) {
  auto buffer = make_scratch(*impl_->core, space, type, extents, name);
  impl_->core->hold(*buffer);
  impl_->buffers.push_back(std::move(buffer));
  return whole(*impl_->buffers.back());
}

SemaphoreState* Scope::semaphore(SemaphoreKind kind, const std::string& name) {
  impl_->semaphores.push_back(make_semaphore(*impl_->core, kind, name));
  return impl_->semaphores.back().get();
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

Mesh tensorcore_mesh(const Machine& machine, int cores) {
  const Chip& chip = machine.options().chip;
  return {cores > 0 ? cores : chip.megacore ? chip.cores : 1};
}

int core_index() { return detail::current_core("core_index").core; }
int num_cores() { return detail::current_core("num_cores").launch->cores; }
int device_index() { return detail::current_core("device_index").device; }
int num_devices() { return detail::current_core("num_devices").machine->options.devices; }

void barrier() {
  detail::CoreState& core = detail::current_core("barrier");
  detail::LaunchState& launch = *core.launch;
  join(launch.at_barrier_clock, core.clock);
  const std::int64_t mine = launch.barriers;
  if (++launch.at_barrier == static_cast<int>(launch.agents.size())) {
    launch.at_barrier = 0;
    ++launch.barriers;
    launch.last_barrier_clock = std::exchange(launch.at_barrier_clock, {});
  } else {
    core.machine->scheduler->wait_until(
        [&] { return launch.barriers > mine; },
        [&] { return fmt::format("the others at a barrier of kernel '{}'", launch.name); });
  }
  join(core.clock, launch.last_barrier_clock);
  core.tick();
  core.note(BarrierEvent{});
}

}  // namespace tessera::tile
