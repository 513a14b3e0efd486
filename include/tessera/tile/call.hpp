// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/tile/pipeline.hpp"

namespace tessera::tile {

/// Operand `in` (counted with the prefetched ones, as in Pallas) and output `out` are one array.
struct Alias {
  int in = 0;
  int out = 0;
};

/// What Pallas' pallas_call takes.
struct CallSpec {
  Shape grid{};
  std::vector<BlockSpec> in{};  ///< of the operands behind the prefetched ones
  std::vector<BlockSpec> out{};
  std::vector<Semantics> semantics{};  ///< none: all arbitrary; parallel ones come first
  /// The first operands (i32) are copied to SMEM before the grid starts; index maps read them as
  /// `g.prefetched(operand, i)`, the body gets them first.
  int num_scalar_prefetch = 0;
  std::vector<Alias> input_output_aliases{};
  std::optional<CostEstimate> cost_estimate{};  ///< reported beside what is counted
};

namespace detail {

/// The cores that `call` uses: all of a Megacore chip where a dimension is parallel, else one.
TESSERA_API Mesh mesh_of_call(const Machine& machine, const CallSpec& spec);
/// Throws TileError (usage) for counts that differ and aliases that are none, or not declared.
TESSERA_API void check_call(const std::string& name, const CallSpec& spec,
                            std::span<const Region> arrays, std::span<const ElementType> types);
/// On the running core: prefetches, and walks the grid. `body` gets a region per operand.
TESSERA_API void run_call(const CallSpec& spec, std::span<const Region> arrays,
                          const std::function<void(const std::vector<Region>&)>& body);

template <class T>
struct array_element;
template <class T>
struct array_element<Array<T>> {
  using type = T;
};
template <class T>
struct array_element<std::vector<Array<T>>> {
  using type = T;
};

}  // namespace detail

/// A body that runs at every point of a grid with blocks of the operands on chip: Pallas'
/// pallas_call, with its software pipeline. `call(machine, "add", spec, body,
/// Vmem<float>{{8, 128}})(x, y)` calls `body(x_window, y_window, scratch)`: prefetched operands
/// first, then inputs, outputs, scratch. On Megacore chips the parallel dimensions are shared by
/// the cores (partition_grid). The call returns when every core has walked its share and all
/// outputs are written. Throws what `kernel` and `emit_pipeline` throw, and TileError (usage) for
/// another number of arrays than of specifications, aliases that are none and prefetched operands
/// that are not i32.
template <class Body, class... Scratch>
class Call {
 public:
  Call(Machine& machine, std::string name, CallSpec spec, Body body, Scratch... scratch)
      : machine_(&machine),
        name_(std::move(name)),
        spec_(std::move(spec)),
        body_(std::move(body)),
        scratch_(std::move(scratch)...) {}

  template <class... Arrays>
  void operator()(const Arrays&... arrays) {
    constexpr std::size_t count = sizeof...(Arrays);
    detail::Launch launch(*machine_, name_, {detail::mesh_of_call(*machine_, spec_)});
    launch.estimate(spec_.cost_estimate);
    const std::array<detail::Region, count> first{
        detail::argument_of(launch, arrays, 0).region()...};
    detail::check_call(
        name_, spec_, first,
        std::array{element_of<typename detail::array_element<Arrays>::type>::value...});
    const auto indices = std::apply(
        [&](const Scratch&... spec) {
          return std::array<int, sizeof...(Scratch)>{
              detail::ScratchTraits<Scratch>::add(launch, spec)...};
        },
        scratch_);
    launch.run([&](int agent) {
      const std::array<detail::Region, count> regions{
          detail::argument_of(launch, arrays, agent).region()...};
      detail::run_call(spec_, regions, [&](const std::vector<detail::Region>& views) {
        step<Arrays...>(launch, agent, indices, views, std::make_index_sequence<count>{},
                        std::index_sequence_for<Scratch...>{});
      });
    });
  }

 private:
  template <class... Arrays, std::size_t... A, std::size_t... S>
  void step(const detail::Launch& launch, [[maybe_unused]] int agent,
            [[maybe_unused]] const std::array<int, sizeof...(Scratch)>& indices,
            const std::vector<detail::Region>& views, std::index_sequence<A...>,
            std::index_sequence<S...>) {
    body_(Ref<typename detail::array_element<Arrays>::type>(views[A])...,
          detail::ScratchTraits<Scratch>::get(launch, agent, indices[S])...);
  }

  Machine* machine_;
  std::string name_;
  CallSpec spec_;
  Body body_;
  std::tuple<Scratch...> scratch_;
};

template <class Body, class... Scratch>
Call<Body, Scratch...> call(Machine& machine, std::string name, CallSpec spec, Body body,
                            Scratch... scratch) {
  return {machine, std::move(name), std::move(spec), std::move(body), std::move(scratch)...};
}

}  // namespace tessera::tile
