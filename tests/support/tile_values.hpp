// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "tessera/tile/ops.hpp"
#include "tests/support/tile_fixture.hpp"

// Whole refs as doubles, for tests of operations.
namespace tessera::tile::test {

/// The kernel `body` on one core.
template <class Body, class... Scratch>
void in_kernel(Machine& machine, Body body, const Scratch&... scratch) {
  kernel(machine, "test", tensorcore_mesh(machine, 1), body, scratch...)();
}

/// For values that are set and read one by one: the race check keeps each such access.
inline Machine without_races(int threads = 0) {
  MachineOptions options;
  options.detect_races = false;
  options.threads = threads;
  return Machine(options);
}

template <class T>
double as_double(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(static_cast<float>(value));
  }
}

/// Small numbers of both signs that repeat late; with `outliers` some a thousand times larger.
struct Pattern {
  std::uint32_t seed = 1;
  bool outliers = false;
  double operator()(std::int64_t i, std::int64_t j) const {
    auto x = static_cast<std::uint32_t>(i * 7919 + j * 104729) + seed * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    const double value = static_cast<double>(x % 4001) / 1000.0 - 2.0;
    return outliers && x % 97 == 0 ? 1000 * value : value;
  }
};

/// ref[i, j] = f(i, j), one element at a time.
template <class T, class F>
void set(const Ref<T>& ref, F f) {
  const Shape e = ref.extents();
  for (std::int64_t i = 0; i < e[0]; ++i) {
    for (std::int64_t j = 0; j < e[1]; ++j) {
      if constexpr (std::is_integral_v<T>) {
        ref.store(static_cast<T>(static_cast<std::int64_t>(f(i, j))), i, j);
      } else {
        ref.store(T(static_cast<float>(f(i, j))), i, j);
      }
    }
  }
}

struct Values {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> data{};
  double operator()(std::int64_t i, std::int64_t j) const {
    return data[static_cast<std::size_t>(i * columns + j)];
  }
};
template <class T>
Values get(const Ref<T>& ref) {
  const Shape e = ref.extents();
  Values values{e[0], e[1]};
  for (std::int64_t i = 0; i < e[0]; ++i) {
    for (std::int64_t j = 0; j < e[1]; ++j) values.data.push_back(as_double(ref.load(i, j)));
  }
  return values;
}

/// Equal, or NaN both.
inline bool identical(double a, double b) { return a == b || (a != a && b != b); }

}  // namespace tessera::tile::test
