// SPDX-License-Identifier: Apache-2.0
// A tile of C goes to a matrix of the caller's: vectors along its
// contiguous index, LANES x LANES blocks turned over in registers
// where that is m. What is left at the edges goes element by element.

static inline void product_store_element(global ELEMENT(PRODUCT_OUT_TYPE) * to, float value,
                                         int add) {
  STORE(PRODUCT_OUT_TYPE, to, 0, add ? LOAD(PRODUCT_OUT_TYPE, to, 0) + value : value);
}
static inline void product_store_vector(global ELEMENT(PRODUCT_OUT_TYPE) * to, lane_f value,
                                        int add) {
  LANE_STORE_TYPE(PRODUCT_OUT_TYPE, add ? LANE_LOAD_TYPE(PRODUCT_OUT_TYPE, to) + value : value, to);
}

// One store past the caches writes a vector of f32, or two of bf16. Tiles that have less than a
// line side by side are not worth one.
#if defined(LANES_STREAM) && PRODUCT_OUT_TYPE == TYPE_F32
#define PRODUCT_STREAM_STEP LANES
#define PRODUCT_STREAM_LINE 16
ALWAYS_INLINE void product_stream(lane_f low, lane_f high, global float* to) {
  lane_stream(low, to);
}
#elif defined(LANES_STREAM) && PRODUCT_OUT_TYPE == TYPE_BF16
#define PRODUCT_STREAM_STEP (2 * LANES)
#define PRODUCT_STREAM_LINE 32
ALWAYS_INLINE void product_stream(lane_f low, lane_f high, global ushort* to) {
  lane_stream_bf16(low, high, to);
}
#endif
#if defined(PRODUCT_STREAM_STEP) && PRODUCT_OUT_LAYOUT == ALONG_SECOND
// 1: a line of the matrix, and those beside it, lie at addresses of such vectors.
static inline int product_lies_even(global ELEMENT(PRODUCT_OUT_TYPE) * line, long stride) {
  return (((size_t)line | (size_t)stride * sizeof(ELEMENT(PRODUCT_OUT_TYPE))) & (LANES * 4 - 1)) ==
         0;
}
#endif

