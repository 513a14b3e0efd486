// SPDX-License-Identifier: Apache-2.0
// The engine for CPUs: work-groups of one work-item, explicit vectors, no barriers and no local
// memory. A tile of MICRO_M rows by NV vectors stays in registers over a whole panel of k; each
// step broadcasts MICRO_M elements of A against NV vectors of B. fma() and not mad(), which drivers
// may split. The numbers are the host's (host/engines/cpu.cpp).
#ifndef TESSERA_CPU_ENGINE_CL
#define TESSERA_CPU_ENGINE_CL

#if DOT_BF16
#include "engines/cpu/dot_bf16.cl"
#else
#define WORD float  // what A and B are packed as
#define WORD_ZERO 0.0f
#define A_SOURCE float  // what A in place consists of
#define LANE_WORD lane_f
#define MULTIPLY_ADD(acc, broadcast, column) acc = fma(broadcast, column, acc);
#define A_BROADCAST(m, u) (lane_f)(a[(m)*row_step + (u)*A_K_STEP])
#define A_WHOLE(tile) tile.depth
#define A_HALF(tile) 0
#endif
#include "engines/cpu/operand_a.cl"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#define ENGINE_KERNEL __attribute__((reqd_work_group_size(1, 1, 1)))
#define ENGINE_LOCALS
// Scratch of the group: packed rows of A, of which there are e.own[0] words, then tiles of C.
#define ENGINE_SETUP(scratch)                                                                    \
  const long pack_words = e.own[0];                                                              \
  global float* pack =                                                                           \
      (scratch) + ((get_group_id(2) * get_num_groups(1) + get_group_id(1)) * get_num_groups(0) + \
                   get_group_id(0)) *                                                            \
                      e.group_words;                                                             \
  int turn = 0;
#define A_STRIP MICRO_M
#define ENGINE_WHOLE_K 0

// A tile has rows to spare, which the last strip writes. Where k takes several steps, every panel
// of columns has a tile of its own, complete after the last.
#define c_tile global float*
#define ENGINE_TILE(index) \
  (pack + pack_words + (walk.k_count > walk.k_step ? (index) : 0) * ((e.tile_m + MICRO_M) * TILE_N))
#define FOR_COLUMNS(column) for (int column = 0; column < TILE_N; column += LANES)
#define FOR_ROWS(m, rows) for (int m = 0; m < (rows); ++m)
#define FOR_ELEMENTS(m, rows, column) \
  FOR_ROWS(m, rows)                   \
    FOR_COLUMNS(column)
#define TILE_AT(tile, m, column) LANE_LOAD((tile) + (m)*TILE_N + (column))
#define TILE_SET(tile, m, column, value) LANE_STORE(value, (tile) + (m)*TILE_N + (column))
#define COLUMN_MAX(v) (v)
#define COLUMN_SUM(v) (v)
#define COLUMN_MIN_INDEX(i) (i)
#define COLUMN_OWNER 1
#define COLUMN_SYNC

// Steps of k unrolled: addresses become constants, and the few integer
// instructions that are left fit beside the multiplications. (Emulated
// instructions are long: two are enough for steps and a rest.)
#if DOT_BF16 == 2
#define K_UNROLL 2
#else
#define K_UNROLL 8
#endif

// Rows of A come in strips of MICRO_M. Where A_IN_PLACE says so, whole strips are read where they
// lie. What is not is packed: contiguous along k, a strip keeps its rows apart
// ([MICRO_M][depth + 16], plain copies); contiguous along m, the rows interleave ([k][MICRO_M]).
// Neither needs a transpose. The 16 spare elements a row keep rows a power of two apart from
// falling into the same cache sets.
#define A_STRIP_WORDS(depth) (MICRO_M * ((depth) + 16))
#if A_CONTIGUOUS_M
#define A_PACKED_ROW_STEP(depth) 1
#define A_K_STEP MICRO_M
#else
#define A_PACKED_ROW_STEP(depth) ((depth) + 16)
#define A_K_STEP 1
#endif
#if A_IN_PLACE
#define A_ROWS_IN_PLACE(rows) ((rows) / MICRO_M * MICRO_M)
#else
#define A_ROWS_IN_PLACE(rows) 0
#endif

