// SPDX-License-Identifier: Apache-2.0
// The engine for CPUs: work-groups of one work-item, explicit vectors, no barriers and no local
// memory. A tile of MICRO_M rows by NV vectors stays in registers over a whole panel of k; each
// step broadcasts MICRO_M elements of A against NV vectors of B. fma() and not mad(), which drivers
// may split. The numbers are the host's (host/engines/cpu.cpp).

#if PRODUCT_DOT_BF16
#include "engines/cpu/dot_bf16.cl"  // as product
#else
typedef float product_word;    // an element of packed A and B
typedef float product_source;  // of an A in place
typedef lane_f product_lanes;
ALWAYS_INLINE lane_f product_add(lane_f acc, lane_f broadcast, lane_f column) {
  return fma(broadcast, column, acc);
}
ALWAYS_INLINE lane_f product_broadcast(global const float* a) { return (lane_f)(*a); }
#endif
#include "engines/cpu/operand_a.cl"  // as product

// A tile has rows to spare, which the last strip writes.
#include "engines/columns.cl"  // as product
#define PRODUCT_FOR_COLUMNS(j) for (int j = 0; j < TILE_N; j += LANES)
ALWAYS_INLINE lane_f product_at(const engine_tile* tile, int i, int j) {
  return LANE_LOAD(tile->at + i * TILE_N + j);
}
ALWAYS_INLINE void product_put(engine_tile* tile, int i, int j, lane_f value) {
  LANE_STORE(value, tile->at + i * TILE_N + j);
}

// Steps of k unrolled: addresses become constants, and the few integer
// instructions that are left fit beside the multiplications. (Emulated
// instructions are long: two are enough for steps and a rest.)
#if PRODUCT_DOT_BF16 == 2
#define PRODUCT_UNROLL 2
#else
#define PRODUCT_UNROLL 8
#endif

// Rows of A come in strips of MICRO_M. Where PRODUCT_A_IN_PLACE says so, whole strips are read
// where they lie. All others are packed: contiguous along k, a strip keeps its rows apart
// ([MICRO_M][depth + 16], plain copies); contiguous along m, the rows interleave ([k][MICRO_M]).
// Neither needs a transpose. The 16 spare elements a row keep rows a power of two apart from
// falling into the same cache sets.
ALWAYS_INLINE int product_strip_words(int depth) { return MICRO_M * (depth + 16); }
#if PRODUCT_A_ALONG_M
#define PRODUCT_K_STEP MICRO_M
ALWAYS_INLINE int product_packed_step(int depth) { return 1; }
#else
#define PRODUCT_K_STEP 1
ALWAYS_INLINE int product_packed_step(int depth) { return depth + 16; }
#endif
ALWAYS_INLINE int product_rows_in_place(int rows) {
  return PRODUCT_A_IN_PLACE ? rows / MICRO_M * MICRO_M : 0;
}

// Two buffers: while one is multiplied the other is loaded, a part before each strip, so that
// waiting for memory is spread over the multiplications.
ALWAYS_INLINE global product_word* product_buffer(const product_state* p, int turn) {
  return (global product_word*)p->scratch + (turn & 1) * (p->own[0] / 2);
}

#if PRODUCT_A_ALONG_M
// The first k of part `part` of `parts` of a depth.
ALWAYS_INLINE int product_share(int depth, int part, int parts) {
  return part >= parts ? depth : (int)((long)depth * part / parts);
}
// For the rows of the part after this one: short pieces of memory far apart, which no hardware
// follows. Rows are asked for evenly, about one before each strip, and near: those asked for at
// the second level were still waited for. (Of rows contiguous along k it cost more than it
// brought.)
ALWAYS_INLINE void product_ask_for(const product_a* a, const a_tile* next, int part, int parts) {
  const int line = 64 / (int)sizeof(ELEMENT(PRODUCT_A_TYPE));
  const int ahead = PRODUCT_WORD_ELEMENTS * product_share(next->depth, part + 2, parts);
  const int begin = PRODUCT_WORD_ELEMENTS * product_share(next->depth, part + 1, parts);
  for (int k = part == 0 ? 0 : begin; k < ahead; ++k) {
    for (int m = 0; m < next->rows; m += line) PREFETCH_NEAR(product_a_element(a, next, m, k));
    PREFETCH_NEAR(product_a_element(a, next, next->rows - 1, k));  // may be a line of its own
  }
}

