// SPDX-License-Identifier: Apache-2.0
// What the kernels of this operator share: layouts of w, bias and class weights, kept logits.
#ifndef TESSERA_OPERANDS_CL
#define TESSERA_OPERANDS_CL

#include "common/lanes.cl"
#include "linear_cross_entropy/arguments.h"

// W_LAYOUT, OUT_LAYOUT: which index of a matrix [H, V] is contiguous.
#define W_VH 0       // a PyTorch weight: h
#define W_HV 1       // v
#define W_STRIDED 2  // neither
#ifndef W_TYPE
#define W_TYPE TYPE_F32
#endif
#ifndef W_LAYOUT
#define W_LAYOUT W_VH
#endif

// Bias and class weights of the columns of this call; null where not given.
#ifndef BIAS_TYPE
#define BIAS_TYPE TYPE_F32
#endif
#ifndef CLASS_TYPE
#define CLASS_TYPE TYPE_F32
#endif
#if HAS_BIAS
#define BIAS_AT(v) LOAD(BIAS_TYPE, bias, a.at.bias + (v)*a.size.logit.bias_stride)
#else
#define BIAS_AT(v) 0.0f
#endif
#if HAS_CLASS_WEIGHT
#define CLASS_AT(v) \
  LOAD(CLASS_TYPE, class_weight, a.at.class_weight + (v)*a.size.logit.class_stride)
#else
#define CLASS_AT(v) 1.0f
#endif

// Kept logits may lie in memory of 16-bit elements, and begin where any of them does (KEPT_HALVES:
// they are then read and written as pairs of those). Where a row of that memory is the
// vocabulary's, KEPT_COLUMNS columns have rows of their own in it, each as wide as they are
// together, and the columns after them lie beside them.
#ifndef KEPT_COLUMNS
#define KEPT_COLUMNS 1
#endif
#define KEPT_BASE(panel) ((global ushort*)(kept + a.at.kept) + (panel)*a.size.kept.panel_stride)
#if KEPT_COLUMNS == 1
#define KEPT_AT(panel, v) (KEPT_BASE(panel) + (v)*a.size.kept.v_stride)
#else
#define KEPT_AT(panel, v) \
  (KEPT_BASE(panel) + (v) / KEPT_COLUMNS * 2 * TILE_N + (v) % KEPT_COLUMNS * a.size.kept.v_stride)
#endif
// The lanes from token `column` on, of what KEPT_AT found.
#if KEPT_HALVES
#define KEPT_LOAD(at, column) AS_LANE_F(LANE_LOAD_PAIRS((at) + 2 * (column)))
#define KEPT_STORE(value, at, column) LANE_STORE_PAIRS(AS_LANE_I(value), (at) + 2 * (column))
#else
#define KEPT_LOAD(at, column) LANE_LOAD((global const float*)(at) + (column))
#define KEPT_STORE(value, at, column) LANE_STORE(value, (global float*)(at) + (column))
#endif

// Tokens of a chunk that count, from the first on, and panels that have one.
#define COUNTED_TOKENS ((long)info[a.at.info + INFO_COUNT] - a.size.chunk_begin)
static inline int panels_used(long counted, int panels) {
  const int used = counted <= 0 ? 0 : (int)((counted + TILE_N - 1) / TILE_N);
  return used < panels ? used : panels;
}

#endif