// Two buffers: while one is multiplied the other is loaded, a part before each strip, so that
// waiting for memory is spread over the multiplications.
#define A_BUFFER(index) ((global WORD*)pack + ((index)&1) * (pack_words / 2))
#define ENGINE_TURN ++turn;
#define ENGINE_LOAD \
  if (next.rows > 0) load_part(matrix, next, A_BUFFER(turn + 1), 0, 1);

#if A_CONTIGUOUS_M
// For the rows of the part after this one: short pieces of memory far apart, which no hardware
// follows. Rows are asked for evenly, about one before each strip, and near: what was asked for at
// the second level was still waited for. (Of rows contiguous along k it cost more than it brought.)
#define A_LINE (64 / (int)sizeof(ELEMENT(A_TYPE)))
#define AHEAD(part) \
  ELEMENTS((part) >= parts ? next.depth : (int)((long)next.depth * (part) / parts))
ALWAYS_INLINE void ask_for_part(const matrix_a matrix, const a_tile next, int part, int parts) {
  const int ahead = AHEAD(part + 2);
  for (int k = part == 0 ? 0 : AHEAD(part + 1); k < ahead; ++k) {
    for (int m = 0; m < next.rows; m += A_LINE) PREFETCH_NEAR(A_ADDRESS(next, m, k))
    PREFETCH_NEAR(A_ADDRESS(next, next.rows - 1, k))  // may be a line of its own
  }
}

// Parts begin at multiples of PART_K, so that lines of a strip are filled at once.
#define PART_K 8
#define PART_BEGIN(part) \
  ((part) == parts ? next.depth : (int)((long)next.depth * (part) / parts) / PART_K * PART_K)
// Elements that the vector loads of one strip touch.
#define A_VECTOR_REACH ((MICRO_M + A_M_LANES - 1) / A_M_LANES * A_M_LANES)
// Part by part along k, and for each k along the rows, as memory lies. Whole vectors are written
// where MICRO_M are meant: the next k overwrites the surplus, and the strip's spare elements take
// the last. Near the edge of A single elements are read instead.
ALWAYS_INLINE void load_part(const matrix_a matrix, const a_tile next, global WORD* buffer,
                             int part, int parts) {
  ask_for_part(matrix, next, part, parts);
  const int readable = A_ROWS_READABLE(next);
  const int k0 = PART_BEGIN(part);
  const int k1 = PART_BEGIN(part + 1);
  for (int k = k0; k < k1; ++k) {
    global WORD* a = buffer + (long)k * MICRO_M;
    int m0 = 0;
    for (; m0 < next.rows && m0 + A_VECTOR_REACH <= readable; m0 += MICRO_M) {
      for (int at = 0; at < MICRO_M; at += A_M_LANES) A_COPY_M(next, m0 + at, k, a + at)
      a += A_STRIP_WORDS(next.depth);
    }
    for (; m0 < next.rows; m0 += MICRO_M) {
      for (int m = 0; m < MICRO_M; ++m) {
        a[m] = m0 + m < next.rows ? A_AT(next, m0 + m, k) : WORD_ZERO;
      }
      a += A_STRIP_WORDS(next.depth);
    }
  }
}
#else
// Part by part along the rows.
ALWAYS_INLINE void load_part(const matrix_a matrix, const a_tile next, global WORD* buffer,
                             int part, int parts) {
  const int in_place = A_ROWS_IN_PLACE(next.rows);
  const int packed = (next.rows - in_place + MICRO_M - 1) / MICRO_M * MICRO_M;
  const int m1 = (int)((long)packed * (part + 1) / parts);
  for (int m = (int)((long)packed * part / parts); m < m1; ++m) {
    global WORD* row = buffer + (long)(m / MICRO_M) * A_STRIP_WORDS(next.depth) +
                       (long)(m % MICRO_M) * A_PACKED_ROW_STEP(next.depth);
    int k = 0;
    if (in_place + m >= next.rows) {
      for (; k < next.depth; ++k) row[k] = WORD_ZERO;
    } else {
#if A_CONTIGUOUS_K
      for (; k + A_COPIED <= A_WHOLE(next); k += A_COPIED) A_COPY_K(next, in_place + m, k, row + k);
#endif
      for (; k < next.depth; ++k) row[k] = A_AT(next, in_place + m, k);
    }
  }
}
#endif

