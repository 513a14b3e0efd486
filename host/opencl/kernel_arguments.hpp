// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/cl.h>

#include <cstdint>

/// What C++ makes of the headers that it shares with kernels; cl_kernels/common/arguments.h.
namespace tessera::opencl {

/// A kernel's pointer: a buffer, and the element at which its array begins. Empty: null.
struct Memory {
  cl_mem memory = nullptr;
  std::int64_t offset = 0;
  std::int64_t epoch = 0;      ///< of pooled scratch, see WorkspacePool::Lease
  bool writes_caller = false;  ///< launching with it touches a caller's output
};

/// Calls `take` with each of a kernel's pointers, in the order of its parameters.
template <class Take, class... Pointers>
void each_pointer(const Take& take, const Pointers&... pointers) {
  (take(pointers), ...);
}

}  // namespace tessera::opencl

#define INT64 std::int64_t
#define INT32 std::int32_t
#define KERNEL_STRUCTS_BEGIN(folder)                                                              \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic error \"-Wpadded\"") namespace tessera { \
    namespace kernels {                                                                           \
    inline namespace folder {
#define KERNEL_STRUCTS_END \
  }                        \
  }                        \
  }                        \
  _Pragma("GCC diagnostic pop")
#define KERNEL_ARGUMENTS(name, memory)                        \
  struct name##_memory {                                      \
    using Sizes = name##_sizes;                               \
    static_assert(sizeof(Sizes) % sizeof(std::int64_t) == 0); \
    static constexpr const char* entry = #name;               \
    opencl::Memory memory;                                    \
    template <class Take>                                     \
    void each(const Take& take) const {                       \
      opencl::each_pointer(take, memory);                     \
    }                                                         \
  };
