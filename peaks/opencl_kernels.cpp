// SPDX-License-Identifier: Apache-2.0
#include "peaks/opencl_kernels.hpp"

namespace tessera::peaks {

const char* const kernel_source = R"(
#define GLUE_(a, b) a##b
#define GLUE(a, b) GLUE_(a, b)
#if WIDTH == 1
#define REAL float
#define AS_REAL as_float
#define AS_INT as_int
#else
#define REAL GLUE(float, WIDTH)
#define AS_REAL GLUE(as_float, WIDTH)
#define AS_INT GLUE(as_int, WIDTH)
#endif

#define EACH(do_)                                     \
  do_(s0) do_(s1) do_(s2) do_(s3) do_(s4) do_(s5)     \
  do_(s6) do_(s7) do_(s8) do_(s9) do_(s10) do_(s11)
#define CHAINS                                                                                     \
  const REAL start = (REAL)(-0.5f - 1e-6f * (float)get_global_id(0));                              \
  REAL s0 = start, s1 = s0 - 0.01f, s2 = s1 - 0.01f, s3 = s2 - 0.01f, s4 = s3 - 0.01f,             \
       s5 = s4 - 0.01f, s6 = s5 - 0.01f, s7 = s6 - 0.01f, s8 = s7 - 0.01f, s9 = s8 - 0.01f,        \
       s10 = s9 - 0.01f, s11 = s10 - 0.01f;
// out keeps the compiler from dropping the work.
#define FINISH                                                                                     \
  out[get_global_id(0)] =                                                                          \
      ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)) + ((s8 + s9) + (s10 + s11));

kernel void fma_peak(global REAL* out, int rounds, float a, float b) {
  const REAL va = (REAL)(a), vb = (REAL)(b);
  CHAINS
  for (int i = 0; i < rounds; ++i) {
#define STEP(s) s = fma(s, va, vb);
    EACH(STEP) EACH(STEP)
#undef STEP
  }
  FINISH
}

// The chain s = -2^s stays between -1 and -1/2.
kernel void exp_builtin_peak(global REAL* out, int rounds, float a, float b) {
  CHAINS
  for (int i = 0; i < rounds; ++i) {
#define STEP(s) s = -exp2(s);
    EACH(STEP) EACH(STEP)
#undef STEP
  }
  FINISH
}

// Round to the nearest integer by adding 1.5 * 2^23, a minimax polynomial of degree 6 on
// [-1/2, 1/2] (relative error 8e-8), and the integer added to the exponent.
kernel void exp_polynomial_peak(global REAL* out, int rounds, float a, float b) {
  CHAINS
  for (int i = 0; i < rounds; ++i) {
#define STEP(s)                                                                                    \
  {                                                                                                \
    const REAL t = s + 12582912.0f;                                                                \
    const REAL f = s - (t - 12582912.0f);                                                          \
    REAL p = fma(f, (REAL)(0.000153458124f), (REAL)(0.00133999309f));                              \
    p = fma(p, f, (REAL)(0.00961848907f));                                                         \
    p = fma(p, f, (REAL)(0.0555032864f));                                                          \
    p = fma(p, f, (REAL)(0.240226462f));                                                           \
    p = fma(p, f, (REAL)(0.693147182f));                                                           \
    p = fma(p, f, (REAL)(1.0f));                                                                   \
    s = -AS_REAL(AS_INT(p) + (AS_INT(t) << 23));                                                   \
  }
    EACH(STEP) EACH(STEP)
#undef STEP
  }
  FINISH
}

#ifdef CONTIGUOUS
#define FIRST ((ulong)get_global_id(0) * per_item)
#define NEXT 1
#else
#define FIRST ((ulong)get_global_id(0))
#define NEXT ((ulong)get_global_size(0))
#endif

// per_item, a multiple of 4: vectors that each work-item treats.
kernel void read_peak(global const REAL* in, global REAL* out, ulong per_item) {
  in += FIRST;
  REAL s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;
  for (ulong i = 0; i < per_item; i += 4, in += 4 * NEXT) {
    s0 += in[0];
    s1 += in[NEXT];
    s2 += in[2 * NEXT];
    s3 += in[3 * NEXT];
  }
  out[get_global_id(0)] = (s0 + s1) + (s2 + s3);
}

kernel void write_peak(global const REAL* in, global REAL* out, ulong per_item) {
  const REAL value = (REAL)((float)get_global_id(0));
  out += FIRST;
  for (ulong i = 0; i < per_item; i += 4, out += 4 * NEXT) {
    out[0] = value;
    out[NEXT] = value;
    out[2 * NEXT] = value;
    out[3 * NEXT] = value;
  }
}

kernel void copy_peak(global const REAL* in, global REAL* out, ulong per_item) {
  in += FIRST;
  out += FIRST;
  for (ulong i = 0; i < per_item; i += 4, in += 4 * NEXT, out += 4 * NEXT) {
    const REAL a = in[0], b = in[NEXT], c = in[2 * NEXT], d = in[3 * NEXT];
    out[0] = a;
    out[NEXT] = b;
    out[2 * NEXT] = c;
    out[3 * NEXT] = d;
  }
}

