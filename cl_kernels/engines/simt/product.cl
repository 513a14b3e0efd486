// SPDX-License-Identifier: Apache-2.0
// The portable engine, OpenCL C 1.2 core only: tiles of both operands come through local memory, a
// panel of SIMT_DEPTH of k at a time.

// A work-item's elements come four side by side, so that it reads them of local memory at once.
ALWAYS_INLINE int product_m(int m) {
  const int item_m = (int)get_local_id(0) / PRODUCT_COLUMNS;
  return m / 4 * (4 * PRODUCT_ROWS) + item_m * 4 + m % 4;
}
ALWAYS_INLINE int product_n(int n) {
  const int item_n = (int)get_local_id(0) % PRODUCT_COLUMNS;
  return n / 4 * (4 * PRODUCT_COLUMNS) + item_n * 4 + n % 4;
}

#include "engines/columns.cl"  // as product
#define PRODUCT_FOR_COLUMNS(j) for (int j = (int)get_local_id(0); j < TILE_N; j += PRODUCT_ITEMS)
ALWAYS_INLINE float product_at(const engine_tile* tile, int i, int j) {
  return tile->at[i * TILE_N + j];
}
ALWAYS_INLINE void product_put(engine_tile* tile, int i, int j, float value) {
  tile->at[i * TILE_N + j] = value;
}

// A is read panel by panel inside the multiplication.
ALWAYS_INLINE void product_load(product_state* p) {}

ALWAYS_INLINE float product_a_at(const product_state* p, int m, int k) {
#if PRODUCT_A_STORED
  const long row = p->now.m + m;
  k += (int)p->now.k;
  return operand_element(p->a.base + operand_index(p->a.extent, k / TILE_N, row, k % TILE_N), row);
#else
  return LOAD(PRODUCT_A_TYPE, p->a.base,
              (p->now.m + m) * p->a.m_stride + (p->now.k + k) * p->a.k_stride);
#endif
}

// The element of a panel of A that a work-item brings in: neighbours read along whichever index is
// contiguous in memory.
#if PRODUCT_A_LAYOUT == ALONG_FIRST && !PRODUCT_A_STORED
ALWAYS_INLINE int product_panel_m(int i) { return i % TILE_M; }
ALWAYS_INLINE int product_panel_k(int i) { return i / TILE_M; }
#else
ALWAYS_INLINE int product_panel_m(int i) { return i / SIMT_DEPTH; }
ALWAYS_INLINE int product_panel_k(int i) { return i % SIMT_DEPTH; }
#endif

#define PRODUCT_LOADS_A (SIMT_DEPTH * TILE_M / PRODUCT_ITEMS)
#define PRODUCT_LOADS_B ((PRODUCT_FOURS_B + PRODUCT_ITEMS - 1) / PRODUCT_ITEMS)

// acc += the panels of A and B in local memory, `depth` of k. Sums are in registers only where
// every index of theirs is known.
ALWAYS_INLINE void product_multiply_panels(const product_state* p, local const float* b, int depth,
                                           float (*acc)[ITEM_N]) {
  for (int k = 0; k < depth; ++k) {
    float a_column[ITEM_M];
    float b_row[ITEM_N];
    local const float* a = (local const float*)p->memory.a + k * PRODUCT_LD_A;
#pragma unroll
    for (int m = 0; m < ITEM_M; m += 4) {
      vstore4(*(local const float4*)(a + product_m(m)), 0, a_column + m);
    }
#pragma unroll
    for (int n = 0; n < ITEM_N; n += 4) {
      vstore4(*(local const float4*)(b + k * TILE_N + product_n(n)), 0, b_row + n);
    }
#pragma unroll
    for (int m = 0; m < ITEM_M; ++m) {
#pragma unroll
      for (int n = 0; n < ITEM_N; ++n) acc[m][n] = fma(a_column[m], b_row[n], acc[m][n]);
    }
  }
}

