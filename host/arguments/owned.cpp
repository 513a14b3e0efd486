// SPDX-License-Identifier: Apache-2.0
#include "host/arguments/owned.hpp"

#include <exception>
#include <string>

#include "tessera/error.hpp"

namespace tessera::arguments {

void allocate(MutableView& view, HostTensor& tensor, const char* name) {
  if (!view) return;
  try {
    tensor = HostTensor::empty(view.dtype(), view.extents(), view.strides());
  } catch (const std::exception&) {  // bad_alloc, or length_error beyond what a vector may hold
    throw Error(ErrorCode::out_of_memory,
                std::string(name) + ": the host has no memory for " + std::to_string(view.size()) +
                    " elements of " + to_string(view.dtype()) + "; give a view, or ask for less");
  }
  view = tensor.mutable_view();
}

}  // namespace tessera::arguments
