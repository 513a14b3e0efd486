// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/problem.hpp"

/// Problems that nobody chose.
namespace tessera::test::fuzz {

/// A sequence that is the same with every standard library (splitmix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  /// Below `n`, which is at least 1.
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(n));
  }
  /// True once in `n` times.
  bool once_in(std::int64_t n) { return below(n) == 0; }
  /// Uniform over [low, high).
  float number(float low, float high) {
    return low + (high - low) * static_cast<float>(below(1 << 20)) / (1 << 20);
  }
  template <class T>
  const T& one_of(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(below(static_cast<std::int64_t>(list.size())))];
  }

 private:
  std::uint64_t state_;
};

/// What decides which problem is number `index` of a run.
struct Source {
  std::uint64_t seed = 1;
  std::int64_t index = 0;
  /// Of every so many problems for OpenCL the kernels are the same: compiling is what takes time.
  std::int64_t profiles = 8;
  std::string implementation{};
};

/// A problem and the pass that it is for.
struct Request {
  Case c;
  Pass pass = Pass::forward;
};

/// The problem of this number, legal for the implementation as far as extents, types and options
/// go; blocks may not divide it (Error invalid_argument).
Request random_request(const Source& source);

/// The same problem in the words of a test: what differs from a default Case, as statements.
std::string to_code(const Case& c);

}  // namespace tessera::test::fuzz
