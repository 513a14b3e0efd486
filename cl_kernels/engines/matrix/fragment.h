// SPDX-License-Identifier: Apache-2.0
// Matrix units as data, one row each, for kernels and for the host (host/engines/fragment.hpp). The
// LANES of a sub-group together multiply A [m][k] by B [k][n] into C [m][n]. Each lane holds an
// equal share of the elements of every matrix: its element i is at row(i, lane), column(i, lane).
#ifndef TESSERA_MATRIX_FRAGMENT_H
#define TESSERA_MATRIX_FRAGMENT_H

#ifdef __cplusplus
#define FRAGMENT_INDEX constexpr int
namespace tessera::kernels {
#else
#include "common/types.cl"
#define FRAGMENT_INDEX ALWAYS_INLINE int
#endif

// operand_row and operand_column, by expressions of i and lane.
#define FRAGMENT_PLACES(operand, row, column)        \
  FRAGMENT_INDEX operand##_row(int i, int lane) {    \
    (void)i, (void)lane;                             \
    return row;                                      \
  }                                                  \
  FRAGMENT_INDEX operand##_column(int i, int lane) { \
    (void)i, (void)lane;                             \
    return column;                                   \
  }

// NVIDIA's mma.sync.m16n8k16 of 16-bit operands with f32 sums (PTX ISA, "Matrix Fragments for
// mma.m16n8k16 with floating point type"). Two elements of A or B share a register, the even one in
// its low half.
#define MMA_SYNC_M 16
#define MMA_SYNC_N 8
#define MMA_SYNC_K 16
#define MMA_SYNC_LANES 32
FRAGMENT_PLACES(mma_sync_a, lane / 4 + i / 2 % 2 * 8, lane % 4 * 2 + i % 2 + i / 4 * 8)
FRAGMENT_PLACES(mma_sync_b, lane % 4 * 2 + i % 2 + i / 2 * 8, lane / 4)
FRAGMENT_PLACES(mma_sync_c, lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2)

// AMD's v_mfma_f32_32x32x8_bf16_1k, of CDNA2 on (AMD Matrix Instruction Calculator).
#define MFMA_M 32
#define MFMA_N 32
#define MFMA_K 8
#define MFMA_LANES 64
FRAGMENT_PLACES(mfma_a, lane % 32, lane / 32 * 4 + i)
FRAGMENT_PLACES(mfma_b, lane / 32 * 4 + i, lane % 32)
FRAGMENT_PLACES(mfma_c, i % 4 + i / 4 * 8 + lane / 32 * 4, lane % 32)

#ifdef __cplusplus
}
#endif

#endif
