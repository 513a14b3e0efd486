// SPDX-License-Identifier: Apache-2.0
#include "tessera/tile/call.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "host/tile/buffer.hpp"
#include "host/tile/core.hpp"

namespace tessera::tile::detail {
namespace {

[[noreturn]] void refuse(const std::string& kernel, const std::string& what,
                         const std::string& buffer = {}) {
  throw TileError(ErrorKind::usage, fmt::format("call '{}': {}", kernel, what), {}, buffer);
}

}  // namespace

Mesh mesh_of_call(const Machine& machine, const CallSpec& spec) {
  const bool parallel = std::find(spec.semantics.begin(), spec.semantics.end(),
                                  Semantics::parallel) != spec.semantics.end();
  return tensorcore_mesh(machine, parallel ? 0 : 1);
}

void check_call(const std::string& name, const CallSpec& spec, std::span<const Region> arrays,
                std::span<const ElementType> types) {
  const auto prefetch = static_cast<std::size_t>(std::max(spec.num_scalar_prefetch, 0));
  const std::size_t inputs = prefetch + spec.in.size();
  if (spec.num_scalar_prefetch < 0 || arrays.size() != inputs + spec.out.size()) {
    refuse(name,
           fmt::format("{} operands for {} prefetched ones, {} inputs and {} outputs",
                       arrays.size(), spec.num_scalar_prefetch, spec.in.size(), spec.out.size()));
  }
  for (std::size_t i = 0; i < prefetch; ++i) {
    if (types[i] == ElementType::i32) continue;
    refuse(name,
           fmt::format("'{}' is prefetched and holds {}; SMEM takes i32 indices",
                       name_of(arrays[i]), to_string(types[i])),
           name_of(arrays[i]));
  }
  const auto declared = [&](std::size_t in, std::size_t out) {
    return std::any_of(spec.input_output_aliases.begin(), spec.input_output_aliases.end(),
                       [&](const Alias& alias) {
                         return static_cast<std::size_t>(alias.in) == in &&
                                static_cast<std::size_t>(alias.out) == out;
                       });
  };
  for (const Alias& alias : spec.input_output_aliases) {
    const auto in = static_cast<std::size_t>(alias.in);
    const auto out = static_cast<std::size_t>(alias.out);
    if (alias.in < 0 || alias.out < 0 || in >= inputs || out >= spec.out.size()) {
      refuse(name, fmt::format("the alias of input {} and output {}: there are {} inputs and {} "
                               "outputs",
                               alias.in, alias.out, inputs, spec.out.size()));
    }
    if (in < prefetch) {
      refuse(name,
             fmt::format("'{}' is prefetched into SMEM and cannot be aliased to an output",
                         name_of(arrays[in])),
             name_of(arrays[in]));
    }
    if (arrays[in].buffer != arrays[inputs + out].buffer) {
      refuse(name, fmt::format("input {} '{}' and output {} '{}' are declared one array; pass the "
                               "same",
                               in, name_of(arrays[in]), out, name_of(arrays[inputs + out])));
    }
  }
  for (std::size_t out = 0; out < spec.out.size(); ++out) {
    for (std::size_t other = 0; other < inputs + out; ++other) {
      if (arrays[other].buffer != arrays[inputs + out].buffer) continue;
      if (other < inputs && declared(other, out)) continue;
      refuse(name,
             fmt::format("'{}' is operand {} and output {}; declare it in input_output_aliases",
                         name_of(arrays[other]), other, out),
             name_of(arrays[other]));
    }
  }
}

void run_call(const CallSpec& spec, std::span<const Region> arrays,
              const std::function<void(const std::vector<Region>&)>& body) {
  const auto prefetch = static_cast<std::size_t>(spec.num_scalar_prefetch);
  Scope scope;
  std::vector<Region> prefetched;
  for (const Region& array : arrays.first(prefetch)) {
    prefetched.push_back(scope.memory(MemorySpace::smem, array.buffer->type, extents_of(array),
                                      array.buffer->name + " prefetched"));
    sync_copy(array, prefetched.back());
  }
  const PipelineSpec pipeline{.grid = spec.grid,
                              .in = spec.in,
                              .out = spec.out,
                              .semantics = spec.semantics,
                              .over_cores = current_core("call").shares() > 1};
  run_pipeline(pipeline, arrays.subspan(prefetch), prefetched, Issuer::call,
               [&](const std::vector<Region>& windows) {
                 if (prefetched.empty()) return body(windows);
                 std::vector<Region> views = prefetched;
                 views.insert(views.end(), windows.begin(), windows.end());
                 body(views);
               });
  scope.check();
}

}  // namespace tessera::tile::detail
