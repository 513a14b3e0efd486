// SPDX-License-Identifier: Apache-2.0
// A lane group: LANES tokens side by side that one work-item treats with one instruction. LANES is
// 1 (an ordinary GPU work-item), 4, 8 or 16 (explicit vectors on a CPU). Code over lane_f compiles
// for every width, because scalar and vector OpenCL C share operators and the ternary operator.
#ifndef TESSERA_LANES_CL
#define TESSERA_LANES_CL

#include "common/types.cl"

#if LANES == 1
typedef float lane_f;
typedef int lane_i;
#define LANE_LOAD(p) (*(p))
#define LANE_STORE(v, p) (*(p) = (v))
#define LANE_LOAD_BF16(p) bf16_to_float(*(p))
#define LANE_LOAD_F16(p) vload_half(0, (p))
#define AS_LANE_I(v) as_int(v)
#define AS_LANE_F(v) as_float(v)
#else
#define LANE_CAT(a) TESSERA_CAT(a, LANES)
typedef LANE_CAT(float) lane_f;
typedef LANE_CAT(int) lane_i;
#define LANE_LOAD(p) LANE_CAT(vload)(0, (p))
#define LANE_STORE(v, p) LANE_CAT(vstore)((v), 0, (p))
#define LANE_LOAD_BF16(p) LANE_CAT(as_float)(LANE_CAT(convert_uint)(LANE_CAT(vload)(0, (p))) << 16)
#define LANE_LOAD_F16(p) LANE_CAT(vload_half)(0, (p))
#define AS_LANE_I(v) LANE_CAT(as_int)(v)
#define AS_LANE_F(v) LANE_CAT(as_float)(v)
#endif
#define LANE_LOAD_0(p) LANE_LOAD(p)
#define LANE_LOAD_1(p) LANE_LOAD_BF16(p)
#define LANE_LOAD_2(p) LANE_LOAD_F16(p)
#define LANE_LOAD_TYPE(type, p) TESSERA_CAT(LANE_LOAD_, type)(p)

// Vectors at any address: PoCL's vstore writes 16-bit elements one by one.
#if LANES > 1
typedef struct __attribute__((packed)) {
  LANE_CAT(ushort) value;
} lane_ushort_anywhere;
typedef struct __attribute__((packed)) {
  lane_i value;
} lane_i_anywhere;
#endif

// Pairs of 16-bit elements, the first in the low half: LANES neighbours of one row, or the elements
// of one row beside those of another, if there is one.
#if LANES > 1
#define LANE_STORE_PAIRS(v, p) (((global lane_i_anywhere*)(p))->value = (v))
#if LANES == 16
#define LANE_LOAD_PAIRS(p) (int16)(as_int8(vload16(0, (p))), as_int8(vload16(1, (p))))
#elif LANES == 8
#define LANE_LOAD_PAIRS(p) as_int8(vload16(0, (p)))
#else
#define LANE_LOAD_PAIRS(p) as_int4(vload8(0, (p)))
#endif
static inline lane_i lane_join_pairs(global const ushort* low, global const ushort* high,
                                     int has_high) {
  const lane_i pairs = LANE_CAT(convert_int)(LANE_LOAD(low));
  return has_high ? pairs | LANE_CAT(convert_int)(LANE_LOAD(high)) << 16 : pairs;
}
#else
#define LANE_LOAD_PAIRS(p) as_int(vload2(0, (p)))
#define LANE_STORE_PAIRS(v, p) vstore2(as_ushort2(v), 0, p)
#endif

