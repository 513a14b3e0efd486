// SPDX-License-Identifier: Apache-2.0
// How host and device agree on the arguments of a kernel; C++ and OpenCL C read the same text.
//
// A kernel takes its memory as pointers, then one struct by value (and, where it multiplies, one
// more of the engine's). The header arguments.h of its folder lists the pointers by name, in order:
//
//   KERNEL_STRUCTS_BEGIN(example)
//   #define SCALE_ROWS_MEMORY from, to
//   typedef struct {
//     INT64 rows;
//     float factor;
//     INT32 first;
//   } scale_rows_sizes;
//   KERNEL_ARGUMENTS(scale_rows, SCALE_ROWS_MEMORY)
//   KERNEL_STRUCTS_END
//
// which is for the kernel
//
//   kernel void scale_rows(global const float* from, global float* to, scale_rows_arguments a)
//
// where a.at.from and a.at.to say at which element of its memory each array begins, and a.size has
// the scalars. The host fills two structs by name, scale_rows_memory and scale_rows_sizes, so that
// no argument takes another's place (Call::launch in host/opencl/call.hpp).
//
// Members have fixed widths and leave no gap (the host's compiler refuses one): wide members first,
// an even number of narrow ones. A struct of 16 bytes or less does not travel by itself, since the
// calling conventions of CPUs take it apart.
#ifndef TESSERA_ARGUMENTS_H
#define TESSERA_ARGUMENTS_H

#ifndef __cplusplus
#define INT64 long
#define INT32 int
#define KERNEL_STRUCTS_BEGIN(folder)
#define KERNEL_STRUCTS_END
#define KERNEL_ARGUMENTS(name, memory) \
  typedef struct {                     \
    long memory;                       \
  } name##_at;                         \
  typedef struct {                     \
    name##_at at;                      \
    name##_sizes size;                 \
  } name##_arguments;
#else
// In angle brackets: host/opencl/embedded_kernels.cpp resolves the others.
#include <host/opencl/kernel_arguments.hpp>
#endif

KERNEL_STRUCTS_BEGIN(common)
// Flat rows over up to eight leading axes with any strides: extents outermost first (1 where
// unused) and strides in elements. A struct and not a long16, whose calling convention depends on
// the CPU's vector extensions.
typedef struct {
  INT64 extent[8];
  INT64 stride[8];
} row_geometry;
KERNEL_STRUCTS_END

#endif
