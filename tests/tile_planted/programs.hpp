// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "tests/support/tile_fixture.hpp"

// Programs that are wrong, by the names of tests/tile_goldens/planted_*.py, whose documentation
// says what is wrong with each.
namespace tessera::tile::test {

struct Planted {
  std::string name{};
  /// How the machine ends it; none: it runs to its end, see `outcome`.
  std::optional<ErrorKind> kind{};
  std::string in_message{};  ///< a rule, the name of a buffer
  std::function<void(const MachineOptions&)> run{};
  /// Of a program that ends: what stands in its result.
  std::string outcome{};
  /// With copies that move their data when they are waited for, where that differs.
  std::optional<ErrorKind> on_wait{};
};

std::vector<Planted> planted_copies();
std::vector<Planted> planted_cores();
std::vector<Planted> planted_grids();

}  // namespace tessera::tile::test
