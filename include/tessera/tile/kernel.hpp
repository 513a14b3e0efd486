// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/tile/copies.hpp"
#include "tessera/tile/machine.hpp"

namespace tessera::tile {

/// What kind of core runs a body. A SparseCore has one scalar subcore, which starts copies and
/// computes in SMEM, and several vector subcores with a VMEM of their own, which also gather and
/// scatter.
enum class CoreKind { tensor_core, scalar_subcore, vector_subcore };

/// The cores that run a kernel, on every device of the machine.
struct Mesh {
  int cores = 1;
  CoreKind kind = CoreKind::tensor_core;
  int subcores = 1;  ///< of each core, vector subcores only
};
/// `cores` TensorCores of each device; 0: all that share a device (2 with Megacore, else 1). More
/// than the chip has are refused when a kernel runs on the mesh.
TESSERA_API Mesh tensorcore_mesh(const Machine& machine, int cores = 0);
/// SparseCores, or vector subcores of them; 0: all. Throws TileError (usage) on a chip without.
TESSERA_API Mesh scalar_subcore_mesh(const Machine& machine, int cores = 0);
TESSERA_API Mesh vector_subcore_mesh(const Machine& machine, int cores = 0, int subcores = 0);

/// Scratch of every core that runs a kernel; each core's starts uninitialised and ends with it.
template <class T>
struct Vmem {
  Shape extents{};
  std::string name = "vmem scratch";
};
template <class T>
struct Smem {
  Shape extents{};
  std::string name = "smem scratch";
};
struct DmaSem {
  std::string name = "dma semaphore";
};
struct RegularSem {
  std::string name = "semaphore";
};
/// Several, of which the body gets a std::array: `DmaSems<2>{"slots"}`.
template <std::size_t count>
struct DmaSems {
  std::string name = "dma semaphores";
};
template <std::size_t count>
struct RegularSems {
  std::string name = "semaphores";
};

/// Of the running core: its index in the mesh, how many there are, and the same of devices. Throw
/// TileError (usage) outside of a kernel.
TESSERA_API int core_index();
TESSERA_API int num_cores();
TESSERA_API int subcore_index();
TESSERA_API int num_subcores();
TESSERA_API int device_index();
TESSERA_API int num_devices();

namespace detail {

enum class SemaphoreKind { regular, dma };

/// One kernel on all of its cores.
class TESSERA_API Launch {
 public:
  Launch(Machine& machine, std::string name, const std::vector<Mesh>& meshes);
  ~Launch();
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  /// Scratch on every core; an index for `region` and `semaphore` below. Throws TileError (vmem,
  /// smem) with the list of who holds what.
  int add_memory(MemorySpace space, ElementType type, const Shape& extents,
                 const std::string& name);
  int add_semaphore(SemaphoreKind kind, const std::string& name);
  Region region(int agent, int index) const;
  std::shared_ptr<SemaphoreState> semaphore(int agent, int index) const;

