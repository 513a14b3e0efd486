// SPDX-License-Identifier: Apache-2.0
// The operand format that engines share: panels of TILE_N columns side by side, [panel][k][TILE_N]
// of words of 32 bits. An engine that packs several elements of k into a word says how, before it
// includes this file:
//
//   WORD_ELEMENTS                  of k in a word
//   WORD_VECTOR(p)                 LANES words of elements that lie side by side from p on
//   WORD_AT(p, k, k_count, stride) the word of the elements from k on of the row at p
#ifndef TESSERA_PANELS_CL
#define TESSERA_PANELS_CL

#ifndef WORD_ELEMENTS
#define WORD_ELEMENTS 1
#define WORD_VECTOR(p) LANE_LOAD_TYPE(PACK_TYPE, p)
#define WORD_AT(p, k, k_count, stride) LOAD(PACK_TYPE, p, (k) * (stride))
#endif

static inline long panel_index(long extent, long panel, long k, int column) {
  return (panel * extent + k) * TILE_N + column;
}
static inline long sums_index(long extent, long panel, long m) {
  return panel_index(extent, panel, m, 0);
}

// An epilogue stores a row of f32 for each k; or pairs, of an even k in the low halves of a
// row of words and of the odd one after it in the high halves. Such rows are STORED_PAIRS rows
// apart: 2 where they take the place of f32 that somebody still reads.
#ifndef STORED_PAIRS
#define STORED_PAIRS 0
#endif
#if STORED_PAIRS
#define STORED_ROW(k) ((k) / 2 * STORED_PAIRS)
#if PAIR_TYPE == TYPE_F16
#define OPERAND_ROUNDING 0x1p-11f  // half a unit of the last of 11 bits
#define OPERAND_STEP 0x1p-25f      // and of the subnormal numbers' last
#else
#define OPERAND_ROUNDING 0x1p-8f  // half a unit of the last of 8 bits
#define OPERAND_STEP 0.0f
#endif
#else
#define STORED_ROW(k) (k)
#define OPERAND_ROUNDING 0.0f
#define OPERAND_STEP 0.0f
#endif
#ifndef OPERAND_BLOCK
#define OPERAND_BLOCK 1
static inline long operand_index(long extent, long panel, long k, int column) {
  return panel_index(extent, panel, STORED_ROW(k), column);
}
#endif
static inline float operand_element(global const operand_word* at, long k) {
#if STORED_PAIRS
  return pair_to_float(((global const ushort*)at)[k & 1]);
#else
  return *(global const float*)at;
#endif
}
#if LANES == 1
static inline float operand_load(global const operand_word* at, long k) {
  return operand_element(at, k);
}
// By halves, since the other one may be another work-item's.
static inline void operand_store(float value, global operand_word* at, long k) {
#if STORED_PAIRS
  ((global ushort*)at)[k & 1] = float_to_pair(value);
#else
  *(global float*)at = value;
#endif
}
#else
static inline lane_f operand_load(global const operand_word* at, long k) {
  const lane_f words = LANE_LOAD((global const float*)at);
#if STORED_PAIRS
  const lane_i bits = AS_LANE_I(words);
  return AS_LANE_F(k & 1 ? bits & (lane_i)((int)0xffff0000) : bits << 16);
#else
  return words;
#endif
}
static inline void operand_store(lane_f value, global operand_word* at, long k) {
  global float* to = (global float*)at;
#if STORED_PAIRS
  // Until the odd one comes its half is 0, as where there is none.
  const lane_i bits = LANE_CAT(convert_int)(lane_to_bf16(value));
  LANE_STORE(AS_LANE_F(k & 1 ? AS_LANE_I(LANE_LOAD(to)) | bits << 16 : bits), to);
#else
  LANE_STORE(value, to);
#endif
}
#endif

#if OPERAND_BLOCK == 1
typedef struct {
  global operand_word* base;
  long extent;
} operand_sink;
#define OPERAND_SINK(sink, to, extent) const operand_sink sink = {to, extent}
ALWAYS_INLINE long operand_block_end(long k, long end) { return end; }
ALWAYS_INLINE void operand_put(const operand_sink* sink, lane_f value, long panel, long k,
                               int column) {
  operand_store(value, sink->base + operand_index(sink->extent, panel, k, column), k);
}
ALWAYS_INLINE void operand_put_done(const operand_sink* sink, long panel, long k0, long k1) {}
#endif