// For lines that an epilogue will write: OUT_ADDRESS(m), if there is one, in row m of the tile.
#ifdef OUT_ADDRESS
#define OUT_PREFETCH(strip, m_all)                                                   \
  if (OUT_IS_FETCHED) {                                                              \
    for (int m = (strip)*MICRO_M; m < ((strip) + 1) * MICRO_M && m < (m_all); ++m) { \
      PREFETCH_TO_WRITE(OUT_ADDRESS(m))                                              \
    }                                                                                \
  }
#else
#define OUT_PREFETCH(strip, m_all)
#endif

// Rows of B are this many rows of memory apart.
#if B_STORED && STORED_PAIRS
#define B_STEP STORED_PAIRS
#else
#define B_STEP 1
#endif
#define MULTIPLY_STEP(u, A_WORD)                                    \
  {                                                                 \
    LANE_WORD column[NV];                                           \
    _Pragma("unroll") for (int n = 0; n < NV; ++n) {                \
      column[n] = LANE_LOAD(b + (u)*B_STEP * TILE_N + n * LANES);   \
    }                                                               \
    _Pragma("unroll") for (int m = 0; m < MICRO_M; ++m) {           \
      const LANE_WORD broadcast = A_WORD(m, u);                     \
      _Pragma("unroll") for (int n = 0; n < NV; ++n) {              \
        MULTIPLY_ADD(acc[(u) % PHASES][m][n], broadcast, column[n]) \
      }                                                             \
    }                                                               \
  }

// One register tile over `depth` steps of k, the last of them half a word where `half_word` is 1. A
// tile that is narrow has registers left: PHASES sums per element keep the multipliers busy. What C
// holds is added at the end, so that no multiplication waits for it.
static inline void multiply_strip(global float* c, int ldc, global const A_SOURCE* a, long row_step,
                                  global const WORD* b, int depth, int half_word, int first) {
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
      for (int n = 0; n < NV; ++n) PREFETCH(c + m * ldc + n * LANES)
    }
  }
  int k = 0;
#if DOT_BF16
  depth -= half_word;
#endif
  for (; k + K_UNROLL <= depth; k += K_UNROLL) {
#pragma unroll
    for (int u = 0; u < K_UNROLL; ++u) MULTIPLY_STEP(u, A_BROADCAST)
    a += ELEMENTS(K_UNROLL * A_K_STEP);
    b += K_UNROLL * B_STEP * TILE_N;
  }
  for (; k < depth; ++k) {
    MULTIPLY_STEP(0, A_BROADCAST)
    a += ELEMENTS(A_K_STEP);
    b += B_STEP * TILE_N;
  }
#if DOT_BF16
  if (half_word) MULTIPLY_STEP(0, A_BROADCAST_HALF)
#endif
#pragma unroll
  for (int m = 0; m < MICRO_M; ++m) {
#pragma unroll
    for (int n = 0; n < NV; ++n) {
      global float* at = c + m * ldc + n * LANES;
#pragma unroll
      for (int p = 1; p < PHASES; ++p) acc[0][m][n] += acc[p][m][n];
      LANE_STORE(first ? acc[0][m][n] : acc[0][m][n] + LANE_LOAD(at), at);
    }
  }
}

