// SPDX-License-Identifier: Apache-2.0
// A tile of C goes to a matrix of the caller's: vectors along its
// contiguous index, LANES x LANES blocks turned over in registers
// where that is m. What is left at the edges goes element by element.
#ifndef TESSERA_CPU_STORE_CL
#define TESSERA_CPU_STORE_CL

static inline void store_element(global ELEMENT(OUT_TYPE) * to, float value, int add) {
  STORE(OUT_TYPE, to, 0, add ? LOAD(OUT_TYPE, to, 0) + value : value);
}
static inline void store_vector(global ELEMENT(OUT_TYPE) * to, lane_f value, int add) {
  LANE_STORE_TYPE(OUT_TYPE, add ? LANE_LOAD_TYPE(OUT_TYPE, to) + value : value, to);
}

#if OUT_LAYOUT == ALONG_FIRST
static inline void store_tile(global const float* tile, global ELEMENT(OUT_TYPE) * to,
                              long m_stride, long n_stride, int m_count, int n_count, int add) {
  const int m_whole = m_count / LANES * LANES;
  const int n_whole = n_count / LANES * LANES;
  for (int n = 0; n < n_whole; n += LANES) {
    for (int m = 0; m < m_whole; m += LANES) {
      lane_f block[LANES];
#pragma unroll
      for (int i = 0; i < LANES; ++i) block[i] = LANE_LOAD(tile + (m + i) * TILE_N + n);
      lane_transpose(block);
#pragma unroll
      for (int i = 0; i < LANES; ++i) store_vector(to + (n + i) * n_stride + m, block[i], add);
    }
  }
  for (int m = 0; m < m_count; ++m) {
    for (int n = m < m_whole ? n_whole : 0; n < n_count; ++n) {
      store_element(to + m * m_stride + n * n_stride, tile[m * TILE_N + n], add);
    }
  }
}
#elif OUT_LAYOUT == ALONG_SECOND
static inline void store_tile(global const float* tile, global ELEMENT(OUT_TYPE) * to,
                              long m_stride, long n_stride, int m_count, int n_count, int add) {
  const int n_whole = n_count / LANES * LANES;
  for (int n = 0; n < n_whole; n += LANES) {
    for (int m = 0; m < m_count; ++m) {
      store_vector(to + m * m_stride + n, LANE_LOAD(tile + m * TILE_N + n), add);
    }
  }
  for (int m = 0; m < m_count; ++m) {
    for (int n = n_whole; n < n_count; ++n) {
      store_element(to + m * m_stride + n * n_stride, tile[m * TILE_N + n], add);
    }
  }
}
#else
static inline void store_tile(global const float* tile, global ELEMENT(OUT_TYPE) * to,
                              long m_stride, long n_stride, int m_count, int n_count, int add) {
  for (int m = 0; m < m_count; ++m) {
    for (int n = 0; n < n_count; ++n) {
      store_element(to + m * m_stride + n * n_stride, tile[m * TILE_N + n], add);
    }
  }
}
#endif

static inline void clear_line(global ELEMENT(OUT_TYPE) * line, int count, long stride) {
  int i = 0;
#if OUT_LAYOUT != STRIDED
  for (; i + LANES <= count; i += LANES) LANE_CLEAR_TYPE(OUT_TYPE, line + i);
#endif
  for (; i < count; ++i) STORE(OUT_TYPE, line, i * stride, 0.0f);
}
static inline void clear_tile(global ELEMENT(OUT_TYPE) * to, long m_stride, long n_stride,
                              int m_count, int n_count) {
#if OUT_LAYOUT == ALONG_FIRST
  for (int n = 0; n < n_count; ++n) clear_line(to + n * n_stride, m_count, m_stride);
#else
  for (int m = 0; m < m_count; ++m) clear_line(to + m * m_stride, n_count, n_stride);
#endif
}

#define ENGINE_STORE(tile, to, m_stride, n_stride, m_count, n_count, add) \
  store_tile(tile, to, m_stride, n_stride, m_count, n_count, add);
#define ENGINE_CLEAR(to, m_stride, n_stride, m_count, n_count) \
  clear_tile(to, m_stride, n_stride, m_count, n_count);

#endif
