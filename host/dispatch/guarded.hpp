// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <string>

#include "tessera/error.hpp"

/// At the edge of the library: memory that the host does not have is an Error, since a public
/// function throws nothing else. What may have touched a caller's outputs by then says so itself.
namespace tessera::dispatch {

[[noreturn]] inline void throw_no_memory(const char* what) {
  throw Error(ErrorCode::out_of_memory,
              std::string(what) +
                  ": the host has no memory left for the call's own bookkeeping; free some");
}

template <class Body>
auto guarded(const char* what, const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    throw_no_memory(what);
  }
}

}  // namespace tessera::dispatch
