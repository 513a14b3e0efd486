// SPDX-License-Identifier: Apache-2.0
// Tiles of logits, [vocabulary][tokens]: operand A is w as it lies, and the walk over slices and tiles
// of the vocabulary and over steps of H that forward and gradient share.
#ifndef TESSERA_LOGITS_CL
#define TESSERA_LOGITS_CL

#include "linear_cross_entropy/operands.cl"

// Columns v .. v + rows of w, elements k .. k + depth of H. Where the engine multiplies pairs (DOT_BF16),
// k and depth count pairs, of which the last may be half.
typedef struct {
  int slice;
  int rows, depth;
  long v, k;
} logit_tile;

#if DOT_BF16
#define A_AT(tile, m, k_)                                                \
  w_pair(w, w_offset, w_h_stride, w_v_stride, h_count, 2 * (tile.k + (k_)), tile.v + (m))
#define A_HALF(tile) (2 * (tile.k + tile.depth) > h_count)
#else
#define A_AT(tile, m, k_) W_AT(tile.k + (k_), tile.v + (m))
#endif
#define A_ROWS_READABLE(tile) (int)(v_readable - tile.v)
#define A_TYPE W_TYPE
#define A_ADDRESSES (W_LAYOUT != W_STRIDED)
#define A_ADDRESS(tile, m, k_) (w + W_INDEX(ELEMENTS(tile.k) + (k_), tile.v + (m)))
#if W_LAYOUT == W_VH
#define A_CONTIGUOUS_K 1
#if DOT_BF16
#define A_VECTOR_K(tile, m, k_) LANE_LOAD_PAIRS(A_ADDRESS(tile, m, 2 * (k_)))
#else
#define A_VECTOR_K(tile, m, k_) W_VECTOR(tile.k + (k_), tile.v + (m))
#endif
#if W_TYPE == TYPE_F32 || DOT_BF16
#define A_IN_PLACE 1
#define A_POINTER(tile, m) A_ADDRESS(tile, m, 0)
#define A_ROW_STEP w_v_stride
#endif
#elif W_LAYOUT == W_HV
#define A_CONTIGUOUS_M 1
#if DOT_BF16
#define A_VECTOR_M(tile, m, k_)                                          \
  lane_join_pairs(A_ADDRESS(tile, m, 2 * (k_)), A_ADDRESS(tile, m, 2 * (k_) + 1), \
                  2 * (tile.k + (k_)) + 1 < h_count)
#else
#define A_VECTOR_M(tile, m, k_) W_VECTOR(tile.k + (k_), tile.v + (m))
#endif
#endif
#include "engines/engine.cl"

#define H_WORDS (int)WORDS(h_count)

#if DOT_BF16
// Elements h and h + 1 of column v, of which the second may be beyond the end.
static inline int w_pair(W_ARGUMENTS, int h_count, long h, long v) {
  const uint low = w[W_INDEX(h, v)];
  const uint high = h + 1 < h_count ? w[W_INDEX(h + 1, v)] : 0;
  return (int)(low | high << 16);
}
#endif

static inline void tile_extents(logit_tile* t, long v_count, long v_block, int slices, int tile_m,
                                int h_count, long h_step) {
  const long end = (t->slice + 1) * v_block < v_count ? (t->slice + 1) * v_block : v_count;
  t->rows = t->slice >= slices ? 0 : end - t->v < tile_m ? (int)(end - t->v) : tile_m;
  t->depth = h_count - t->k < h_step ? (int)(h_count - t->k) : (int)h_step;
}

static inline void tile_advance(logit_tile* t, int groups, long v_count, long v_block, int slices,
                                int tile_m, int h_count, long h_step) {
  t->k += h_step;
  if (t->k >= h_count) {
    t->k = 0;
    t->v += t->rows;
    if (t->v >= (t->slice + 1) * v_block || t->v >= v_count) {
      t->slice += groups;
      t->v = t->slice * v_block;
    }
  }
  tile_extents(t, v_count, v_block, slices, tile_m, h_count, h_step);
}

// Slices are taken round robin, so that scratch is needed per group and not per slice; results do not
// depend on who takes which. All panels of tokens meet a tile while it is in the cache.
#define FIRST_TILE                                                                           \
  logit_tile now, next;                                                                      \
  next.slice = (int)get_group_id(0);                                                         \
  next.v = next.slice * v_block;                                                             \
  next.k = 0;                                                                                \
  tile_extents(&next, v_count, v_block, slices, TILE_M, H_WORDS, ENGINE_K_STEP(h_count));    \
  LOAD_FIRST_TILE
#define NEXT_TILE                                                                            \
  ENGINE_TURN                                                                                \
  now = next;                                                                                \
  tile_advance(&next, (int)get_num_groups(0), v_count, v_block, slices, TILE_M, H_WORDS,     \
               ENGINE_K_STEP(h_count));

// Where H takes several steps, every panel of the group has a tile of its own, complete after the last.
#define TILES_OF_GROUP (H_WORDS > ENGINE_K_STEP(h_count) ? panels_per_group : 1)
#define PANEL_TILE(panel) \
  (tile_c + (TILES_OF_GROUP > 1 ? (panel)-panel_begin : 0) * ENGINE_TILE_WORDS)
#define TILE_COMPLETE (now.k + now.depth == H_WORDS)
// One panel of tokens, of those up to `end`, meets this turn's A.
#if ALONG_K
#include "engines/cpu/along_k.cl"
#define LOAD_FIRST_TILE
#define MULTIPLY_PANEL(panel_c, panel, end)                                                   \
  ENGINE_MULTIPLY_ALONG_K(                                                                    \
      panel_c, x_base + x_offset + ((long)(panel)*WHOLE_VECTORS(h_count) + now.k) * TILE_N,   \
      now.rows, now.depth, now.k == 0)
#else
#define LOAD_FIRST_TILE ENGINE_LOAD_ALL
#define MULTIPLY_PANEL(panel_c, panel, end)                                                   \
  ENGINE_MULTIPLY(panel_c, TILE_N, x_base + x_offset + ((long)(panel)*H_WORDS + now.k) * TILE_N, \
                  now.rows, now.depth, now.k == 0, (panel)-panel_begin, (end)-panel_begin)
#endif

#endif
