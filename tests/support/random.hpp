// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>

namespace tessera::test {

/// Choices for problems with many options at once, the same with every standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  bool once_in(std::uint64_t n) { return engine_() % n == 0; }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return *(list.begin() + engine_() % list.size());
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace tessera::test
