// SPDX-License-Identifier: Apache-2.0
#include "tessera/tile/error.hpp"

namespace tessera::tile {

// Out of line, so that the type's identity (vtable, typeinfo) lives in one library.
TileError::~TileError() = default;

const char* to_string(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::usage:
      return "usage";
    case ErrorKind::layout:
      return "layout";
    case ErrorKind::block_rule:
      return "block_rule";
    case ErrorKind::vmem:
      return "vmem";
    case ErrorKind::smem:
      return "smem";
    case ErrorKind::space:
      return "space";
    case ErrorKind::bounds:
      return "bounds";
    case ErrorKind::revisit:
      return "revisit";
    case ErrorKind::unfinished_dma:
      return "unfinished_dma";
    case ErrorKind::semaphore:
      return "semaphore";
    case ErrorKind::deadlock:
      return "deadlock";
    case ErrorKind::race:
      return "race";
  }
  return "?";
}

void require(const std::vector<Violation>& violations) {
  if (violations.empty()) return;
  std::string text;
  for (const Violation& violation : violations) {
    if (!text.empty()) text += "\n";
    text += violation.message;
  }
  const Violation& first = violations.front();
  throw TileError(first.kind, text, first.rule, first.buffer);
}

}  // namespace tessera::tile
