// SPDX-License-Identifier: Apache-2.0
// What a CPU spends its time in: whole blocks of columns that lie side by side, with no option that
// needs more than the sum of exponentials. Everything else goes the general way (columns.cl).
//
// The loops have one exponential each and no more state than fits 16 registers: a compiler that
// spills, and a processor that runs out of renamed vector registers, cost more than the arithmetic.
#ifndef TESSERA_STREAM_CL
#define TESSERA_STREAM_CL

#include "softmax_cross_entropy/columns.cl"

#define STREAMS (GROUP == 1 && LANES > 1 && V_CONTIGUOUS && !SOFT_CAP)

#if STREAMS
// Columns after which sums are joined, and the reference is checked.
#define STREAM_BLOCK (128 * LANES)

// Below this a difference counts as this: exp(-87) = 1.6e-38 vanishes beside the 1 of the maximum.
#define LEAST_DIFFERENCE (-87.0f)

#if SCALED
#define SCALE_LOGIT(z) ((lane_f)(scale) * (z))
#else
#define SCALE_LOGIT(z) (z)
#endif

// bf16 side by side are taken as pairs, first the even columns, then the odd ones: a shift or a
// mask widens them where widening eight in a row takes two instructions.
#if LOGITS_TYPE == TYPE_BF16 && defined(__ENDIAN_LITTLE__)
#define LANE_SPAN (2 * LANES)
typedef LANE_CAT(uint) lane_u;
#if LANES == 4
#define LANE_PAIRS(p) as_uint4(vload8(0, (p)))
#elif LANES == 8
#define LANE_PAIRS(p) as_uint8(vload16(0, (p)))
#else
#define LANE_PAIRS(p) ((uint16)(as_uint8(vload16(0, (p))), as_uint8(vload16(1, (p)))))
#endif
#define LOAD_EVEN(p) AS_LANE_F(LANE_PAIRS(p) << 16)
#define LOAD_ODD(p) AS_LANE_F(LANE_PAIRS(p) & (lane_u)(0xffff0000u))
#else
#define LANE_SPAN LANES
#define LOAD_EVEN(p) LANE_LOAD_TYPE(LOGITS_TYPE, p)
#endif

// A vector of floats at the alignment of one: some drivers' vstore writes element by element.
typedef struct __attribute__((packed)) {
  lane_f value;
} lane_f_anywhere;
#define STORE_ANYWHERE(space, v, p) (((space lane_f_anywhere*)(p))->value = (v))
#define LOAD_ANYWHERE(space, p) (((space const lane_f_anywhere*)(p))->value)

// Exponentials that the pass for the statistics kept for the gradient: those of the columns [from,
// to) at memory + column (of a block of pairs first the even columns, then the odd ones), relative
// to `shift`. KEEPS: a kernel does that.
typedef struct {
  local float* memory;
  long count;  // columns that fit
  long from, to;
  lane_f shift;
} kept_columns;
#ifndef KEEPS
#define KEEPS 0
#endif
// exp(LEAST_DIFFERENCE), rounded up: kept for every
// difference at or below that, and nothing beside 1.
#define LEAST_KEPT 1.7e-38f
#endif

#endif
