// SPDX-License-Identifier: Apache-2.0
// The elements of a tile's place in a matrix of the caller's, shared by the PRODUCT_ITEMS
// work-items of a group: neighbours write along the matrix's contiguous index.

#if PRODUCT_OUT_LAYOUT == ALONG_FIRST
ALWAYS_INLINE int product_out_m(int i) { return i % TILE_M; }
ALWAYS_INLINE int product_out_n(int i) { return i / TILE_M; }
#else
ALWAYS_INLINE int product_out_m(int i) { return i / TILE_N; }
ALWAYS_INLINE int product_out_n(int i) { return i % TILE_N; }
#endif
// Writes a tile in memory that all work-items read; without one: zeros.
ALWAYS_INLINE void product_write(const product_state* p, local const float* tile, int panel) {
  global ELEMENT(PRODUCT_OUT_TYPE)* to = product_place(p, panel);
  // Unrolled, the loop takes 25 registers more than the product (sm_90).
#pragma unroll 1
  for (int i = (int)get_local_id(0); i < TILE_M * TILE_N; i += PRODUCT_ITEMS) {
    const int m = product_out_m(i), n = product_out_n(i);
    if (m >= p->now.rows || n >= product_columns(p, panel)) continue;
    const long at = m * p->out.m_stride + n * p->out.n_stride;
    const float value = tile ? tile[m * TILE_N + n] : 0.0f;
    STORE(PRODUCT_OUT_TYPE, to, at,
          tile && p->out.how == STORE_ADD ? LOAD(PRODUCT_OUT_TYPE, to, at) + value : value);
  }
}
ALWAYS_INLINE void product_clear(const product_state* p) {
  for (int panel = p->panel_begin; panel < p->panel_end; ++panel) product_write(p, 0, panel);
}
