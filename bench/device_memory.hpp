// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "tessera/context.hpp"

/// Device memory by the C interface; without OpenCL every function throws `Error unsupported`.
namespace tessera::bench {

cl_mem create_memory(Context& context, std::size_t bytes);
void write_memory(Context& context, cl_mem memory, const void* data, std::size_t bytes);
void fill_memory(Context& context, cl_mem memory, unsigned char value, std::size_t bytes);
void read_memory(Context& context, cl_mem memory, void* data, std::size_t bytes);
void release_memory(cl_mem memory) noexcept;

}  // namespace tessera::bench
