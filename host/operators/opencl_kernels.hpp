// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tessera/error.hpp"

namespace tessera::operators {

/// For tessera-bench --decompose: `text` stands for a file of cl_kernels from now on, in every
/// program built later. No installed header has it.
TESSERA_API void replace_kernel_file(const std::string& path, std::string text);

}  // namespace tessera::operators