// The factor keeps values from growing or becoming denormal over any number of updates.
#define UPDATE(at) out[at] = fma(out[at], (REAL)(0.5f), (REAL)(1e-3f));
kernel void read_modify_write_peak(global const REAL* in, global REAL* out, ulong per_item) {
  out += FIRST;
  for (ulong i = 0; i < per_item; i += 4, out += 4 * NEXT) {
    UPDATE(0) UPDATE(NEXT) UPDATE(2 * NEXT) UPDATE(3 * NEXT)
  }
}

// Only clang has a name for such stores. Without one the program has no such kernel: a build that
// fails is reported on stderr by some drivers.
#if defined(NONTEMPORAL) && defined(__has_builtin)
#if __has_builtin(__builtin_nontemporal_store)
kernel void write_nontemporal_peak(global const REAL* in, global REAL* out, ulong per_item) {
  const REAL value = (REAL)((float)get_global_id(0));
  out += FIRST;
  for (ulong i = 0; i < per_item; i += 4, out += 4 * NEXT) {
    __builtin_nontemporal_store(value, out);
    __builtin_nontemporal_store(value, out + NEXT);
    __builtin_nontemporal_store(value, out + 2 * NEXT);
    __builtin_nontemporal_store(value, out + 3 * NEXT);
  }
}
#endif
#endif
)";

const char* const vdpbf16ps_source = R"(
// A compiler for less fails in its back end, which may end the process, and a build that fails is
// reported on stderr by some drivers: without the instruction the program has no kernel.
#ifdef __AVX512F__
// OpenCL C has no word `asm`.
#define STEP(s) __asm__("vdpbf16ps %2, %1, %0" : "+v"(s) : "v"(x), "v"(y));
#define EACH                                                    \
  STEP(s0) STEP(s1) STEP(s2) STEP(s3) STEP(s4) STEP(s5)         \
  STEP(s6) STEP(s7) STEP(s8) STEP(s9) STEP(s10) STEP(s11)
kernel void dot_bf16_peak(global float16* out, int rounds, float a, float b) {
  // The upper half of a float is a bf16; both halves of each word hold the same one.
  const uint ua = as_uint(a), ub = as_uint(b);
  const int16 x = (int16)((int)((ua & 0xffff0000u) | (ua >> 16)));
  const int16 y = (int16)((int)((ub & 0xffff0000u) | (ub >> 16)));
  // Different chains: equal ones would be merged by the compiler.
  float16 s0 = (float16)((float)get_global_id(0)), s1 = s0 + 1.0f, s2 = s1 + 1.0f, s3 = s2 + 1.0f,
          s4 = s3 + 1.0f, s5 = s4 + 1.0f, s6 = s5 + 1.0f, s7 = s6 + 1.0f, s8 = s7 + 1.0f,
          s9 = s8 + 1.0f, s10 = s9 + 1.0f, s11 = s10 + 1.0f;
  for (int i = 0; i < rounds; ++i) {
    EACH EACH
  }
  out[get_global_id(0)] =
      ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)) + ((s8 + s9) + (s10 + s11));
}
#endif
)";

const char* const mma_source = R"(
// A warp of 32 multiplies 16 x 16 and 16 x 8 elements with one instruction.
#define STEP(s)                                                                                   \
  __asm__ volatile(                                                                               \
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, "        \
      "{%5,%5}, {%0,%1,%2,%3};"                                                                   \
      : "+f"(s.x), "+f"(s.y), "+f"(s.z), "+f"(s.w) : "r"(x), "r"(y));
#define EACH                                                    \
  STEP(s0) STEP(s1) STEP(s2) STEP(s3) STEP(s4) STEP(s5)         \
  STEP(s6) STEP(s7) STEP(s8) STEP(s9) STEP(s10) STEP(s11)
kernel void dot_bf16_peak(global float4* out, int rounds, float a, float b) {
  const uint ua = as_uint(a), ub = as_uint(b);
  const uint x = (ua & 0xffff0000u) | (ua >> 16), y = (ub & 0xffff0000u) | (ub >> 16);
  float4 s0 = (float4)((float)get_global_id(0)), s1 = s0 + 1.0f, s2 = s1 + 1.0f, s3 = s2 + 1.0f,
         s4 = s3 + 1.0f, s5 = s4 + 1.0f, s6 = s5 + 1.0f, s7 = s6 + 1.0f, s8 = s7 + 1.0f,
         s9 = s8 + 1.0f, s10 = s9 + 1.0f, s11 = s10 + 1.0f;
  for (int i = 0; i < rounds; ++i) {
    EACH EACH
  }
  out[get_global_id(0)] =
      ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)) + ((s8 + s9) + (s10 + s11));
}
)";

}  // namespace tessera::peaks
