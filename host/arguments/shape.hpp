// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "tessera/view.hpp"

namespace tessera {

/// Element types that an argument may have.
enum class ElementTypes {
  floating,  ///< f32, bf16, f16
  integer,   ///< i32, i64
  f32,
  any
};

constexpr bool accepts(ElementTypes types, DType type) noexcept {
  switch (types) {
    case ElementTypes::floating:
      return is_floating(type);
    case ElementTypes::integer:
      return type == DType::i32 || type == DType::i64;
    case ElementTypes::f32:
      return type == DType::f32;
    case ElementTypes::any:
      break;
  }
  return true;
}

/// Extents of an argument in symbols, as the operators' headers write them.
///
/// "[..., H]": leading axes, then H. "..." is the leading axes of the operator's first input, a
/// capital letter an extent of the problem, a digit itself. "() or [...]": the leading axes, or no
/// axes where the call's options reduce them away. "[...|1, S|1]": each axis, the leading ones too,
/// may be 1 and is then repeated.
class SymbolicShape {
 public:
  consteval SymbolicShape(const char* text) : text_(text), reducible_(text[0] == '(') {
    for (const char* at = text; *at != '\0'; ++at) {
      if (*at == '.') leading_ = true;
      if (*at == '|') {
        repeats_ = true;
        ++at;  // the 1
        continue;
      }
      if (reducible_) continue;
      if ((*at >= 'A' && *at <= 'Z') || (*at >= '1' && *at <= '9')) {
        axes_[static_cast<std::size_t>(rank_++)] = *at;
      }
    }
  }

  constexpr const char* text() const noexcept { return text_; }
  constexpr bool has_leading() const noexcept { return leading_; }
  constexpr bool is_reducible() const noexcept { return reducible_; }
  /// True where each axis may be 1 in the place of its extent.
  constexpr bool repeats() const noexcept { return repeats_; }
  /// Axes behind the leading ones.
  constexpr int rank() const noexcept { return rank_; }
  constexpr char axis(int at) const noexcept { return axes_[static_cast<std::size_t>(at)]; }

  /// The extents. `extent_of(letter)` gives those of the problem. `reduced`: whether a reducible
  /// shape has no axes.
  template <class ExtentOf>
  Dims extents(const Dims& leading, bool reduced, const ExtentOf& extent_of) const {
    if (reducible_) return reduced ? Dims() : leading;
    Dims result;
    if (leading_) result = leading;
    for (int i = 0; i < rank_; ++i) {
      result.push_back(axis(i) <= '9' ? axis(i) - '0' : extent_of(axis(i)));
    }
    return result;
  }

 private:
  const char* text_;
  std::array<char, 4> axes_{};
  int rank_ = 0;
  bool leading_ = false;
  bool reducible_ = false;
  bool repeats_ = false;
};

/// The extents of a problem by the letters of its operator's shapes, and by B, which stands for all
/// leading axes together.
class ProblemExtents {
 public:
  static constexpr std::int64_t absent = -1;

  constexpr ProblemExtents() { all_.fill(absent); }
  constexpr ProblemExtents(std::initializer_list<std::pair<char, std::int64_t>> given)
      : ProblemExtents() {
    for (const auto& [letter, extent] : given) (*this)[letter] = extent;
  }

  constexpr std::int64_t operator[](char letter) const { return all_[place_of(letter)]; }
  constexpr std::int64_t& operator[](char letter) { return all_[place_of(letter)]; }
  constexpr bool has(char letter) const { return (*this)[letter] != absent; }
  friend bool operator==(const ProblemExtents&, const ProblemExtents&) = default;

 private:
  static constexpr std::size_t place_of(char letter) {
    return static_cast<std::size_t>(letter - 'A');
  }
  std::array<std::int64_t, 26> all_{};
};

}  // namespace tessera