#if PRODUCT_OUT_LAYOUT == ALONG_FIRST
#ifdef PRODUCT_STREAM_LINE
#define PRODUCT_MOST_ROWS PRODUCT_STREAM_LINE  // a multiple of LANES
#else
#define PRODUCT_MOST_ROWS LANES
#endif
static inline void product_load_block(lane_f* block, global const float* tile) {
#pragma unroll
  for (int i = 0; i < LANES; ++i) block[i] = LANE_LOAD(tile + i * TILE_N);
  lane_transpose(block);
}
// Rows [m0, m1) of whole vectors of columns, `step` rows of a column at a time: LANES, or where
// they go past the caches a line of them.
ALWAYS_INLINE void product_store_blocks(global const float* tile,
                                        global ELEMENT(PRODUCT_OUT_TYPE) * to, long n_stride,
                                        int n_whole, int m0, int m1, int step, int how) {
  for (int n = 0; n < n_whole; n += LANES) {
    for (int m = m0; m < m1; m += step) {
      lane_f block[PRODUCT_MOST_ROWS];
#pragma unroll
      for (int i = 0; i < step; i += LANES) {
        product_load_block(block + i, tile + (m + i) * TILE_N + n);
      }
#pragma unroll
      for (int i = 0; i < LANES; ++i) {
        global ELEMENT(PRODUCT_OUT_TYPE)* at = to + (n + i) * n_stride + m;
#ifdef PRODUCT_STREAM_STEP
        if (how == STORE_STREAMED) {
#pragma unroll
          for (int j = 0; j < PRODUCT_STREAM_LINE; j += PRODUCT_STREAM_STEP) {
            product_stream(block[i + j], block[i + j + PRODUCT_STREAM_STEP - LANES], at + j);
          }
          continue;
        }
#endif
        product_store_vector(at, block[i], how == STORE_ADD);
      }
    }
  }
}
static inline void product_store_tile(global const float* tile,
                                      global ELEMENT(PRODUCT_OUT_TYPE) * to, long m_stride,
                                      long n_stride, int m_count, int n_count, int how) {
  const int n_whole = n_count / LANES * LANES;
  int m0 = 0, m1 = m_count / LANES * LANES;
#ifdef PRODUCT_STREAM_STEP
  // Tiles begin anywhere in a line, which the one before has begun.
  if (how == STORE_STREAMED && n_stride % PRODUCT_STREAM_LINE == 0) {
    const int before = (int)((size_t)to / sizeof(ELEMENT(PRODUCT_OUT_TYPE)) % PRODUCT_STREAM_LINE);
    m0 = before > 0 ? min(PRODUCT_STREAM_LINE - before, m_count) : 0;
    m1 = m0 + (m_count - m0) / PRODUCT_STREAM_LINE * PRODUCT_STREAM_LINE;
    product_store_blocks(tile, to, n_stride, n_whole, m0, m1, PRODUCT_STREAM_LINE, STORE_STREAMED);
  } else
#endif
  {
    product_store_blocks(tile, to, n_stride, n_whole, m0, m1, LANES,
                         how == STORE_ADD ? STORE_ADD : STORE_NEW);
  }
  // Line by line, since lines a power of two apart fall into the same sets of a cache.
  for (int n = 0; n < n_count; ++n) {
    for (int m = 0; m < m_count; ++m) {
      if (m == m0 && n < n_whole) m = m1;
      if (m < m_count) {
        product_store_element(to + m * m_stride + n * n_stride, tile[m * TILE_N + n],
                              how == STORE_ADD);
      }
    }
  }
}
#elif PRODUCT_OUT_LAYOUT == ALONG_SECOND
static inline void product_store_tile(global const float* tile,
                                      global ELEMENT(PRODUCT_OUT_TYPE) * to, long m_stride,
                                      long n_stride, int m_count, int n_count, int how) {
  int n_whole = n_count / LANES * LANES;
#if defined(PRODUCT_STREAM_STEP) && TILE_N % PRODUCT_STREAM_LINE == 0
  if (how == STORE_STREAMED && product_lies_even(to, m_stride)) {
    n_whole = n_count / PRODUCT_STREAM_STEP * PRODUCT_STREAM_STEP;
    for (int m = 0; m < m_count; ++m) {
      for (int n = 0; n < n_whole; n += PRODUCT_STREAM_STEP) {
        global const float* from = tile + m * TILE_N + n;
        product_stream(LANE_LOAD(from), LANE_LOAD(from + PRODUCT_STREAM_STEP - LANES),
                       to + m * m_stride + n);
      }
    }
  } else
#endif
  {
    for (int n = 0; n < n_whole; n += LANES) {
      for (int m = 0; m < m_count; ++m) {
        product_store_vector(to + m * m_stride + n, LANE_LOAD(tile + m * TILE_N + n),
                             how == STORE_ADD);
      }
    }
  }
  for (int m = 0; m < m_count; ++m) {
    for (int n = n_whole; n < n_count; ++n) {
      product_store_element(to + m * m_stride + n * n_stride, tile[m * TILE_N + n],
                            how == STORE_ADD);
    }
  }
}
#else
static inline void product_store_tile(global const float* tile,
                                      global ELEMENT(PRODUCT_OUT_TYPE) * to, long m_stride,
                                      long n_stride, int m_count, int n_count, int how) {
  for (int m = 0; m < m_count; ++m) {
    for (int n = 0; n < n_count; ++n) {
      product_store_element(to + m * m_stride + n * n_stride, tile[m * TILE_N + n],
                            how == STORE_ADD);
    }
  }
}
#endif

static inline void product_clear_line(global ELEMENT(PRODUCT_OUT_TYPE) * line, int count,
                                      long stride) {
  int i = 0;
#if PRODUCT_OUT_LAYOUT != STRIDED
  for (; i + LANES <= count; i += LANES) LANE_CLEAR_TYPE(PRODUCT_OUT_TYPE, line + i);
#endif
  for (; i < count; ++i) STORE(PRODUCT_OUT_TYPE, line, i * stride, 0.0f);
}

ALWAYS_INLINE void product_store(product_state* p, const engine_tile* tile, int panel) {
  product_store_tile(tile->at, product_place(p, panel), p->out.m_stride, p->out.n_stride,
                     p->now.rows, product_columns(p, panel), p->out.how);
}
ALWAYS_INLINE void product_clear(const product_state* p) {
  global ELEMENT(PRODUCT_OUT_TYPE)* to = product_place(p, p->panel_begin);
  const int n_count = min(p->panel_end * TILE_N, p->out.n_count) - p->panel_begin * TILE_N;
#if PRODUCT_OUT_LAYOUT == ALONG_FIRST
  for (int n = 0; n < n_count; ++n) {
    product_clear_line(to + n * p->out.n_stride, p->now.rows, p->out.m_stride);
  }
#else
  for (int m = 0; m < p->now.rows; ++m) {
    product_clear_line(to + m * p->out.m_stride, n_count, p->out.n_stride);
  }
#endif
}