#ifdef PACK_TYPE
#ifndef OPERAND_PACKS_ROWS
#if PANEL_ITEMS > 1
// Neighbouring work-items read neighbouring words of a row and write those of neighbouring columns:
// in between words lie in local memory.
static inline void operand_pack_rows(global operand_word* out, long k_count, long panel, int column,
                                     local pack_memory* memory,
                                     global const ELEMENT(PACK_TYPE) * from, long k_stride, long k0,
                                     long k1) {
  const long words = (k_count + WORD_ELEMENTS - 1) / WORD_ELEMENTS;
  const long last = (k1 + WORD_ELEMENTS - 1) / WORD_ELEMENTS;
  global float* to = (global float*)out + panel_index(words, panel, 0, column);
  // Other work-items have written where rows begin.
  barrier(CLK_LOCAL_MEM_FENCE);
  for (long word = k0 / WORD_ELEMENTS; word < last; word += PACK_WORDS) {
    for (int i = PACK_ITEM; i < PACK_COLUMNS * PACK_WORDS; i += PACK_ITEMS) {
      const int n = i / PACK_WORDS;
      const int each = i % PACK_WORDS;
      const long start = memory->start[n];
      if (word + each >= last || start == ROW_ELSEWHERE) continue;
      memory->words[n][each] =
          start == ROW_PADDING
              ? 0.0f
              : WORD_AT(from + start, (word + each) * WORD_ELEMENTS, k_count, k_stride);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = PACK_ITEM; i < PACK_COLUMNS * PACK_WORDS; i += PACK_ITEMS) {
      const int n = i % PACK_COLUMNS;
      const int each = i / PACK_COLUMNS;
      if (word + each >= last || memory->start[n] == ROW_ELSEWHERE) continue;
      to[(word + each) * TILE_N + n] = memory->words[n][each];
    }
    // All have read before anybody writes there again.
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}
#else
static inline void operand_pack_rows(global operand_word* out, long k_count, long panel, int column,
                                     const pack_memory* memory,
                                     global const ELEMENT(PACK_TYPE) * from, long k_stride, long k0,
                                     long k1) {
  const long* start = memory->start;
  const long words = (k_count + WORD_ELEMENTS - 1) / WORD_ELEMENTS;
  global float* to = (global float*)out + panel_index(words, panel, 0, column);
  long k = k0;
#if LANES > 1 && PACK_CONTIGUOUS
  int whole = 0;
  for (int n = 0; n < LANES; ++n) whole += start[n] >= 0;
  // Blocks of LANES x LANES words, turned over in registers.
  for (; whole == LANES && k + LANES * WORD_ELEMENTS <= k1; k += LANES * WORD_ELEMENTS) {
    lane_f block[LANES];
#pragma unroll
    for (int n = 0; n < LANES; ++n) block[n] = WORD_VECTOR(from + start[n] + k);
    lane_transpose(block);
#pragma unroll
    for (int i = 0; i < LANES; ++i) LANE_STORE(block[i], to + (k / WORD_ELEMENTS + i) * TILE_N);
  }
#endif
  for (int n = 0; n < LANES; ++n) {
    if (start[n] == ROW_ELSEWHERE) continue;
    for (long each = k; each < k1; each += WORD_ELEMENTS) {
      to[each / WORD_ELEMENTS * TILE_N + n] =
          start[n] == ROW_PADDING ? 0.0f : WORD_AT(from + start[n], each, k_count, k_stride);
    }
  }
}
#endif
#endif

#ifndef OPERAND_PACKS_COLUMNS
static inline void operand_pack_columns(global operand_word* out, long row_count, long row,
                                        const long* starts, global const ELEMENT(PACK_TYPE) * from,
                                        long k_stride, long k_count, long panel0, long panel1) {
  const long start = starts[0];
  if (start == ROW_ELSEWHERE) return;
  for (long panel = panel0; panel < panel1; ++panel) {
    const long k0 = panel * TILE_N;
    global float* to = (global float*)out + panel_index(row_count, panel, row, 0);
    const int valid = start < 0 ? 0 : k_count - k0 < TILE_N ? (int)(k_count - k0) : TILE_N;
    int n = 0;
#if LANES > 1 && PACK_CONTIGUOUS
    for (; n + LANES <= valid; n += LANES) {
      LANE_STORE(LANE_LOAD_TYPE(PACK_TYPE, from + start + k0 + n), to + n);
    }
#endif
    // One loop: of two with bounds per work-item, Intel's vectoriser loads for rows that have none.
    for (n += PACK_ITEM; n < TILE_N; n += PACK_ITEMS) {
      to[n] = n < valid ? LOAD(PACK_TYPE, from, start + (k0 + n) * k_stride) : 0.0f;
    }
  }
}
#endif
#endif

#endif