#ifdef K_KEPT
// Run by run of the k that are kept; a C that none of them reaches is cleared.
#define MULTIPLY_STRIP(c, ldc, a, row_step, b, depth, half_word, first)                        \
  {                                                                                            \
    int clear = first;                                                                         \
    for (int run = 0; run < (depth); run += K_KEPT_STEP) {                                     \
      int end = run;                                                                           \
      while (end < (depth) && K_KEPT(end)) end += K_KEPT_STEP;                                 \
      if (end == run) continue;                                                                \
      multiply_strip(c, ldc, (a) + ELEMENTS((long)run * A_K_STEP), row_step,                   \
                     (b) + (long)run * B_STEP * TILE_N, (end < (depth) ? end : (depth)) - run, \
                     end < (depth) ? 0 : (half_word), clear);                                  \
      clear = 0;                                                                               \
      run = end;                                                                               \
    }                                                                                          \
    if (clear) multiply_strip(c, ldc, a, row_step, b, 0, 0, 1);                                \
  }
#else
#define MULTIPLY_STRIP(c, ldc, a, row_step, b, depth, half_word, first) \
  multiply_strip(c, ldc, a, row_step, b, depth, half_word, first);
#endif
#define A_PACKED(strip, k_all) \
  ((global const A_SOURCE*)(A_BUFFER(turn) + (strip)*A_STRIP_WORDS(k_all)))

// c (+)= A * b for all strips of the A of this turn, with a part of the next A loaded before each.
#if A_IN_PLACE
#define MULTIPLY_IN_PLACE(c, b, strip, first)                                          \
  MULTIPLY_STRIP(c, TILE_N, A_POINTER(now, (strip)*MICRO_M), A_ROW_STEP, b, now.depth, \
                 A_HALF(now), first)
#else
#define MULTIPLY_IN_PLACE(c, b, strip, first)
#endif
#define MULTIPLY_TILE(c, b, panel, index, count, first)                                        \
  {                                                                                            \
    const int strips_ = (now.rows + MICRO_M - 1) / MICRO_M;                                    \
    const int first_packed_ = A_ROWS_IN_PLACE(now.rows) / MICRO_M;                             \
    global const WORD* columns_ =                                                              \
        (global const WORD*)(b).base + panel_index((b).extent, panel, now.k * B_STEP, 0);      \
    for (int strip = 0; strip < strips_; ++strip) {                                            \
      if (next.rows > 0) {                                                                     \
        load_part(matrix, next, A_BUFFER(turn + 1), (index)*strips_ + strip, (count)*strips_); \
      }                                                                                        \
      OUT_PREFETCH(strip, now.rows)                                                            \
      global float* c_strip_ = (c) + (long)strip * MICRO_M * TILE_N;                           \
      if (strip < first_packed_) {                                                             \
        MULTIPLY_IN_PLACE(c_strip_, columns_, strip, first)                                    \
      } else {                                                                                 \
        MULTIPLY_STRIP(c_strip_, TILE_N, A_PACKED(strip - first_packed_, now.depth),           \
                       ELEMENTS(A_PACKED_ROW_STEP(now.depth)), columns_, now.depth, 0, first)  \
      }                                                                                        \
    }                                                                                          \
  }

#if ALONG_K
#include "engines/cpu/along_k.cl"
#define ENGINE_MULTIPLY(tile, b, panel, index, count) \
  multiply_along_k(tile, matrix, b, panel, now, next, now.k == 0);
#undef ENGINE_LOAD
#define ENGINE_LOAD  // nothing is packed
#else
#define ENGINE_MULTIPLY(tile, b, panel, index, count) \
  MULTIPLY_TILE(tile, b, panel, index, count, now.k == 0)
#endif
#define ENGINE_ACCUMULATE(sums, b, panel, index, count, first) \
  MULTIPLY_TILE(sums, b, panel, index, count, first)
static inline void rescale(global float* sums, int rows, global const float* factors) {
  FOR_ELEMENTS(m, rows, column) {
    global float* at = sums + (long)m * TILE_N + column;
    LANE_STORE(LANE_LOAD(at) * LANE_LOAD(factors + column), at);
  }
}
#define ENGINE_RESCALE(sums, rows, factors) rescale(sums, rows, factors);

#if PRODUCT == PRODUCT_STORE
#include "engines/cpu/store.cl"
#endif

#endif
