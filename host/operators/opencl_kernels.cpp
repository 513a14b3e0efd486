// SPDX-License-Identifier: Apache-2.0
#include "host/operators/opencl_kernels.hpp"

#include <utility>

#include "host/opencl/embedded_kernels.hpp"

namespace tessera::operators {

void replace_kernel_file(const std::string& path, std::string text) {
  opencl::override_embedded_kernel(path, std::move(text));
}

}  // namespace tessera::operators
