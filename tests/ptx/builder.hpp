// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string_view>

#include "machine.hpp"

namespace tessera_ptx {

/// Makes one instruction ready. Every word of it must be taken, so that none is passed over.
class Builder {
 public:
  Builder(Entry& entry, const Statement& statement, Op& to)
      : op(to), entry_(entry), statement_(statement) {}

  std::string_view head() const { return statement_.words.front(); }
  /// True: this word came next, and is taken.
  bool take(std::string_view word) {
    const bool is_next = next_ < statement_.words.size() && statement_.words[next_] == word;
    next_ += is_next ? 1 : 0;
    return is_next;
  }
  void expect(std::string_view word) {
    if (!take(word)) unknown();
  }
  bool has(std::string_view word) const {
    const auto& words = statement_.words;
    return std::find(words.begin(), words.end(), word) != words.end();
  }
  std::string_view next() const {
    return next_ < statement_.words.size() ? std::string_view(statement_.words[next_]) : "";
  }
  /// The next word, whatever it is.
  std::string_view word() {
    if (next_ == statement_.words.size()) unknown();
    return statement_.words[next_++];
  }
  Type type() {
    Type type = Type::b32;
    if (!read_type(word(), type)) unknown();
    return type;
  }
  void end_of_words() const {
    if (next_ != statement_.words.size()) unknown();
  }
  [[noreturn]] void unknown() const {
    throw Fault("the interpreter does not know \"" + statement_.text + "\" (line " +
                std::to_string(statement_.line) + ")");
  }

  std::size_t operands() const { return statement_.operands.size(); }
  const Operand& operand(std::size_t i) const {
    if (i >= statement_.operands.size()) unknown();
    return statement_.operands[i];
  }
  /// The place of a value of so many bytes (0: a predicate).
  std::uint32_t place(const Operand& operand, std::size_t bytes);
  std::uint32_t place(const Operand& operand, Type type) { return place(operand, size_of(type)); }
  void output(const Operand& operand, std::size_t bytes) {
    if (operand.kind != Operand::Kind::reg) unknown();
    op.at.push_back(place(operand, bytes));
    ++op.outputs;
  }
  void output(std::size_t i, Type type) { output(operand(i), size_of(type)); }
  void input(const Operand& operand, std::size_t bytes) { op.at.push_back(place(operand, bytes)); }
  void input(std::size_t i, Type type) { input(operand(i), size_of(type)); }
  /// A number in the text.
  std::int64_t literal(std::size_t i) const {
    if (operand(i).kind != Operand::Kind::literal) unknown();
    return static_cast<std::int64_t>(operand(i).bits);
  }
  /// An address: its base to `at` (a literal where it has none), its size and its offset to
  /// `number`.
  void address(std::size_t i);

  Op& op;

 private:
  Entry& entry_;
  const Statement& statement_;
  std::size_t next_ = 1;
};

/// The address that Builder::address put at `at[place]`, `number[number]`.
inline std::uint64_t address_of(Warp& warp, const Op& op, std::size_t place, std::size_t number,
                                int lane) {
  const auto bytes = static_cast<std::size_t>(op.number[number]);
  return warp.value(op.at[place], bytes, lane) + static_cast<std::uint64_t>(op.number[number + 1]);
}

template <class F>
void for_lanes(Lanes lanes, F&& f) {
  for (; lanes != 0; lanes &= lanes - 1) f(__builtin_ctz(lanes));
}

inline int first_lane(Lanes lanes) { return __builtin_ctz(lanes); }

// By the instruction's first word; false: it is none of theirs.
bool build_arithmetic(Builder& b);
bool build_memory(Builder& b);
bool build_order(Builder& b, const Entry& entry);  // barriers, fences, shuffles
bool build_matrix(Builder& b);
bool build_bulk(Builder& b);

}  // namespace tessera_ptx
