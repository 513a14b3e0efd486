// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "host/linear_cross_entropy/request.hpp"
#include "host/linear_cross_entropy/tile/kernel.hpp"

/// How `tpu_tile` serves one request; decided by shapes, types and options alone.
namespace tessera::linear_cross_entropy::tpu_tile {

struct Setup {
  const tile::Chip* chip = nullptr;
  Kernel kernel{};  ///< b and h are the caller's, and may be 0
  Operands operands{};
  BlockSource source = BlockSource::fallback;
  /// x and w have to be copied for the machine, whose arrays are row-major. Rows that do not take
  /// part make a copy of x too.
  bool copies_x = false, copies_w = false;
  /// The kernel writes the caller's own memory.
  bool direct_grad_x = false, direct_grad_w = false;
};

/// What refuses the request goes to `reason`, with the rule's name; then the setup is of no use.
Setup make_setup(const ContextState& state, const Request& request,
                 std::optional<std::string>& reason);

/// Tables of rows, from the context's scratch memory.
std::int64_t table_bytes(const Request& request);

/// The call itself; `setup` has no reason against it.
std::unique_ptr<Completion::State> run(const std::shared_ptr<ContextState>& state,
                                       const Request& request, const Setup& setup,
                                       dispatch::Attempt& attempt);

}  // namespace tessera::linear_cross_entropy::tpu_tile
