// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

/// `operator new` of this process, of which one call can be made to fail.
///
/// What counts are calls of this program's own code, on the thread that asked: through the standard
/// library too, but not those of a driver or its compiler.
namespace tessera::test::allocation {

/// Counts calls while it lives, and throws std::bad_alloc from the k-th of them, counted from 1; 0:
/// from none.
class Counted {
 public:
  explicit Counted(long k = 0);
  ~Counted();
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  /// So far.
  static long calls();
  static bool has_failed();
};

/// Blocks that were allocated while something was counted and are not freed yet.
long live_blocks();

}  // namespace tessera::test::allocation