// Parts begin at multiples of 8, so that lines of a strip are filled at once.
ALWAYS_INLINE int product_part_begin(int depth, int part, int parts) {
  return part == parts ? depth : product_share(depth, part, parts) / 8 * 8;
}
// Elements that the vector loads of one strip touch.
#define PRODUCT_M_REACH ((MICRO_M + PRODUCT_M_LANES - 1) / PRODUCT_M_LANES * PRODUCT_M_LANES)
// Packs a part of a tile along k, and for each k along the rows, as memory lies. Whole vectors are
// written where MICRO_M are meant: the next k overwrites the surplus, and the strip's spare
// elements take the last. Near the edge of A single elements are read instead.
ALWAYS_INLINE void product_load_part(const product_a* a, const a_tile* next,
                                     global product_word* buffer, int part, int parts) {
  product_ask_for(a, next, part, parts);
  const int readable = product_a_readable(a, next);
  const int k0 = product_part_begin(next->depth, part, parts);
  const int k1 = product_part_begin(next->depth, part + 1, parts);
  for (int k = k0; k < k1; ++k) {
    global product_word* to = buffer + (long)k * MICRO_M;
    int m0 = 0;
    for (; m0 < next->rows && m0 + PRODUCT_M_REACH <= readable; m0 += MICRO_M) {
      for (int at = 0; at < MICRO_M; at += PRODUCT_M_LANES) {
        product_a_copy_m(a, next, m0 + at, k, to + at);
      }
      to += product_strip_words(next->depth);
    }
    for (; m0 < next->rows; m0 += MICRO_M) {
      for (int m = 0; m < MICRO_M; ++m) {
        to[m] = m0 + m < next->rows ? product_a_at(a, next, m0 + m, k) : 0;
      }
      to += product_strip_words(next->depth);
    }
  }
}
#else
// Packs a part of a tile along the rows.
ALWAYS_INLINE void product_load_part(const product_a* a, const a_tile* next,
                                     global product_word* buffer, int part, int parts) {
  const int in_place = product_rows_in_place(next->rows);
  const int packed = (next->rows - in_place + MICRO_M - 1) / MICRO_M * MICRO_M;
  const int m1 = (int)((long)packed * (part + 1) / parts);
  for (int m = (int)((long)packed * part / parts); m < m1; ++m) {
    global product_word* row = buffer + (long)(m / MICRO_M) * product_strip_words(next->depth) +
                               (long)(m % MICRO_M) * product_packed_step(next->depth);
    int k = 0;
    if (in_place + m >= next->rows) {
      for (; k < next->depth; ++k) row[k] = 0;
    } else {
#if PRODUCT_A_ALONG_K
      for (; k + PRODUCT_A_COPIED <= product_a_whole(a, next); k += PRODUCT_A_COPIED) {
        product_a_copy_k(a, next, in_place + m, k, row + k);
      }
#endif
      for (; k < next->depth; ++k) row[k] = product_a_at(a, next, in_place + m, k);
    }
  }
}
#endif

#if PRODUCT_ALONG_K || PRODUCT_B_TILE
ALWAYS_INLINE void product_load(product_state* p) {}  // nothing is packed ahead
#else
ALWAYS_INLINE void product_load(product_state* p) {
  if (p->next.rows > 0) product_load_part(&p->a, &p->next, product_buffer(p, p->turn + 1), 0, 1);
}
#endif

// Rows of B are this many rows of memory apart.
#if PRODUCT_B_STORED && STORED_PAIRS
#define PRODUCT_B_STEP STORED_PAIRS
#else
#define PRODUCT_B_STEP 1
#endif

// Step u of k, counted from `a` and `b`.
ALWAYS_INLINE void product_step(lane_f (*acc)[NV], global const product_source* a, long row_step,
                                global const product_word* b, int u, int half_word) {
  product_lanes column[NV];
#pragma unroll
  for (int n = 0; n < NV; ++n) column[n] = LANE_LOAD(b + u * PRODUCT_B_STEP * TILE_N + n * LANES);
#pragma unroll
  for (int m = 0; m < MICRO_M; ++m) {
    global const product_source* at =
        a + m * row_step + PRODUCT_WORD_ELEMENTS * (u * PRODUCT_K_STEP);
#if PRODUCT_DOT_BF16
    const product_lanes broadcast = half_word ? product_broadcast_half(at) : product_broadcast(at);
#else
    const product_lanes broadcast = product_broadcast(at);
#endif
#pragma unroll
    for (int n = 0; n < NV; ++n) acc[m][n] = product_add(acc[m][n], broadcast, column[n]);
  }
}

