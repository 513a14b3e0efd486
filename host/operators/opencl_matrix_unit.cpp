// SPDX-License-Identifier: Apache-2.0
#include "host/engines/gates.hpp"
#include "host/engines/wgmma_probe.hpp"
#include "host/operators/matrix_unit.hpp"

namespace tessera::operators {

std::optional<std::string> wgmma_state(Context& context) {
  auto* runtime = opencl::runtime_of(context.state());
  if (runtime == nullptr || runtime->only_plans()) return std::nullopt;
  if (engines::capability(runtime->facts()) != engines::hopper) return std::nullopt;
  const auto verdict = runtime->keep<engines::Wgmma>().verdict(*runtime);
  return verdict.reason.empty() ? "open" : "closed: " + verdict.reason;
}

}  // namespace tessera::operators
