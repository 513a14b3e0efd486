// SPDX-License-Identifier: Apache-2.0
// A tile of C in memory that all PRODUCT_ITEMS work-items of a group read goes to a matrix of the
// caller's element by element: neighbours write along the matrix's contiguous index.

#if PRODUCT_OUT_LAYOUT == ALONG_FIRST
ALWAYS_INLINE int product_out_m(int i) { return i % TILE_M; }
ALWAYS_INLINE int product_out_n(int i) { return i / TILE_M; }
#else
ALWAYS_INLINE int product_out_m(int i) { return i / TILE_N; }
ALWAYS_INLINE int product_out_n(int i) { return i % TILE_N; }
#endif
// Without a tile: zeros.
ALWAYS_INLINE void product_write(const product_state* p, const engine_tile* tile, int panel) {
  global ELEMENT(PRODUCT_OUT_TYPE)* to = product_place(p, panel);
  // Unrolled, the loop takes 25 registers more than the product (sm_90).
#pragma unroll 1
  for (int i = (int)get_local_id(0); i < TILE_M * TILE_N; i += PRODUCT_ITEMS) {
    const int m = product_out_m(i), n = product_out_n(i);
    if (m >= p->now.rows || n >= product_columns(p, panel)) continue;
    const long at = m * p->out.m_stride + n * p->out.n_stride;
    const float value = tile ? product_at(tile, m, n) : 0.0f;
    STORE(PRODUCT_OUT_TYPE, to, at,
          tile && p->out.how == STORE_ADD ? LOAD(PRODUCT_OUT_TYPE, to, at) + value : value);
  }
}
ALWAYS_INLINE void product_store(const product_state* p, const engine_tile* tile, int panel) {
  product_write(p, tile, panel);
}
ALWAYS_INLINE void product_clear(const product_state* p) {
  for (int panel = p->panel_begin; panel < p->panel_end; ++panel) product_write(p, 0, panel);
}