// One register tile over `depth` steps of k, the last of them half a word where `half_word` is 1. A
// tile that is narrow has registers left: PHASES sums per element keep the multipliers busy. The
// sums in C are added at the end, so that no multiplication waits for them. Not inlined: PoCL
// compiles three copies of a kernel.
static __attribute__((noinline)) void product_strip(global float* c, global const product_source* a,
                                                    long row_step, global const product_word* b,
                                                    int depth, int half_word, int first) {
  lane_f acc[PHASES][MICRO_M][NV];
#pragma unroll
  for (int p = 0; p < PHASES; ++p) {
#pragma unroll
    for (int m = 0; m < MICRO_M; ++m) {
#pragma unroll
      for (int n = 0; n < NV; ++n) acc[p][m][n] = (lane_f)(0.0f);
    }
  }
  if (!first) {
#pragma unroll
    for (int m = 0; m < MICRO_M; ++m) {
#pragma unroll
      for (int n = 0; n < NV; ++n) PREFETCH(c + m * TILE_N + n * LANES);
    }
  }
  int k = 0;
#if PRODUCT_DOT_BF16
  depth -= half_word;
#endif
  for (; k + PRODUCT_UNROLL <= depth; k += PRODUCT_UNROLL) {
#pragma unroll
    for (int u = 0; u < PRODUCT_UNROLL; ++u) product_step(acc[u % PHASES], a, row_step, b, u, 0);
    a += PRODUCT_WORD_ELEMENTS * (PRODUCT_UNROLL * PRODUCT_K_STEP);
    b += PRODUCT_UNROLL * PRODUCT_B_STEP * TILE_N;
  }
  for (; k < depth; ++k) {
    product_step(acc[0], a, row_step, b, 0, 0);
    a += PRODUCT_WORD_ELEMENTS * PRODUCT_K_STEP;
    b += PRODUCT_B_STEP * TILE_N;
  }
#if PRODUCT_DOT_BF16
  if (half_word) product_step(acc[0], a, row_step, b, 0, 1);
#endif
#pragma unroll
  for (int m = 0; m < MICRO_M; ++m) {
#pragma unroll
    for (int n = 0; n < NV; ++n) {
      global float* at = c + m * TILE_N + n * LANES;
#pragma unroll
      for (int p = 1; p < PHASES; ++p) acc[0][m][n] += acc[p][m][n];
      LANE_STORE(first ? acc[0][m][n] : acc[0][m][n] + LANE_LOAD(at), at);
    }
  }
}

// The same, without the steps that flags leave out, run by run of those that are kept; a C that
// none of them reaches is cleared.
ALWAYS_INLINE void product_kept_strip(const product_state* p, int panel, global float* c,
                                      global const product_source* a, long row_step,
                                      global const product_word* b, int half_word, int first) {
  const int depth = p->now.depth;
#if PRODUCT_KEPT
  int clear = first;
  for (int run = 0; run < depth; run += PRODUCT_KEPT_STEP) {
    int end = run;
    while (end < depth && product_keeps(p, &p->now, panel, end)) end += PRODUCT_KEPT_STEP;
    if (end == run) continue;
    product_strip(c, a + PRODUCT_WORD_ELEMENTS * ((long)run * PRODUCT_K_STEP), row_step,
                  b + (long)run * PRODUCT_B_STEP * TILE_N, (end < depth ? end : depth) - run,
                  end < depth ? 0 : half_word, clear);
    clear = 0;
    run = end;
  }
  if (clear) product_strip(c, a, row_step, b, 0, 0, 1);
#else
  product_strip(c, a, row_step, b, depth, half_word, first);
#endif
}

// Asks for the lines of the matrix that product_store will write, of a strip's rows.
ALWAYS_INLINE void product_fetch_out(const product_state* p, int panel, int strip) {
#if PRODUCT_USE == USE_STORE && PRODUCT_OUT_LAYOUT == ALONG_SECOND
  if (p->out.how == STORE_STREAMED) return;
  for (int m = strip * MICRO_M; m < (strip + 1) * MICRO_M && m < p->now.rows; ++m) {
    PREFETCH_TO_WRITE(product_place(p, panel) + m * p->out.m_stride);
  }
#endif
}

