// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/error.hpp"

namespace tessera::tile {

/// What the machine found wrong. A verdict's message names the rule, the buffer by the name its
/// author gave it, what was wanted and what is allowed.
enum class ErrorKind {
  usage,           ///< a name or a number that can never be right (an unknown chip, rank 0, ...)
  layout,          ///< a slice or a type that no tile layout of the chip can hold
  block_rule,      ///< a block, buffer count or dimension semantics that a TPU refuses
  vmem,            ///< more VMEM than the scoped limit
  smem,            ///< more SMEM than the core has
  space,           ///< an access that this memory space does not allow
  bounds,          ///< an element, a block or a slice outside its array
  revisit,         ///< an output block visited again after another one
  unfinished_dma,  ///< a copy that nobody waited for
  semaphore,       ///< a semaphore that is not zero at the end, or counted below zero
  deadlock,        ///< every core waits
  race,            ///< two accesses that nothing orders
};

/// The enumerator's own name, e.g. "block_rule".
TESSERA_API const char* to_string(ErrorKind kind) noexcept;

/// One reason to refuse, as data: a sweep lists them, `require` throws them.
struct Violation {
  std::string rule{};  ///< "R2", "R13", ...: docs/tile_reference.md has the table
  ErrorKind kind = ErrorKind::block_rule;
  std::string buffer{};   ///< the buffer's name; empty when the rule is not about one buffer
  std::string message{};  ///< rule, buffer, wanted and allowed values, what to do
};

/// What the tile machine throws; its code() is `invalid_argument`, or `execution_failed` for what
/// only running can find (kinds from `revisit` on).
class TESSERA_API TileError : public Error {
 public:
  TileError(ErrorKind kind, const std::string& message, std::string rule = {},
            std::string buffer = {})
      : Error(
            kind >= ErrorKind::revisit ? ErrorCode::execution_failed : ErrorCode::invalid_argument,
            message),
        kind_(kind),
        rule_(std::move(rule)),
        buffer_(std::move(buffer)) {}
  ~TileError() override;

  ErrorKind kind() const noexcept { return kind_; }
  /// The rule's id, e.g. "R2"; empty where no numbered rule stands behind the error.
  const std::string& rule() const noexcept { return rule_; }
  /// The buffer's name, or empty.
  const std::string& buffer() const noexcept { return buffer_; }

 private:
  ErrorKind kind_;
  std::string rule_;
  std::string buffer_;
};

/// Throws a TileError with the first violation's kind, rule and buffer and every message; returns
/// when there is none.
TESSERA_API void require(const std::vector<Violation>& violations);

}  // namespace tessera::tile
