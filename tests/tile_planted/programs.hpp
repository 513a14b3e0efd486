// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/tile/call.hpp"

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

/// x + 1 or what a body makes of it; the result is `out`, -1 where nothing was written.
struct Problem {
  std::int64_t rows = 8;
  std::int64_t columns = 128;
  std::vector<float> x{};
  std::vector<float> out{};

  explicit Problem(std::int64_t r, std::int64_t c = 128);
  Array<float> in(Machine& machine) const;
  Array<float> result(Machine& machine);
  float sum() const;  ///< of out
};

/// to = from + amount.
void add(const Ref<float>& from, const Ref<float>& to, float amount = 1.0f);

}  // namespace tessera::tile::test