#if PRODUCT_ALONG_K
#include "engines/cpu/along_k.cl"  // as product
#else
// c (+)= A * B for strip `strip` of a tile whose packed rows are in `buffer`. One call for both
// places of A, since compilers take the time of each.
ALWAYS_INLINE void product_multiply_strip(const product_state* p, global float* c, int strip,
                                          global const product_word* buffer, int panel,
                                          global const product_word* b, int first) {
  const int depth = p->now.depth;
  const int first_packed = product_rows_in_place(p->now.rows) / MICRO_M;
  global const product_source* a =
      (global const product_source*)(buffer + (strip - first_packed) * product_strip_words(depth));
  long row_step = PRODUCT_WORD_ELEMENTS * product_packed_step(depth);
  int half_word = 0;
#if PRODUCT_A_IN_PLACE
  if (strip < first_packed) {
    a = product_a_element(&p->a, &p->now, strip * MICRO_M, 0);
    row_step = p->a.m_stride;
    half_word = product_a_half(&p->a, &p->now);
  }
#endif
  product_kept_strip(p, panel, c + (long)strip * MICRO_M * TILE_N, a, row_step, b, half_word,
                     first);
}

// c (+)= A * B for all strips of the A of this turn, with a part of the next A loaded before each.
ALWAYS_INLINE void product_multiply_rows(product_state* p, global float* c, int panel, int first) {
  const int strips = (p->now.rows + MICRO_M - 1) / MICRO_M;
  const int index = panel - p->panel_begin, count = p->panel_end - p->panel_begin;
  global const product_word* columns =
      (global const product_word*)p->b.base +
      panel_index(p->b.extent, panel, p->now.k * PRODUCT_B_STEP, 0);
  for (int strip = 0; strip < strips; ++strip) {
    if (p->next.rows > 0) {
      product_load_part(&p->a, &p->next, product_buffer(p, p->turn + 1), index * strips + strip,
                        count * strips);
    }
    product_fetch_out(p, panel, strip);
    product_multiply_strip(p, c, strip, product_buffer(p, p->turn), panel, columns, first);
  }
}
#endif

// Every panel of columns has a tile of its own if k takes several steps: complete after the last.
ALWAYS_INLINE void product_multiply(product_state* p, engine_tile* tile, int panel) {
  const int index = p->walk.k_count > p->walk.k_step ? panel - p->panel_begin : 0;
  tile->at = p->scratch + p->own[0] + index * ((p->walk.tile_m + MICRO_M) * TILE_N);
  product_multiply_rows(p, tile->at, panel, p->now.k == 0);
}
ALWAYS_INLINE void product_accumulate(product_state* p, global float* sums, int panel, int first) {
  product_multiply_rows(p, sums, panel, first);
}

#if PRODUCT_B_TILE
// The rows of the other tile are B as they lie; for products of pairs they are packed, behind the
// tile of this one.
ALWAYS_INLINE void product_multiply_tile(product_state* p, engine_tile* tile,
                                         const engine_tile* other, int k, int depth) {
  tile->at = p->scratch + p->own[0];
#if PRODUCT_DOT_BF16
  global product_word* b = (global product_word*)tile->at + p->own[1];
  for (int row = 0; row < depth; row += 2) {
    for (int n = 0; n < TILE_N; n += LANES) {
      const lane_i low = LANE_CAT(convert_int)(lane_to_bf16(product_at(other, row, n)));
      const lane_i high = row + 1 < depth
                              ? LANE_CAT(convert_int)(lane_to_bf16(product_at(other, row + 1, n)))
                              : (lane_i)(0);
      LANE_STORE(low | high << 16, b + row / 2 * TILE_N + n);
    }
  }
#else
  global const product_word* b = other->at;
#endif
  p->now.k = product_words(k);
  p->now.depth = (int)product_words(depth);
  product_load_part(&p->a, &p->now, product_buffer(p, 0), 0, 1);
  const int strips = (p->now.rows + MICRO_M - 1) / MICRO_M;
  for (int strip = 0; strip < strips; ++strip) {
    product_multiply_strip(p, tile->at, strip, product_buffer(p, 0), 0, b, k == 0);
  }
}
#endif

#if PRODUCT_USE == USE_STORE
#include "engines/cpu/store.cl"  // as product
#endif
