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

// What one store past the caches writes: a vector of f32, two of bf16. Tiles that have less than a
// line of it side by side are not worth one.
#if defined(LANES_STREAM) && OUT_TYPE == TYPE_F32
#define STREAM_STEP LANES
#define STREAM_LINE 16
#define STREAM_VECTOR(from, to) LANE_STREAM_0(LANE_LOAD(from), to)
#elif defined(LANES_STREAM) && OUT_TYPE == TYPE_BF16
#define STREAM_STEP (2 * LANES)
#define STREAM_LINE 32
#define STREAM_VECTOR(from, to) LANE_STREAM_PAIR_1(LANE_LOAD(from), LANE_LOAD((from) + LANES), to)
#endif
#if defined(STREAM_STEP) && OUT_LAYOUT == ALONG_SECOND
// Whether a line of the matrix, and those beside it, lie at addresses of such vectors.
static inline int lies_even(global ELEMENT(OUT_TYPE) * line, long stride) {
  return (((size_t)line | (size_t)stride * sizeof(ELEMENT(OUT_TYPE))) & (LANES * 4 - 1)) == 0;
}
#endif

#if OUT_LAYOUT == ALONG_FIRST
static inline void load_block(lane_f* block, global const float* tile) {
#pragma unroll
  for (int i = 0; i < LANES; ++i) block[i] = LANE_LOAD(tile + i * TILE_N);
  lane_transpose(block);
}
// Rows [m0, m1), of which STORE_ROWS stores STEP of a column.
#define STORE_BLOCKS(STEP, STORE_ROWS)                          \
  for (int n = 0; n < n_whole; n += LANES) {                    \
    for (int m = m0; m < m1; m += STEP) {                       \
      lane_f block[STEP];                                       \
      _Pragma("unroll") for (int i = 0; i < STEP; i += LANES) { \
        load_block(block + i, tile + (m + i) * TILE_N + n);     \
      }                                                         \
      _Pragma("unroll") for (int i = 0; i < LANES; ++i) {       \
        STORE_ROWS(block + i, to + (n + i) * n_stride + m)      \
      }                                                         \
    }                                                           \
  }
#define STORE_CACHED(v, p) store_vector(p, *(v), how == STORE_ADD);
#if OUT_TYPE == TYPE_F32
#define STORE_PAST(v, p) LANE_STREAM_0((v)[0], p)
#else
#define STORE_PAST(v, p) LANE_STREAM_PAIR_1((v)[0], (v)[LANES], p)
#endif
#define STORE_LINE(v, p)                                                    \
  _Pragma("unroll") for (int at = 0; at < STREAM_LINE; at += STREAM_STEP) { \
    STORE_PAST((v) + at, (p) + at)                                          \
  }
static inline void store_tile(global const float* tile, global ELEMENT(OUT_TYPE) * to,
                              long m_stride, long n_stride, int m_count, int n_count, int how) {
  const int n_whole = n_count / LANES * LANES;
  int m0 = 0, m1 = m_count / LANES * LANES;
#ifdef STREAM_STEP
  // Tiles begin anywhere in a line, which the one before has begun.
  if (how == STORE_STREAMED && n_stride % STREAM_LINE == 0) {
    const int before = (int)((size_t)to / sizeof(ELEMENT(OUT_TYPE)) % STREAM_LINE);
    m0 = before > 0 ? min(STREAM_LINE - before, m_count) : 0;
    m1 = m0 + (m_count - m0) / STREAM_LINE * STREAM_LINE;
    STORE_BLOCKS(STREAM_LINE, STORE_LINE)
  } else
#endif
  {
    STORE_BLOCKS(LANES, STORE_CACHED)
  }
  // Line by line, since lines a power of two apart fall into the same sets of a cache.
  for (int n = 0; n < n_count; ++n) {
    for (int m = 0; m < m_count; ++m) {
      if (m == m0 && n < n_whole) m = m1;
      if (m < m_count) {
        store_element(to + m * m_stride + n * n_stride, tile[m * TILE_N + n], how == STORE_ADD);
      }
    }
  }
}
#elif OUT_LAYOUT == ALONG_SECOND
static inline void store_tile(global const float* tile, global ELEMENT(OUT_TYPE) * to,
                              long m_stride, long n_stride, int m_count, int n_count, int how) {
  int n_whole = n_count / LANES * LANES;
#if defined(STREAM_STEP) && TILE_N % STREAM_LINE == 0
  if (how == STORE_STREAMED && lies_even(to, m_stride)) {
    n_whole = n_count / STREAM_STEP * STREAM_STEP;
    for (int m = 0; m < m_count; ++m) {
      for (int n = 0; n < n_whole; n += STREAM_STEP) {
        STREAM_VECTOR(tile + m * TILE_N + n, to + m * m_stride + n)
      }
    }
  } else
#endif
  {
    for (int n = 0; n < n_whole; n += LANES) {
      for (int m = 0; m < m_count; ++m) {
        store_vector(to + m * m_stride + n, LANE_LOAD(tile + m * TILE_N + n), how == STORE_ADD);
      }
    }
  }
  for (int m = 0; m < m_count; ++m) {
    for (int n = n_whole; n < n_count; ++n) {
      store_element(to + m * m_stride + n * n_stride, tile[m * TILE_N + n], how == STORE_ADD);
    }
  }
}
#else
static inline void store_tile(global const float* tile, global ELEMENT(OUT_TYPE) * to,
                              long m_stride, long n_stride, int m_count, int n_count, int how) {
  for (int m = 0; m < m_count; ++m) {
    for (int n = 0; n < n_count; ++n) {
      store_element(to + m * m_stride + n * n_stride, tile[m * TILE_N + n], how == STORE_ADD);
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

#define ENGINE_STORE(tile, to, m_stride, n_stride, m_count, n_count, how) \
  store_tile(tile, to, m_stride, n_stride, m_count, n_count, how);
#define ENGINE_CLEAR(to, m_stride, n_stride, m_count, n_count) \
  clear_tile(to, m_stride, n_stride, m_count, n_count);

#endif
