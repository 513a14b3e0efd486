// SPDX-License-Identifier: Apache-2.0
// Products of two bf16 operands by pairs: an element of A and of B is a word of two bf16, of the
// even k in its low half and of the odd k in its high half, and one step adds both products to an
// f32. Where the depth is odd, the last word's high half is 0 in both operands. A_AT, A_VECTOR_K
// and A_VECTOR_M give words then, B is packed in words, `depth` and `k` count words; only A_POINTER
// stays in elements.
//
// DOT_BF16: 1 is the processor's instruction (the host has checked
// that it is there, and that it computes a tile), 2 is its arithmetic
// in OpenCL C, so that everything else is tested on any device.
#ifndef TESSERA_DOT_BF16_CL
#define TESSERA_DOT_BF16_CL

#include "common/lanes.cl"

#define WORD int
#define WORD_ZERO 0
#define A_SOURCE ushort

// The assembler takes the instruction for any target, and a target without AVX-512 fails where no
// error is reported: in the back end. There the portable code stands in, and the probe tells the
// host; #error would do, but some drivers report a failed build on stderr.
#if DOT_BF16 == 1
#if defined(__AVX512F__) && LANES == 16
#define ENGINE_AS_ASKED 1
#else
#undef DOT_BF16
#define DOT_BF16 2
#define ENGINE_AS_ASKED 0
#endif
#endif

#if DOT_BF16 == 1
#define DOT_BF16_ADD(acc, a_pair, b_pairs) \
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(b_pairs), "v"(a_pair));
#else
// Denormals become zeros of their sign, as operands and as
// sums; otherwise f32, rounded to nearest even.
static inline lane_f dot_flush(lane_f value) {
  const lane_i bits = AS_LANE_I(value);
  return AS_LANE_F((bits & 0x7f800000) == 0 ? bits & (int)0x80000000 : bits);
}
static inline lane_f dot_product(lane_f acc, lane_i a, lane_i b) {
  const lane_i high = (lane_i)((int)0xffff0000);
  acc = dot_flush(fma(dot_flush(AS_LANE_F(a & high)), dot_flush(AS_LANE_F(b & high)), acc));
  return dot_flush(fma(dot_flush(AS_LANE_F(a << 16)), dot_flush(AS_LANE_F(b << 16)), acc));
}
#define DOT_BF16_ADD(acc, a_pair, b_pairs) acc = dot_product(acc, a_pair, b_pairs);
#endif

#define LANE_WORD lane_i
#define MULTIPLY_ADD(acc, broadcast, column) DOT_BF16_ADD(acc, broadcast, column)
// Pairs of A in place may lie at any even address.
#define A_BROADCAST(m, u) (lane_i)(as_int(vload2(0, a + (m)*row_step + ELEMENTS((u)*A_K_STEP))))
// The last word of a row in place whose other half is no longer of this row.
#define A_BROADCAST_HALF(m, u) (lane_i)((int)a[(m)*row_step])
// Words of a tile that are whole.
#define A_WHOLE(tile) (tile.depth - A_HALF(tile))

#endif
