// SPDX-License-Identifier: Apache-2.0
// How kernels read w [H, V] in its own memory, and the arguments every skeleton shares.
#ifndef TESSERA_OPERANDS_CL
#define TESSERA_OPERANDS_CL

#include "common/lanes.cl"

// W_LAYOUT: which index is contiguous.
#define W_VH 0       // a PyTorch weight: h
#define W_HV 1       // v
#define W_STRIDED 2  // neither

#define W_ARGUMENTS global const ELEMENT(W_TYPE) * w, long w_offset, long w_h_stride, long w_v_stride
#define W_INDEX(h, v) (w_offset + (long)(h)*w_h_stride + (long)(v)*w_v_stride)
#define W_AT(h, v) LOAD(W_TYPE, w, W_INDEX(h, v))
#define W_VECTOR(h, v) LANE_LOAD_TYPE(W_TYPE, w + W_INDEX(h, v))

// Bias and class weights of the columns of this call; null where not given.
#ifndef BIAS_TYPE
#define BIAS_TYPE TYPE_F32
#endif
#ifndef CLASS_TYPE
#define CLASS_TYPE TYPE_F32
#endif
#if HAS_BIAS
#define BIAS_AT(v) LOAD(BIAS_TYPE, bias, bias_offset + (v)*bias_stride)
#else
#define BIAS_AT(v) 0.0f
#endif
#if HAS_CLASS_WEIGHT
#define CLASS_AT(v) LOAD(CLASS_TYPE, class_weight, class_offset + (v)*class_stride)
#else
#define CLASS_AT(v) 1.0f
#endif
#define COLUMN_ARGUMENTS                                                                 \
  global const ELEMENT(BIAS_TYPE) * bias, long bias_offset, long bias_stride,            \
      global const ELEMENT(CLASS_TYPE) * class_weight, long class_offset, long class_stride

// Logits that forward keeps for gradients: TILE_N tokens side by side, columns and panels of tokens any
// strides apart, counted in 16 bits, because they may lie in memory of such elements, and begin where
// any of them does (STORED_HALVES: they are then read and written as pairs of those). Where a row of that
// memory is the vocabulary's, STORED_COLUMNS columns have rows of their own in it, each as wide as they
// are together, and the columns after them lie beside them.
#ifndef STORED_COLUMNS
#define STORED_COLUMNS 1
#endif
#define STORED_ARGUMENTS \
  global uchar *stored, long stored_bytes, long stored_panel_stride, long stored_v_stride
#define STORED_BASE(panel) ((global ushort*)(stored + stored_bytes) + (panel)*stored_panel_stride)
#if STORED_COLUMNS == 1
#define STORED_AT(panel, v) (STORED_BASE(panel) + (v)*stored_v_stride)
#else
#define STORED_AT(panel, v)                                                              \
  (STORED_BASE(panel) + (v) / STORED_COLUMNS * 2 * TILE_N + (v) % STORED_COLUMNS * stored_v_stride)
#endif
// The lanes from token `column` on, of what STORED_AT found.
#if STORED_HALVES
#define STORED_LOAD(at, column) AS_LANE_F(LANE_LOAD_PAIRS((at) + 2 * (column)))
#define STORED_STORE(value, at, column) LANE_STORE_PAIRS(AS_LANE_I(value), (at) + 2 * (column))
#else
#define STORED_LOAD(at, column) LANE_LOAD((global const float*)(at) + (column))
#define STORED_STORE(value, at, column) LANE_STORE(value, (global float*)(at) + (column))
#endif

// Rows that `steps` steps divide between them, in whole strips, none with more than one strip more than
// another. Of step `steps` and beyond: the end.
#define STEP_BEGIN(step, steps, rows) \
  min(((rows) + ENGINE_STRIP - 1) / ENGINE_STRIP * min((long)(step), (long)(steps)) / (steps) * ENGINE_STRIP, (long)(rows))

// Scratch of the groups (rows of A packed, and the tile) and the engine's run-time knobs; an engine
// that has no use for one ignores it.
#define ENGINE_ARGUMENTS                                                                  \
  global float *pack_base, long pack_offset, long pack_words, global float *tile_base,    \
      long tile_offset, int tile_m, int h_block
#if ENGINE_CPU
#define GROUP_SIZE 1
#define ENGINE_LOCALS
#define ENGINE_PANELS
#define ENGINE_MULTIPLY_GLOBAL ENGINE_MULTIPLY
#define ENGINE_PROLOGUE                                                                   \
  const long group_index = (long)get_group_id(1) * get_num_groups(0) + get_group_id(0);   \
  global float* pack = pack_base + pack_offset + group_index * pack_words;                \
  int turn = 0;
// A tile has rows to spare, which the last strip writes. Where H is contracted in several steps every
// panel of tokens has a tile of its own.
#define ENGINE_TILE_WORDS ((tile_m + MICRO_M) * TILE_N)
#define ENGINE_TILE(tiles)                                                                \
  global float* tile_c = tile_base + tile_offset + group_index * (tiles) * ENGINE_TILE_WORDS;
#else
#define GROUP_SIZE SIMT_ITEMS
#define ENGINE_PROLOGUE
#define ENGINE_TILE(tiles)
#define ENGINE_TILE_WORDS 0
#endif

#endif
