// SPDX-License-Identifier: Apache-2.0
// The engine for matrix units that a warp of 32 drives together (NVIDIA's mma.sync, by inline PTX):
// products of bf16 with f32 sums. A work-group of WARPS_M x WARPS_N warps computes a TILE_M x
// TILE_N tile from steps of DEPTH words of both operands in local memory (product.cl). MMA 1 is the
// instruction; MMA 2 has every work-item form the elements that the instruction would give it, for
// devices without one.
#ifndef TESSERA_MMA_ENGINE_CL
#define TESSERA_MMA_ENGINE_CL

#define MMA_ITEMS (32 * WARPS_M * WARPS_N)
// A warp has MMA_M x MMA_N results of the instruction, each 16 x 8.
#define MMA_M (TILE_M / WARPS_M / 16)
#define MMA_N (TILE_N / WARPS_N / 8)

#define ENGINE_KERNEL __attribute__((reqd_work_group_size(MMA_ITEMS, 1, 1)))
#define ENGINE_SETUP(scratch)
#define A_STRIP TILE_M
#define ENGINE_WHOLE_K 1

#define MMA_LD_C (TILE_N + 8)
#define c_tile local float*
#define ENGINE_TILE(index) ((local float*)mma_shared)
#define TILE_AT(tile, m, column) (tile)[(m)*MMA_LD_C + (column)]
#define TILE_SET(tile, m, column, value) ((tile)[(m)*MMA_LD_C + (column)] = (value))
#define FOR_COLUMNS(column) \
  for (int column = (int)get_local_id(0) % TILE_N; column < TILE_N; column += MMA_ITEMS)
#define FOR_ROWS(m, rows) for (int m = (int)get_local_id(0) / TILE_N; m < (rows); m += MMA_OWNERS)
#define FOR_ELEMENTS(m, rows, column) \
  FOR_ROWS(m, rows)                   \
    FOR_COLUMNS(column)

