// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "tessera/tile/ops.hpp"
#include "tests/support/tile_fixture.hpp"

// Whole refs as doubles, for tests of operations.
namespace tessera::tile::test {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// For values that are set and read one by one: the race check keeps each such access.
inline Machine without_races(int threads = 0) {
  return Machine({.detect_races = false, .threads = threads});
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

struct Values {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> data{};
  double operator()(std::int64_t i, std::int64_t j) const {
    return data[static_cast<std::size_t>(i * columns + j)];
  }
  bool operator==(const Values&) const = default;
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

/// A value, and how far from it one that is finite may be.
struct Near {
  double value, tolerance;
  template <class T>
  Near(T x, double most = 0) : value(static_cast<double>(x)), tolerance(most) {}
  bool has(double x) const {
    return tolerance > 0 && std::isfinite(value) ? std::abs(x - value) <= tolerance
                                                 : identical(x, value);
  }
};

/// Every value is what `expected(i, j)` says, a number or a Near.
template <class F>
void expect_values(const Values& values, F expected) {
  int wrong = 0;
  for (std::int64_t i = 0; i < values.rows; ++i) {
    for (std::int64_t j = 0; j < values.columns; ++j) {
      const Near want = expected(i, j);
      if (!want.has(values(i, j)) && ++wrong <= 3) {
        ADD_FAILURE() << "(" << i << ", " << j << "): " << values(i, j) << ", expected "
                      << want.value;
      }
    }
  }
  EXPECT_EQ(wrong, 0);
}

/// `run(machine, result)` has the same result to the bit on one thread and on several.
template <class Run>
void same_on_threads(Run run) {
  std::vector<Values> results;
  for (const int threads : {1, 2, 3, 5}) {
    Machine machine = without_races(threads);
    run(machine, results.emplace_back());
    EXPECT_EQ(results.back(), results[0]) << threads << " threads";
  }
}

}  // namespace tessera::tile::test
