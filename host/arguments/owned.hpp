// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/view.hpp"

namespace tessera::arguments {

/// Gives a view without memory the memory of a new tensor; nothing for a view not given. `name` is
/// for Error out_of_memory.
void allocate(MutableView& view, HostTensor& tensor, const char* name);

}  // namespace tessera::arguments
