// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/custom_kernel.hpp"
#include "tessera/tile/machine.hpp"

namespace tessera::tile {

/// A body for `CustomKernelSpec::tile`: `run(machine, inputs, outputs, call)` computes the outputs
/// on a machine of the context's chip, v5p where it has none. The arrays are dense. In a header,
/// so that it runs in the tile library that the program is linked with.
template <class Run>
auto body(Run run) {
  return [run = std::move(run)](const std::string& chip, const std::vector<View>& inputs,
                                const std::vector<MutableView>& outputs, const KernelCall& call) {
    Machine machine({.chip = find_chip(chip.empty() ? "v5p" : chip)});
    run(machine, inputs, outputs, call);
    const auto& time = machine.report().time;
    return std::vector<std::string>{"on " + machine.options().chip.name + " it would take about " +
                                    std::to_string(1e6 * time.modelled_seconds) + " us, bound by " +
                                    time.bound};
  };
}

}  // namespace tessera::tile
