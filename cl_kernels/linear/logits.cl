// SPDX-License-Identifier: Apache-2.0
// Tiles of logits, [vocabulary][tokens]: operand A is w as it lies, operand B x by rows. Shared by
// forward and gradient.
#ifndef TESSERA_LOGITS_CL
#define TESSERA_LOGITS_CL

// Unrolled over a tile of 128 elements a work-item, one of these alone takes all registers
// (docs/gpu_code.csv).
#define LONG_EPILOGUE \
  (SOFT_CAP || HAS_BIAS || HAS_CLASS_WEIGHT || BIAS_LANES || TARGETS != TARGETS_LABELS)

#include "linear/operands.cl"

#define LOGITS_A_TYPE W_TYPE
#if W_LAYOUT == W_VH
#define LOGITS_A_LAYOUT ALONG_SECOND
#elif W_LAYOUT == W_HV
#define LOGITS_A_LAYOUT ALONG_FIRST
#endif
#include "engines/product.cl"  // as logits

// Parts are slices of the vocabulary. All panels of tokens meet a tile while it is in the cache.
ALWAYS_INLINE void open_logits(logits_state* p, const logits_memory* memory, global float* scratch,
                               const engine_call* e, global const ELEMENT(W_TYPE) * w,
                               const matrix_sizes* w_sizes, global const operand_word* x,
                               int h_count, long v_count, long v_block, int panels) {
  const logits_a w_tiles = {w, w_sizes->m_stride, w_sizes->k_stride, w_sizes->m_readable, h_count};
  const matrix_b x_rows = {x, logits_extent(h_count)};
  logits_open(p, memory, scratch, e, &w_tiles, &x_rows, v_count, v_block, panels);
}

#endif