  int device_of(int agent) const;
  /// Which of the meshes a core belongs to.
  int part_of(int agent) const;
  /// Throws TileError (usage) for an array that is given twice.
  void check_distinct(const std::vector<Region>& arrays) const;
  /// An array for the core `agent`. Throws TileError (usage) where it is of another machine, on
  /// another device, or has been frozen.
  Region argument(const Region& array, int agent) const;
  /// Of one array per device, which remote copies reach by the name that any device has for its
  /// own.
  Region argument(const std::vector<Region>& arrays, int agent) const;
  /// To be reported beside what is counted.
  void estimate(const std::optional<CostEstimate>& cost);
  /// Runs `body(agent)` on every core, and the checks at the end.
  void run(const std::function<void(int)>& body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Scratch of the running core for as long as it lives.
class TESSERA_API Scope {
 public:
  Scope();
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  /// Not `poisoned`: nobody sees it before it is written or poisoned.
  Region memory(MemorySpace space, ElementType type, const Shape& extents, const std::string& name,
                bool poisoned = true);
  std::shared_ptr<SemaphoreState> semaphore(SemaphoreKind kind, const std::string& name);
  /// Throws for copies that are still in flight and semaphores that are not zero; before it ends.
  void check() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

template <class T>
struct ScratchTraits;
template <class Spec, class T, MemorySpace space>
struct MemoryTraits {
  static int add(Launch& launch, const Spec& spec) {
    return launch.add_memory(space, element_of<T>::value, spec.extents, spec.name);
  }
  static Ref<T> get(const Launch& launch, int agent, int index) {
    return Ref<T>(launch.region(agent, index));
  }
  static Ref<T> make(Scope& scope, const Spec& spec) {
    return Ref<T>(scope.memory(space, element_of<T>::value, spec.extents, spec.name));
  }
};
template <class T>
struct ScratchTraits<Vmem<T>> : MemoryTraits<Vmem<T>, T, MemorySpace::vmem> {};
template <class T>
struct ScratchTraits<Smem<T>> : MemoryTraits<Smem<T>, T, MemorySpace::smem> {};

template <class Spec, class Handle, SemaphoreKind kind>
struct SemaphoreTraits {
  static int add(Launch& launch, const Spec& spec) { return launch.add_semaphore(kind, spec.name); }
  static Handle get(const Launch& launch, int agent, int index) {
    return Handle(launch.semaphore(agent, index));
  }
  static Handle make(Scope& scope, const Spec& spec) {
    return Handle(scope.semaphore(kind, spec.name));
  }
};
template <>
struct ScratchTraits<DmaSem> : SemaphoreTraits<DmaSem, DmaSemaphore, SemaphoreKind::dma> {};
template <>
struct ScratchTraits<RegularSem> : SemaphoreTraits<RegularSem, Semaphore, SemaphoreKind::regular> {
};

template <std::size_t count, class Handle, SemaphoreKind kind>
struct SemaphoresTraits {
  using Handles = std::array<Handle, count>;
  template <class Spec>
  static int add(Launch& launch, const Spec& spec) {
    int last = 0;
    for (std::size_t i = 0; i < count; ++i) {
      last = launch.add_semaphore(kind, spec.name + " " + std::to_string(i));
    }
    return last;
  }
  /// `last`: scratch is numbered in the order in which it is added.
  static Handles get(const Launch& launch, int agent, int last) {
    Handles handles;
    for (std::size_t i = 0; i < count; ++i) {
      handles[i] = Handle(launch.semaphore(agent, last - static_cast<int>(count - 1 - i)));
    }
    return handles;
  }
  template <class Spec>
  static Handles make(Scope& scope, const Spec& spec) {
    Handles handles;
    for (std::size_t i = 0; i < count; ++i) {
      handles[i] = Handle(scope.semaphore(kind, spec.name + " " + std::to_string(i)));
    }
    return handles;
  }
};
template <std::size_t count>
struct ScratchTraits<DmaSems<count>> : SemaphoresTraits<count, DmaSemaphore, SemaphoreKind::dma> {};
template <std::size_t count>
struct ScratchTraits<RegularSems<count>>
    : SemaphoresTraits<count, Semaphore, SemaphoreKind::regular> {};

template <class T>
Ref<T> argument_of(const Launch& launch, const Array<T>& array, int agent) {
  return Ref<T>(launch.argument(array.region(), agent));
}
/// One array per device.
template <class T>
Ref<T> argument_of(const Launch& launch, const std::vector<Array<T>>& arrays, int agent) {
  std::vector<Region> regions;
  for (const auto& array : arrays) regions.push_back(array.region());
  return Ref<T>(launch.argument(regions, agent));
}

}  // namespace detail

/// A body and the cores that run it, of a kernel with several.
template <class Body>
struct Part {
  Mesh mesh{};
  Body body;
};
/// `body` on `mesh`, for `mpmd`.
template <class Body>
Part<Body> part(Mesh mesh, Body body) {
  return {mesh, std::move(body)};
}

/// Bodies that run once on every core of their meshes, at the same time: what `kernel` and `mpmd`
/// make.
template <class Parts, class... Scratch>
class Kernel {
 public:
  Kernel(Machine& machine, std::string name, Parts parts, Scratch... scratch)
      : machine_(&machine),
        name_(std::move(name)),
        parts_(std::move(parts)),
        scratch_(std::move(scratch)...) {}

  /// Reported beside what is counted.
  Kernel& with(const CostEstimate& cost) {
    cost_ = cost;
    return *this;
  }

  template <class... Arrays>
  void operator()(const Arrays&... arrays) {
    detail::Launch launch(
        *machine_, name_,
        std::apply([](const auto&... part) { return std::vector<Mesh>{part.mesh...}; }, parts_));
    launch.estimate(cost_);
    launch.check_distinct({detail::argument_of(launch, arrays, 0).region()...});
    const auto indices = std::apply(
        [&](const Scratch&... spec) {
          return std::array<int, sizeof...(Scratch)>{
              detail::ScratchTraits<Scratch>::add(launch, spec)...};
        },
        scratch_);
    launch.run([&](int agent) {
      call<0>(launch, agent, indices, std::index_sequence_for<Scratch...>{}, arrays...);
    });
  }

 private:
  template <std::size_t part, std::size_t... I, class... Arrays>
  void call(const detail::Launch& launch, int agent,
            [[maybe_unused]] const std::array<int, sizeof...(Scratch)>& indices,
            std::index_sequence<I...> scratch, const Arrays&... arrays) {
    if constexpr (part + 1 < std::tuple_size_v<Parts>) {
      if (launch.part_of(agent) != static_cast<int>(part)) {
        return call<part + 1>(launch, agent, indices, scratch, arrays...);
      }
    }
    std::get<part>(parts_).body(detail::argument_of(launch, arrays, agent)...,
                                detail::ScratchTraits<Scratch>::get(launch, agent, indices[I])...);
  }

  Machine* machine_;
  std::string name_;
  Parts parts_;
  std::tuple<Scratch...> scratch_;
  std::optional<CostEstimate> cost_;
};

/// A body that runs once on every core of a mesh, with refs of arrays in HBM: Pallas' pl.kernel.
/// `kernel(machine, "copy", mesh, body, Vmem<float>{{8, 128}}, DmaSem{})(x, y)` calls
/// `body(x_ref, y_ref, vmem_ref, dma_semaphore)` on each. The arrays are those of a machine of one
/// device, or a `std::vector` of one per device each. The call returns when all have ended, with
/// outputs written. Throws TileError: (usage) for a mesh that the chip has not, an array of another
/// device, one that is given twice or frozen, (vmem, smem) for more scratch than there is, and
/// whatever a body ran into, which ends the kernel on every core; arrays are unspecified then.
template <class Body, class... Scratch>
Kernel<std::tuple<Part<Body>>, Scratch...> kernel(Machine& machine, std::string name, Mesh mesh,
                                                  Body body, Scratch... scratch) {
  return {machine, std::move(name), std::tuple(part(mesh, std::move(body))), std::move(scratch)...};
}

/// Several bodies on several meshes at the same time, all with the same arrays and each core with
/// scratch of its own: `mpmd(machine, "gather", std::tuple{part(tensorcore_mesh(machine), compute),
/// part(vector_subcore_mesh(machine), fetch)}, RegularSem{"ready"})(x, y)`. They meet through
/// semaphores of one another (Target::mesh).
template <class... Bodies, class... Scratch>
Kernel<std::tuple<Part<Bodies>...>, Scratch...> mpmd(Machine& machine, std::string name,
                                                     std::tuple<Part<Bodies>...> parts,
                                                     Scratch... scratch) {
  return {machine, std::move(name), std::move(parts), std::move(scratch)...};
}

/// Scratch of the running core for the length of `body(refs and semaphores...)`, which other cores
/// cannot name. Throws TileError (vmem, smem) with who holds what, (unfinished_dma, semaphore) for
/// copies in flight and semaphores that are not zero when the body ends.
template <class Body, class... Scratch>
void run_scoped(Body body, const Scratch&... scratch) {
  detail::Scope scope;
  // Braces: scratch is made in the order in which it is named.
  std::tuple made{detail::ScratchTraits<Scratch>::make(scope, scratch)...};
  std::apply(std::move(body), std::move(made));
  scope.check();
}

}  // namespace tessera::tile