// Work-items that hold rows of the same column.
#if MMA_ITEMS > TILE_N
#define MMA_OWNERS (MMA_ITEMS / TILE_N)
#define MMA_COLUMN_VALUES local float mma_values[MMA_ITEMS];
// Every holder puts down what it has, and all of them read all of it, in order.
#define MMA_GATHER                                                                            \
  const int item = (int)get_local_id(0);                                                      \
  values[item] = value;                                                                       \
  /* Complete before anybody reads it; and what all have read of global memory so far is read \
     before an owner writes there. */                                                         \
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
static inline float mma_max(float value, local float* values) {
  MMA_GATHER
  float result = values[item % TILE_N];
  for (int i = 1; i < MMA_OWNERS; ++i) {
    const float other = values[i * TILE_N + item % TILE_N];
    result = other > result ? other : result;
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // read before it is written again
  return result;
}
static inline float mma_sum(float value, local float* values) {
  MMA_GATHER
  float result = 0.0f;
  for (int i = 0; i < MMA_OWNERS; ++i) result += values[i * TILE_N + item % TILE_N];
  barrier(CLK_LOCAL_MEM_FENCE);  // read before it is written again
  return result;
}
static inline int mma_min_index(int value, local int* values) {
  MMA_GATHER
  int result = values[item % TILE_N];
  for (int i = 1; i < MMA_OWNERS; ++i) result = min(result, values[i * TILE_N + item % TILE_N]);
  barrier(CLK_LOCAL_MEM_FENCE);  // read before it is written again
  return result;
}
#define COLUMN_MAX(v) mma_max(v, mma_values)
#define COLUMN_SUM(v) mma_sum(v, mma_values)
#define COLUMN_MIN_INDEX(i) mma_min_index(i, (local int*)mma_values)
#define COLUMN_OWNER (get_local_id(0) < TILE_N)
#define COLUMN_SYNC barrier(CLK_GLOBAL_MEM_FENCE);  // written by one, read by all for the next tile
#else
#define MMA_OWNERS 1
#define MMA_COLUMN_VALUES
#define COLUMN_MAX(v) (v)
#define COLUMN_SUM(v) (v)
#define COLUMN_MIN_INDEX(i) (i)
#define COLUMN_OWNER 1
#define COLUMN_SYNC
#endif

// As uint4, so that rows of either begin where one may be read.
#define ENGINE_LOCALS                       \
  local uint4 mma_shared[(MMA_SHARED) / 4]; \
  MMA_COLUMN_VALUES
// The groups in bands of BAND panels, which take turns first: those that run at once then share
// what they read of both operands.
#define MMA_IN_BAND ((int)(get_group_id(1) * get_num_groups(0) + get_group_id(0)))
#define MMA_FIRST (MMA_IN_BAND / (BAND * (int)get_num_groups(0)) * BAND)
#define MMA_BAND_SIZE min((int)get_num_groups(1) - MMA_FIRST, BAND)
#define MMA_WITHIN (MMA_IN_BAND % (BAND * (int)get_num_groups(0)))
#define ENGINE_GROUP (MMA_WITHIN / MMA_BAND_SIZE)
#define PANEL_BEGIN ((MMA_FIRST + MMA_WITHIN % MMA_BAND_SIZE) * e.panels_per_group)

// Operands come in step by step inside the multiplication.
#define ENGINE_LOAD
#define ENGINE_TURN

#include "engines/mma/product.cl"

// A tile of C that an epilogue visits takes the place of the steps.
#if PRODUCT == PRODUCT_ACCUMULATE || STAGES * MMA_STAGE > TILE_M * MMA_LD_C
#define MMA_SHARED (STAGES * MMA_STAGE)
#else
#define MMA_SHARED (TILE_M * MMA_LD_C)
#endif

// Into the local tile, for an epilogue; complete when this returns.
#define ENGINE_MULTIPLY(tile, b, panel, index, count)                                       \
  {                                                                                         \
    MMA_PRODUCT(b, panel)                                                                   \
    barrier(CLK_LOCAL_MEM_FENCE); /* the steps that it takes the place of have been read */ \
    MMA_FOR_RESULTS(m, n, value) { *(local float2*)((tile) + m * MMA_LD_C + n) = value; }   \
    /* The epilogue reads elements that other work-items wrote. */                          \
    barrier(CLK_LOCAL_MEM_FENCE);                                                           \
  }

// Straight into memory, for sums that outlive the group. No work-item reads another's elements, so
// nothing has to be waited for.
#define ENGINE_ACCUMULATE(sums, b, panel, index, count, first)        \
  {                                                                   \
    MMA_PRODUCT(b, panel)                                             \
    MMA_FOR_RESULTS(m, n, value) {                                    \
      if (m >= now.rows) continue;                                    \
      global float2* at_ = (global float2*)((sums) + m * TILE_N + n); \
      *at_ = (first) ? value : *at_ + value;                          \
    }                                                                 \
  }
#define ENGINE_RESCALE(sums, rows, factors)                               \
  for (int i = (int)get_local_id(0); i < (rows)*TILE_N; i += MMA_ITEMS) { \
    (sums)[i] *= (factors)[i % TILE_N];                                   \
  }

// Neighbouring work-items write along the matrix's contiguous index.
#if OUT_LAYOUT == ALONG_FIRST
#define MMA_FOR_OUT(m, n, m_count, n_count)                                     \
  for (int i = (int)get_local_id(0), m, n; i < TILE_M * TILE_N; i += MMA_ITEMS) \
    if (m = i % TILE_M, n = i / TILE_M, m < (m_count) && n < (n_count))
#else
#define MMA_FOR_OUT(m, n, m_count, n_count)                                     \
  for (int i = (int)get_local_id(0), m, n; i < TILE_M * TILE_N; i += MMA_ITEMS) \
    if (n = i % TILE_N, m = i / TILE_N, m < (m_count) && n < (n_count))
#endif
#define ENGINE_STORE(tile, to, m_stride, n_stride, m_count, n_count, how)                     \
  MMA_FOR_OUT(m, n, m_count, n_count) {                                                       \
    const long at_ = m * (m_stride) + n * (n_stride);                                         \
    const float value_ = TILE_AT(tile, m, n);                                                 \
    STORE(OUT_TYPE, to, at_, (how) == STORE_ADD ? LOAD(OUT_TYPE, to, at_) + value_ : value_); \
  }
#define ENGINE_CLEAR(to, m_stride, n_stride, m_count, n_count) \
  MMA_FOR_OUT(m, n, m_count, n_count) { STORE(OUT_TYPE, to, m*(m_stride) + n * (n_stride), 0.0f); }

#endif
