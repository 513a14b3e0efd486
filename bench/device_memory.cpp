// SPDX-License-Identifier: Apache-2.0
#include "bench/device_memory.hpp"

#include <fmt/format.h>

#ifdef TESSERA_OPENCL
#include <CL/cl.h>
#endif

namespace tessera::bench {

#ifdef TESSERA_OPENCL
namespace {
void check(cl_int status, const char* what) {
  if (status == CL_SUCCESS) return;
  throw Error(status == CL_MEM_OBJECT_ALLOCATION_FAILURE ? ErrorCode::out_of_memory
                                                         : ErrorCode::execution_failed,
              fmt::format("{} failed with OpenCL error {}", what, status));
}
}  // namespace

cl_mem create_memory(Context& context, std::size_t bytes) {
  cl_int status = CL_SUCCESS;
  cl_mem memory =
      clCreateBuffer(context.native_context(), CL_MEM_READ_WRITE, bytes, nullptr, &status);
  check(status, "clCreateBuffer");
  return memory;
}

void write_memory(Context& context, cl_mem memory, const void* data, std::size_t bytes) {
  check(clEnqueueWriteBuffer(context.native_queue(), memory, CL_FALSE, 0, bytes, data, 0, nullptr,
                             nullptr),
        "clEnqueueWriteBuffer");
  // A blocking write can return too early (see host/opencl/staging.cpp).
  check(clFinish(context.native_queue()), "clFinish");
}

void fill_memory(Context& context, cl_mem memory, unsigned char value, std::size_t bytes) {
  check(
      clEnqueueFillBuffer(context.native_queue(), memory, &value, 1, 0, bytes, 0, nullptr, nullptr),
      "clEnqueueFillBuffer");
  check(clFinish(context.native_queue()), "clFinish");
}

void read_memory(Context& context, cl_mem memory, void* data, std::size_t bytes) {
  check(clEnqueueReadBuffer(context.native_queue(), memory, CL_TRUE, 0, bytes, data, 0, nullptr,
                            nullptr),
        "clEnqueueReadBuffer");
}

void release_memory(cl_mem memory) noexcept { clReleaseMemObject(memory); }

#else
namespace {
[[noreturn]] void absent() {
  throw Error(ErrorCode::unsupported, "this build has no OpenCL, hence no device memory");
}
}  // namespace

cl_mem create_memory(Context&, std::size_t) { absent(); }
void write_memory(Context&, cl_mem, const void*, std::size_t) { absent(); }
void fill_memory(Context&, cl_mem, unsigned char, std::size_t) { absent(); }
void read_memory(Context&, cl_mem, void*, std::size_t) { absent(); }
void release_memory(cl_mem) noexcept {}
#endif

}  // namespace tessera::bench
