// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <numeric>
#include <string>
#include <vector>

#include "tessera/tile/kernel.hpp"

// What the tests of the tile machine share.
namespace tessera::tile::test {

inline std::vector<float> iota(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

/// Both DMA modes, and several orders of the cores.
template <class Body>
void for_each_order(Body body) {
  for (const DmaMode dma : {DmaMode::eager, DmaMode::on_wait}) {
    for (const std::uint64_t seed : {0, 1, 2, 3}) {
      SCOPED_TRACE((dma == DmaMode::eager ? "eager, seed " : "on wait, seed ") +
                   std::to_string(seed));
      MachineOptions options;
      options.dma = dma;
      options.seed = seed;
      body(options);
    }
  }
}

/// `body` throws a TileError of this kind whose message has all of `parts`.
template <class Body>
void expect_error(ErrorKind kind, std::initializer_list<const char*> parts, Body body) {
  try {
    body();
    ADD_FAILURE() << "no error of kind " << to_string(kind);
  } catch (const TileError& error) {
    EXPECT_STREQ(to_string(error.kind()), to_string(kind)) << error.what();
    for (const char* part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "no \"" << part << "\" in: " << error.what();
    }
  }
}

}  // namespace tessera::tile::test
