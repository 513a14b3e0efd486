// SPDX-License-Identifier: Apache-2.0
// Element types. A kernel is specialised by -DX_TYPE=..., and loads
// everything as f32; 16-bit floats travel as integers (bf16) or
// through vload_half/vstore_half (f16), so no extension is needed.
#ifndef TESSERA_TYPES_CL
#define TESSERA_TYPES_CL

#define TYPE_F32 0
#define TYPE_BF16 1
#define TYPE_F16 2
#define TYPE_I32 3
#define TYPE_I64 4

// PoCL 3.1 gives a function that it does not inline one copy of a kernel's local arrays for all
// threads, and private structs become registers only where every function that has their address is
// inlined.
#define ALWAYS_INLINE static inline __attribute__((always_inline))

// Index along the second axis of a launch. Some devices take 65535 groups there and along the third
// at most: more lie along both (host/opencl/specialise.hpp), and a few at the end have no work.
#define SECOND_INDEX ((long)(get_group_id(2) * get_num_groups(1) + get_group_id(1)))

static inline float bf16_to_float(ushort bits) { return as_float((uint)bits << 16); }

// Round to nearest even; adding 0x7fff plus the lowest kept bit carries exactly when rounding goes
// up. A NaN keeps its sign and becomes quiet, since the carry could turn it into an infinity.
static inline ushort float_to_bf16(float value) {
  const uint u = as_uint(value);
  return (u & 0x7fffffffu) > 0x7f800000u ? (ushort)((u >> 16) | 0x40u)
                                         : (ushort)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

// LOAD_<TYPE>(pointer, index) and STORE_<TYPE>(pointer, index, value) over `global uchar*`-free,
// typed pointers: ELEMENT_<TYPE> is the pointee.
#define ELEMENT_0 float
#define ELEMENT_1 ushort
#define ELEMENT_2 half
#define ELEMENT_3 int
#define ELEMENT_4 long
#define ELEMENT_BYTES_0 4
#define ELEMENT_BYTES_1 2
#define ELEMENT_BYTES_2 2
#define LOAD_0(p, i) ((p)[i])
#define LOAD_1(p, i) bf16_to_float((p)[i])
#define LOAD_2(p, i) vload_half((i), (p))
#define LOAD_3(p, i) ((p)[i])
#define LOAD_4(p, i) ((p)[i])
#define STORE_0(p, i, v) ((p)[i] = (v))
#define STORE_1(p, i, v) ((p)[i] = float_to_bf16(v))
#define STORE_2(p, i, v) vstore_half_rte((v), (i), (p))

#define TESSERA_CAT_(a, b) a##b
#define TESSERA_CAT(a, b) TESSERA_CAT_(a, b)
#define ELEMENT(type) TESSERA_CAT(ELEMENT_, type)
#define ELEMENT_BYTES(type) TESSERA_CAT(ELEMENT_BYTES_, type)
#define LOAD(type, p, i) TESSERA_CAT(LOAD_, type)(p, i)
#define STORE(type, p, i, v) TESSERA_CAT(STORE_, type)(p, i, v)

#endif
