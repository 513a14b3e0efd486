// SPDX-License-Identifier: Apache-2.0
// What these kernels share: layouts of w, bias and class weights, kept logits.
#ifndef TESSERA_OPERANDS_CL
#define TESSERA_OPERANDS_CL

#include "common/lanes.cl"
#include "common/targets.cl"
#include "engines/operand.cl"
#include "linear/arguments.h"

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
#define BIASED(z, v) ((z) + (lane_f)(BIAS_AT(v)))
#else
#define BIASED(z, v) (z)
#endif
#if HAS_CLASS_WEIGHT
#define CLASS_AT(v) \
  LOAD(CLASS_TYPE, class_weight, a.at.class_weight + (v)*a.size.logit.class_stride)
#else
#define CLASS_AT(v) 1.0f
#endif

// Opens the targets of the tokens from `row` of the chunk on, to be visited from column v on.
#define OPEN_TARGETS(t, row, v)                                                       \
  targets_open(t, labels + a.at.labels, values + a.at.values, targets + a.at.targets, \
               a.size.chunk_begin + (row), info[a.at.info + INFO_COUNT], v, &a.size.targets);

// grad_bias is summed of dz in f32. Where that is rounded as it is stored (OPERAND_ROUNDING), sums
// of LANES tokens each are made on the way: one work-item visits all tokens of column v of a range.
ALWAYS_INLINE void add_to_bias(global float* lanes, long v, lane_f value, int first) {
#if BIAS_LANES
  lanes += v * LANES;
  LANE_STORE(first ? value : LANE_LOAD(lanes) + value, lanes);
#endif
}

// Kept logits may lie in memory of 16-bit elements, and begin where any of them does (KEPT_HALVES:
// they are then read and written as pairs of those). Where a row of that memory is the
// vocabulary's, KEPT_COLUMNS columns have rows of their own in it, each as wide as they are
// together, and the columns after them lie beside them.
#ifndef KEPT_COLUMNS
#define KEPT_COLUMNS 1
#endif
// KEPT_OF is for those that a kernel calls `of`, KEPT_AT for `kept`.
#define KEPT_BASE(of, panel) ((global ushort*)(of + a.at.of) + (panel)*a.size.of.panel_stride)
#if KEPT_COLUMNS == 1
#define KEPT_OF(of, panel, v) (KEPT_BASE(of, panel) + (v)*a.size.of.v_stride)
#else
#define KEPT_OF(of, panel, v) \
  (KEPT_BASE(of, panel) + (v) / KEPT_COLUMNS * 2 * TILE_N + (v) % KEPT_COLUMNS * a.size.of.v_stride)
#endif
#define KEPT_AT(panel, v) KEPT_OF(kept, panel, v)
// KEPT_AT of column v + ahead.
#if KEPT_COLUMNS == 1
#define KEPT_AHEAD(panel, v, ahead) (KEPT_AT(panel, v) + (ahead)*a.size.kept.v_stride)
#else
#define KEPT_AHEAD(panel, v, ahead) KEPT_AT(panel, (v) + (ahead))
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

// Panels without a row that counts (their number may be known to the device only) have a dz of 0:
// columns [v_begin, v_end) of one, by kernels that visit kept logits. `first`: as add_to_bias says.
ALWAYS_INLINE void clear_dz(const operand_sink* dz, int panel, long v_begin, long v_end,
                            global float* bias_lanes, int first) {
  for (long v0 = v_begin, v1; v0 < v_end; v0 = v1) {
    v1 = operand_block_end(v0, v_end);
    for (long v = v0; v < v1; ++v) {
      for (int n = 0; n < ITEM_COLUMNS; ++n) {
        const int column = item_column(n);
        operand_put(dz, (lane_f)(0.0f), panel, v, column);
        add_to_bias(bias_lanes, v, (lane_f)(0.0f), first && panel == 0 && column == 0);
      }
    }
    operand_put_done(dz, panel, v0, v1);
  }
}

#endif
