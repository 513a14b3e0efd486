// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/dispatch/context_state.hpp"
#include "tessera/execution.hpp"
#include "tessera/tile/call.hpp"

/// What the implementations `tpu_tile` of several operators share (docs/tile_machine.md).
namespace tessera::operators {

/// The name, what it is, and that it runs only where it is named.
ImplementationInfo tile_info();
/// The TPU that the context names, else v5p.
const tile::Chip& tile_chip(const ContextState& state);
/// Implementation::tuned_names of that TPU.
std::pair<std::string, std::string> tuned_names_of_chip(const ContextState& state);
/// Cores that share the parallel dimensions of a grid.
std::int64_t cores_of_grid(const tile::Chip& chip);
/// Implementation, device and knobs.
void describe_tile_call(const tile::Chip& chip, Dispatch& dispatch);
/// All messages in one.
std::string text_of(const std::vector<tile::Violation>& violations);
/// True where the rows of [..., columns] lie one behind the other, as the machine's arrays do.
bool rows_are_dense(const View& view);

/// An operand that a call may do without: then a scalar stays in HBM, which nobody copies.
template <class T>
class Optional {
 public:
  Optional(tile::Machine& machine, const std::optional<tile::Array<T>>& array,
           const std::string& name)
      : given_(array.has_value()),
        array_(array ? *array : machine.empty_ref<T>("no " + name, {1})) {}
  bool given() const { return given_; }
  const tile::Array<T>& array() const { return array_; }
  tile::BlockSpec spec(const tile::BlockSpec& blocks) const {
    return given_ ? blocks : tile::BlockSpec::in_hbm();
  }

 private:
  bool given_;
  tile::Array<T> array_;
};

}  // namespace tessera::operators