// acc = A * B over all of the tile's depth; B is a panel, or the rows of another tile. Every
// work-item of the group takes part.
ALWAYS_INLINE void product_sums(const product_state* p, int panel, local const float* other,
                                float (*acc)[ITEM_N]) {
  const int item = (int)get_local_id(0);
  const a_tile now = p->now;
  local float* panel_a = (local float*)p->memory.a;
#pragma unroll
  for (int m = 0; m < ITEM_M; ++m) {
#pragma unroll
    for (int n = 0; n < ITEM_N; ++n) acc[m][n] = 0.0f;
  }
  for (int k0 = 0; k0 < now.depth; k0 += SIMT_DEPTH) {
#if PRODUCT_KEPT  // whose step is a multiple of SIMT_DEPTH
    if (!product_keeps(p, &now, panel, k0 / PRODUCT_KEPT_STEP * PRODUCT_KEPT_STEP)) continue;
#endif
    // The panels, and the tile that an epilogue reads, are free to be overwritten.
    barrier(CLK_LOCAL_MEM_FENCE);
    // All loads before the first of them is needed.
    float a_coming[PRODUCT_LOADS_A];
#pragma unroll
    for (int j = 0; j < PRODUCT_LOADS_A; ++j) {
      const int m = product_panel_m(item + j * PRODUCT_ITEMS);
      const int k = product_panel_k(item + j * PRODUCT_ITEMS);
      a_coming[j] = m < now.rows && k0 + k < now.depth ? product_a_at(p, m, k0 + k) : 0.0f;
    }
#if !PRODUCT_B_TILE
    global const float4* columns =
        (global const float4*)((global const float*)p->b.base +
                               panel_index(p->b.extent, panel, now.k, 0));
    float4 b_coming[PRODUCT_LOADS_B];
#pragma unroll
    for (int j = 0; j < PRODUCT_LOADS_B; ++j) {
      const int i = item + j * PRODUCT_ITEMS;
      b_coming[j] = i < PRODUCT_FOURS_B && k0 + i / (TILE_N / 4) < now.depth
                        ? columns[(long)k0 * (TILE_N / 4) + i]
                        : (float4)(0.0f);
    }
#endif
#pragma unroll
    for (int j = 0; j < PRODUCT_LOADS_A; ++j) {
      const int m = product_panel_m(item + j * PRODUCT_ITEMS);
      const int k = product_panel_k(item + j * PRODUCT_ITEMS);
      panel_a[k * PRODUCT_LD_A + m] = a_coming[j];
    }
#if !PRODUCT_B_TILE
#pragma unroll
    for (int j = 0; j < PRODUCT_LOADS_B; ++j) {
      const int i = item + j * PRODUCT_ITEMS;
      if (i < PRODUCT_FOURS_B) p->memory.b[i] = b_coming[j];
    }
#endif
    // Both panels are complete before they are read.
    barrier(CLK_LOCAL_MEM_FENCE);
#if PRODUCT_B_TILE
    // Not beyond its rows: 0 times what lies there may be a NaN.
    product_multiply_panels(p, other + k0 * TILE_N, min(now.depth - k0, SIMT_DEPTH), acc);
#else
    product_multiply_panels(p, (local const float*)p->memory.b, SIMT_DEPTH, acc);
#endif
  }
}

// Into the local tile, for an epilogue; complete when this returns.
ALWAYS_INLINE void product_put_sums(engine_tile* tile, float (*acc)[ITEM_N], int first) {
  // With depth 0 the loop above has no barrier; an earlier epilogue may still read.
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
  for (int m = 0; m < ITEM_M; ++m) {
#pragma unroll
    for (int n = 0; n < ITEM_N; ++n) {
      local float* at = tile->at + product_m(m) * TILE_N + product_n(n);
      *at = first ? acc[m][n] : *at + acc[m][n];
    }
  }
  // The epilogue reads elements that other work-items wrote.
  barrier(CLK_LOCAL_MEM_FENCE);
}

ALWAYS_INLINE void product_multiply(product_state* p, engine_tile* tile, int panel) {
  float acc[ITEM_M][ITEM_N];
  product_sums(p, panel, 0, acc);
  tile->at = p->memory.tile;
  product_put_sums(tile, acc, 1);
}

#if PRODUCT_B_TILE
ALWAYS_INLINE void product_multiply_tile(product_state* p, engine_tile* tile,
                                         const engine_tile* other, int k, int depth) {
  float acc[ITEM_M][ITEM_N];
  p->now.k = k;
  p->now.depth = depth;
  product_sums(p, 0, other->at, acc);
  tile->at = p->memory.tile;
  product_put_sums(tile, acc, k == 0);
}
#endif

// Straight into memory, for sums that outlive the group. No work-item reads another's elements, so
// nothing has to be waited for. (PoCL goes over work-items one by one where it reads sums from
// memory in unrolled loops: grad_x took 3.8 times as long.)
ALWAYS_INLINE void product_accumulate(product_state* p, global float* sums, int panel, int first) {
  float acc[ITEM_M][ITEM_N];
  product_sums(p, panel, 0, acc);
#if IS_GPU
#pragma unroll
#endif
  for (int m = 0; m < ITEM_M; ++m) {
    const int row = product_m(m);
    if (row >= p->now.rows) continue;
#if IS_GPU
#pragma unroll
#endif
    for (int n = 0; n < ITEM_N; ++n) {
      global float* at = sums + (long)row * TILE_N + product_n(n);
      *at = first ? acc[m][n] : *at + acc[m][n];
    }
  }
}

#if PRODUCT_USE == USE_STORE
#include "engines/store.cl"  // as product
ALWAYS_INLINE void product_store(const product_state* p, const engine_tile* tile, int panel) {
  product_write(p, tile->at, panel);
}
#endif
