// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "host/arguments/checks.hpp"

namespace tessera::operators {

/// What the letters of an operator's shapes stand for in one call: the extents of the arguments
/// that have them first. Later arguments must agree.
class Symbols {
 public:
  static constexpr std::size_t max_letters = 12;

  /// Binds the letters of `shape` that are new to the extents of `view`, and checks the others; a
  /// view that is not given is passed over. The view must live as long as this object. Throws Error
  /// invalid_argument, which names both arguments.
  void take(const arguments::Checks& checks, const char* name, const View& view,
            const SymbolicShape& shape);

  /// The leading axes, "...", of the first argument that has any.
  const Dims& leading() const noexcept { return leading_; }
  /// "the leading axes of x [2, 3, 64]", for messages.
  arguments::Source leading_source() const;
  std::int64_t extent(char letter) const;
  /// The extents of a shape whose letters are known, with the leading axes where it is reducible.
  Dims expected(const SymbolicShape& shape) const;

 private:
  struct Bound {
    char letter;
    std::int64_t extent;
    const char* name;  ///< of the argument
    const View* view;
    int axis;  ///< of it, behind the leading ones
    int rank;  ///< how many of those it has
  };
  const Bound* find(char letter) const;
  void check_rank(const arguments::Checks& checks, const char* name, const View& view,
                  const SymbolicShape& shape) const;
  [[noreturn]] void disagree(const arguments::Checks& checks, const char* name, const View& view,
                             const SymbolicShape& shape, int axis, const Bound& bound) const;
  /// Checks a shape whose letters are known: each axis has its extent, or 1.
  void check_repeated(const arguments::Checks& checks, const char* name, const View& view,
                      const SymbolicShape& shape) const;
  [[noreturn]] void fail_leading(const arguments::Checks& checks, const char* name,
                                 const View& view, const Dims& wanted) const;

  std::array<Bound, max_letters> bound_{};
  std::size_t count_ = 0;
  Dims leading_{};
  const char* leading_name_ = nullptr;
  const View* leading_view_ = nullptr;
};

}  // namespace tessera::operators
