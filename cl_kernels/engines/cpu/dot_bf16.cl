// SPDX-License-Identifier: Apache-2.0
// Products of two bf16 operands by pairs: an element of A and of B is a word of two bf16, of the
// even k in its low half and of the odd k in its high half, and one step adds both products to an
// f32. Where the depth is odd, the last word's high half is 0 in both operands. operand_a.cl gives
// words then, B is packed in words, `depth` and `k` count words; only a row in place stays in
// elements.
//
// PRODUCT_DOT_BF16: 1 is the processor's instruction (the host has checked
// that it is there, and that it computes a tile), 2 is its arithmetic
// in OpenCL C, so that everything else is tested on any device.

typedef int product_word;
typedef ushort product_source;
typedef lane_i product_lanes;

// The assembler takes the instruction for any target, and a target without AVX-512 fails where no
// error is reported: in the back end. There the portable code stands in, and the probe tells the
// host; #error would do, but some drivers report a failed build on stderr.
#if PRODUCT_DOT_BF16 == 1
#if defined(__AVX512F__) && LANES == 16
#define PRODUCT_AS_ASKED 1
#else
#undef PRODUCT_DOT_BF16
#define PRODUCT_DOT_BF16 2
#define PRODUCT_AS_ASKED 0
#endif
#endif

#if PRODUCT_DOT_BF16 == 1
ALWAYS_INLINE lane_f product_add(lane_f acc, lane_i a, lane_i b) {
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(b), "v"(a));
  return acc;
}
#else
// Denormals become zeros of their sign, as operands and as
// sums; otherwise f32, rounded to nearest even.
static inline lane_f product_flush(lane_f value) {
  const lane_i bits = AS_LANE_I(value);
  return AS_LANE_F((bits & 0x7f800000) == 0 ? bits & (int)0x80000000 : bits);
}
static inline lane_f product_add(lane_f acc, lane_i a, lane_i b) {
  const lane_i high = (lane_i)((int)0xffff0000);
  acc = product_flush(
      fma(product_flush(AS_LANE_F(a & high)), product_flush(AS_LANE_F(b & high)), acc));
  return product_flush(
      fma(product_flush(AS_LANE_F(a << 16)), product_flush(AS_LANE_F(b << 16)), acc));
}
#endif

// Pairs of A in place may lie at any even address.
ALWAYS_INLINE lane_i product_broadcast(global const ushort* a) {
  return (lane_i)(as_int(vload2(0, a)));
}
// The last word of a row in place whose other half is no longer of this row.
ALWAYS_INLINE lane_i product_broadcast_half(global const ushort* a) { return (lane_i)((int)*a); }
