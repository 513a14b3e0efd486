// SPDX-License-Identifier: Apache-2.0
// Operands of products in the engine's own format: the part of the contract (engines/product.cl)
// for kernels that do not multiply. Their memory is of operand_word, in which only an engine sees
// numbers. engines/<engine>/operand.cl defines what follows and
//
//   operand_index(extent, panel, k, column)
//       the word that holds element (k, column) of an operand that an epilogue stores:
//       operand_store(value, at, k), LANES columns at a time. Where LANES is more than 1, two k
//       that share words come from one work-item, the even one first. Kernels read it by
//       operand_load(at, k), or one element by operand_element(at, k)
//   OPERAND_BLOCK
//       of k of a panel that lie together in such an operand: parts of k begin at multiples of it,
//       and the last block is 0 beyond the last k
//   OPERAND_SINK(sink, to, extent)
//       in a kernel's own scope: an operand at `to` that the kernel stores without a product, as an
//       operand_sink by the name given. The kernel goes over elements [begin, end) of a panel's k,
//       `begin` a multiple of OPERAND_BLOCK, by blocks from k0 to k1 = operand_block_end(k0, end).
//       The work-items that share the panel's columns (ITEM_COLUMNS) call together, for a block,
//       operand_put(sink, value, panel, k, column) for each k of it in ascending order, and then
//       operand_put_done(sink, panel, k0, k1). Where OPERAND_BLOCK is more than 1 nothing is stored
//       before all of them are done, so that it may take the place of what they read
//   OPERAND_ROUNDING, OPERAND_STEP
//       the relative error of what operand_store stores, at most, and the absolute one of what is
//       small; 0: it is exact
//   sums_index(extent, panel, m)
//       where row m of a panel of accumulated sums begins; its TILE_N columns follow each other
//   PANEL_ITEMS
//       work-items that share the columns of a panel, in kernels that go over an operand element by
//       element (Engine::panel_range)
//   engine_tile
//       a tile of C, in whose members only the engine's products see numbers
//
// A kernel that makes operand B of a matrix defines PACK_TYPE (TYPE_*) and PACK_CONTIGUOUS (1: k is
// contiguous in it), has the engine's options of that product under the name PACK
// (Engine::options(product, "PACK")), and calls
//
//   operand_pack_rows(out, k_count, panel, column, memory, from, k_stride, k0, k1)
//       elements [k0, k1) of PACK_COLUMNS rows of the matrix, as columns from `column` on of a
//       panel whose depth is k. `memory` is a pack_memory that the kernel declares in PACK_SPACE;
//       its start[i], which work-item i % PACK_ITEMS has written, is where row i begins in `from`,
//       ROW_PADDING: it is all 0, ROW_ELSEWHERE: another launch writes it. k0 is a multiple of
//       PACK_WORDS times PACK_STEP, k1 one or k_count. All PACK_ITEMS work-items of a group make
//       the call together. A group that writes PACK_BLOCK columns and so many elements of each does
//       not wait for memory
//   operand_pack_columns(out, row_count, row, start, from, k_stride, k_count, panel0, panel1)
//       the rows of the matrix that share a word, WORD_ELEMENTS of them from `row` on, as rows of
//       panels of its columns, whose depth is the rows; start[i] is where row + i begins. All
//       work-items of a group make the call together, PACK_ITEMS of them: they share the columns
#ifndef TESSERA_OPERAND_CL
#define TESSERA_OPERAND_CL

#include "common/lanes.cl"
#include "engines/arguments.h"

// Which index of a matrix [first][second] is contiguous; LAYOUT_* of host/engines/engine.hpp.
#define ALONG_SECOND 0
#define ALONG_FIRST 1
#define STRIDED 2

// The type of elements that lie in words by pairs: TYPE_BF16 or TYPE_F16.
#ifndef PAIR_TYPE
#define PAIR_TYPE TYPE_BF16
#endif
#if PAIR_TYPE == TYPE_F16
static inline float pair_to_float(ushort bits) { return vload_half(0, (const half*)&bits); }
static inline ushort float_to_pair(float value) {
  ushort bits;
  vstore_half_rte(value, 0, (half*)&bits);
  return bits;
}
#else
static inline float pair_to_float(ushort bits) { return bf16_to_float(bits); }
#if EX2  // which NVIDIA's GPUs have that convert to bf16
static inline ushort float_to_pair(float value) {
  uint pair;
  __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(value));
  return (ushort)pair;
}
#else
static inline ushort float_to_pair(float value) { return float_to_bf16(value); }
#endif
#endif

// A word of an operand, in which only its engine sees numbers.
typedef struct {
  uint bits;
} operand_word;

// Operand B of a product: panels of TILE_N columns, each of `extent` rows of words.
typedef struct {
  global const operand_word* base;
  long extent;
} matrix_b;

// Flags of an operand that an epilogue stored: [panel][tiles], each for so many elements of its k.
// `clears`: the first step of k of a tile is never left out, since it clears the sums.
typedef struct {
  global const int* flags;
  int tiles, clears;
} kept_tiles;

#define ROW_PADDING (-1)
#define ROW_ELSEWHERE (-2)

// The engine's PANEL_ITEMS is known where these are used.
#define PACK_ITEM (PANEL_ITEMS > 1 ? (int)get_local_id(0) : 0)
#define PACK_ITEMS (PANEL_ITEMS > 1 ? (int)get_local_size(0) : 1)

// Where one work-item has a panel's columns, it packs them LANES at a time, all of its panel. Else
// a group has PACK_EDGE columns and as many words of each, one of each in turn: 128 bytes of memory
// on both sides. One word more from a column to the next has neighbours in different banks.
#if LANES > 1
#define PACK_SPACE
#define PACK_COLUMNS LANES
#define PACK_BLOCK TILE_N
#define PACK_WORDS 1
typedef struct {
  long start[PACK_COLUMNS];
} pack_memory;
#else
#define PACK_SPACE local
#define PACK_COLUMNS (TILE_N < PACK_EDGE ? TILE_N : PACK_EDGE)
#define PACK_BLOCK PACK_COLUMNS
#define PACK_WORDS PACK_EDGE
typedef struct {
  long start[PACK_COLUMNS];
  float words[PACK_COLUMNS][PACK_WORDS + 1];
} pack_memory;
#endif

#include "engines/ENGINE/operand.cl"

// Columns of a panel that a work-item has in kernels that visit an operand, LANES side by side
// (Engine::panel_range). Their number is a constant, so that what is kept of each is in registers.
#define ITEM_COLUMNS (TILE_N / LANES / PANEL_ITEMS)
ALWAYS_INLINE int item_column(int n) { return ((int)get_global_id(0) + n * PANEL_ITEMS) * LANES; }

#endif