// STORE_<TYPE> of common/types.cl, lane by lane.
#if LANES > 1
#define LANE_STORE_0(v, p) LANE_STORE(v, p)
#define LANE_STORE_1(v, p) (((global lane_ushort_anywhere*)(p))->value = lane_to_bf16(v))
#define LANE_STORE_2(v, p) TESSERA_CAT(LANE_CAT(vstore_half), _rte)((v), 0, (p))
#define LANE_STORE_TYPE(type, v, p) TESSERA_CAT(LANE_STORE_, type)(v, p)
// Zeros. PoCL 3.1 has vstore_half of a constant write to addresses of whole vectors alone.
#define LANE_CLEAR_0(p) LANE_STORE((lane_f)(0.0f), p)
#define LANE_CLEAR_1(p) (((global lane_ushort_anywhere*)(p))->value = (LANE_CAT(ushort))(0))
#define LANE_CLEAR_2(p) LANE_CLEAR_1((global ushort*)(p))
#define LANE_CLEAR_TYPE(type, p) TESSERA_CAT(LANE_CLEAR_, type)(p)
static inline LANE_CAT(ushort) lane_to_bf16(lane_f value) {
  const LANE_CAT(uint) u = LANE_CAT(as_uint)(value);
  const LANE_CAT(uint) rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const LANE_CAT(uint) quiet = (u >> 16) | 0x40u;
  return LANE_CAT(convert_ushort)((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}
// At addresses of whole vectors, which a GPU reads and writes by one instruction.
#define LANE_LOAD_WHOLE_0(p) (*(global const lane_f*)(p))
#define LANE_LOAD_WHOLE_1(p) \
  LANE_CAT(as_float)(LANE_CAT(convert_uint)(*(global const LANE_CAT(ushort)*)(p)) << 16)
#define LANE_LOAD_WHOLE_2(p) LANE_CAT(vloada_half)(0, (p))
#define LANE_LOAD_WHOLE(type, p) TESSERA_CAT(LANE_LOAD_WHOLE_, type)(p)
#define LANE_STORE_WHOLE_0(v, p) (*(global lane_f*)(p) = (v))
#define LANE_STORE_WHOLE_1(v, p) (*(global LANE_CAT(ushort)*)(p) = lane_to_bf16(v))
#define LANE_STORE_WHOLE_2(v, p) TESSERA_CAT(LANE_CAT(vstorea_half), _rte)((v), 0, (p))
#define LANE_STORE_WHOLE(type, v, p) TESSERA_CAT(LANE_STORE_WHOLE_, type)(v, p)
#else
#define LANE_STORE_TYPE(type, v, p) STORE(type, p, 0, v)
#endif

// Stores that pass the caches by, to addresses of whole vectors: a line that is written whole is
// then not read first. The builtin is clang's. Two vectors of 16 bits go as one: what is cut down
// to 16 bits as it is stored, LLVM stores by an instruction that knows no such hint. No fence: the
// locked instruction by which a driver's thread says that it is done empties the write buffers too.
#ifdef __has_builtin
#if LANES > 1 && __has_builtin(__builtin_nontemporal_store)
#define LANES_STREAM 1
static inline lane_i lane_join(LANE_CAT(ushort) low, LANE_CAT(ushort) high) {
#if LANES == 16
  return (int16)(as_int8(low), as_int8(high));
#elif LANES == 8
  return (int8)(as_int4(low), as_int4(high));
#else
  return (int4)(as_int2(low), as_int2(high));
#endif
}
static inline void lane_stream(lane_f value, global float* to) {
  __builtin_nontemporal_store(value, (global lane_f*)to);
}
static inline void lane_stream_bf16(lane_f low, lane_f high, global ushort* to) {
  __builtin_nontemporal_store(lane_join(lane_to_bf16(low), lane_to_bf16(high)), (global lane_i*)to);
}
#endif
#endif

// Turns LANES x LANES elements over: each round interleaves row i with row i + LANES / 2, and
// log2(LANES) rounds make rows of columns.
#if LANES > 1
#if LANES == 4
#define LANE_INTERLEAVE_LO(a, b) (lane_f)((a).s0, (b).s0, (a).s1, (b).s1)
#define LANE_INTERLEAVE_HI(a, b) (lane_f)((a).s2, (b).s2, (a).s3, (b).s3)
#else
#define INTERLEAVE_4(a, b) (a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3
#if LANES == 8
#define LANE_INTERLEAVE_LO(a, b) (lane_f)(INTERLEAVE_4((a).lo, (b).lo))
#define LANE_INTERLEAVE_HI(a, b) (lane_f)(INTERLEAVE_4((a).hi, (b).hi))
#else
#define LANE_INTERLEAVE_LO(a, b) \
  (lane_f)(INTERLEAVE_4((a).lo.lo, (b).lo.lo), INTERLEAVE_4((a).lo.hi, (b).lo.hi))
#define LANE_INTERLEAVE_HI(a, b) \
  (lane_f)(INTERLEAVE_4((a).hi.lo, (b).hi.lo), INTERLEAVE_4((a).hi.hi, (b).hi.hi))
#endif
#endif
static inline void lane_transpose(lane_f* rows) {
#pragma unroll
  for (int round = 1; round < LANES; round *= 2) {
    lane_f next[LANES];
#pragma unroll
    for (int i = 0; i < LANES / 2; ++i) {
      next[2 * i] = LANE_INTERLEAVE_LO(rows[i], rows[i + LANES / 2]);
      next[2 * i + 1] = LANE_INTERLEAVE_HI(rows[i], rows[i + LANES / 2]);
    }
#pragma unroll
    for (int i = 0; i < LANES; ++i) rows[i] = next[i];
  }
}
#endif

// Requests ahead, of explicit vectors only. The builtin is clang's, whose address spaces are one on
// a CPU; unoptimised builds are for interpreters that do not know it.
#if LANES > 1 && defined(__clang__) && defined(__OPTIMIZE__)
#define PREFETCH(address) __builtin_prefetch((const void*)(size_t)(address), 0, 2)
#define PREFETCH_NEAR(address) __builtin_prefetch((const void*)(size_t)(address), 0, 3)
#define PREFETCH_TO_WRITE(address) __builtin_prefetch((const void*)(size_t)(address), 1, 2)
#else
#define PREFETCH(address) (void)0
#define PREFETCH_NEAR(address) (void)0
#define PREFETCH_TO_WRITE(address) (void)0
#endif

// The larger one; b where a is NaN, and b is none.
static inline lane_f lane_larger(lane_f a, lane_f b) {
#if EX2
  return fmax(a, b);  // one instruction, and a 0 of either sign
#else
  return a > b ? a : b;
#endif
}

// Elements of the whole vectors that hold so many.
#define WHOLE_VECTORS(elements) (((elements) + LANES - 1) / LANES * LANES)

#define LOG2E 1.44269504088896340736f

// 2^f for |f| <= 1/2, relative error below 1e-7: minimax polynomial of degree 6, Horner with fma.
static inline lane_f lane_exp2_fraction(lane_f f) {
  lane_f p = (lane_f)(0.000153458124f);
  p = fma(p, f, (lane_f)(0.00133999309f));
  p = fma(p, f, (lane_f)(0.00961848907f));
  p = fma(p, f, (lane_f)(0.0555032864f));
  p = fma(p, f, (lane_f)(0.240226462f));
  p = fma(p, f, (lane_f)(0.693147182f));
  return fma(p, f, (lane_f)(1.0f));
}

// 2^t in f32. Exactly 1 for 0, exactly 0 below 2^-126 and for -Inf; +Inf from 128 on; NaN for NaN.
#if EX2
// By NVIDIA's instruction: relative error at most 2^-22.
static inline float lane_exp2(float t) {
  float result;
  __asm__("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(t));
  return result;
}
#else
// Relative error below 1e-7. Comparisons with NaN are false, and it passes through the polynomial.
// Adding and subtracting 1.5 * 2^23 rounds to the nearest integer and leaves that integer in the
// low bits: relaxed-math build flags would fold this away, so programs are never built with them.
static inline lane_f lane_exp2(lane_f t) {
  const lane_f magic = (lane_f)(12582912.0f);
  t = t < (lane_f)(-127.0f) ? (lane_f)(-127.0f) : t;
  t = t > (lane_f)(128.0f) ? (lane_f)(128.0f) : t;
  const lane_f shifted = t + magic;
  const lane_f f = t - (shifted - magic);
  // The biased exponent of 2^n; n = -127 gives the bits of +0, n = 128 those of +Inf.
  const lane_i exponent = (AS_LANE_I(shifted) - (lane_i)(0x4b400000) + (lane_i)(127)) << 23;
  return lane_exp2_fraction(f) * AS_LANE_F(exponent);
}
#endif

// exp(t). The product with log2(e) is one rounding of t itself: callers pass differences, so that
// t = 0 gives exactly 1 and a running maximum that stands still is never rescaled.
static inline lane_f lane_exp(lane_f t) { return lane_exp2(t * (lane_f)(LOG2E)); }

// A logit's difference d to the maximum that another pass found. Where that pass added products up
// in another order, the maximum may lie below the logit by their rounding, which exp would blow up.
// NaN compares false and stays.
static inline lane_f lane_at_most_0(lane_f d) { return d > (lane_f)(0.0f) ? (lane_f)(0.0f) : d; }

// exp(d) = scale * factor for d from -87 to 88, the factor close to 1; NaN stays NaN in the factor,
// and d = 0 gives exactly 1. Beyond those bounds the result is meaningless. Two parts, because a
// sum takes the product for nothing (fma). Fewer dependent instructions than lane_exp: a
// processor's window of pending vector registers, not its arithmetic, bounds loops of exponentials.
#ifdef __has_builtin
#if LANES == 8 && defined(__AVX2__) && __has_builtin(__builtin_ia32_permvarsf256)
#define LANE_EXP_TABLE 1
#endif
#endif
static inline void lane_exp_parts(lane_f d, lane_f* scale, lane_f* factor) {
#ifdef LANE_EXP_TABLE
  // 2^(n/8) from a register and 2^f, |f| <= 1/16, from a minimax polynomial of degree 3 (2.5e-8).
  // The magic number leaves n in the low bits; moved to bit 20 its upper part adds to the exponent,
  // and the table has what its lower three bits add there taken off.
  const lane_f magic = (lane_f)(1572864.0f);
  const lane_f table = as_float8((uint8)(0x3f800000u, 0x3f7b95c2u, 0x3f7837f0u, 0x3f75fed7u,
                                         0x3f7504f3u, 0x3f75672au, 0x3f7744fdu, 0x3f7ac0c7u));
  const lane_f shifted = fma(d, (lane_f)(LOG2E), magic);
  const lane_f f = fma(d, (lane_f)(LOG2E), magic - shifted);
  lane_f p = fma((lane_f)(0.0554962233f), f, (lane_f)(0.240257636f));
  p = fma(p, f, (lane_f)(0.693147242f));
  *factor = fma(p, f, (lane_f)(1.0f));
  *scale = AS_LANE_F(AS_LANE_I(__builtin_ia32_permvarsf256(table, AS_LANE_I(shifted))) +
                     (AS_LANE_I(shifted) << 20));
#else
  const lane_f magic = (lane_f)(12582912.0f);
  const lane_f shifted = fma(d, (lane_f)(LOG2E), magic);
  const lane_f f = fma(d, (lane_f)(LOG2E), magic - shifted);
  *factor = lane_exp2_fraction(f);
  *scale = AS_LANE_F((AS_LANE_I(shifted) << 23) + (lane_i)(0x3f800000));
#endif
}

#endif
