// SPDX-License-Identifier: Apache-2.0
// How a device multiplies: the contract between engines and the kernels of operators. This comment
// is all of it. An engine is a folder cl_kernels/engines/<name> with engine.cl and operand.cl,
// which define every name below but those that this file does (marked *) and TILE_N and LANES,
// which come from the host, and one file host/engines/<name>.cpp; nothing else knows its name.
//
// A product is C[m][n] = sum over k of A[m][k] * B[k][n], and every product of an operator has one
// of three uses (PRODUCT):
//   PRODUCT_VISIT       an epilogue visits the elements of C, tile by tile
//   PRODUCT_ACCUMULATE  C is summed in f32 memory over several tiles of A
//   PRODUCT_STORE       C goes to a matrix of the caller's
// A kernel walks over tiles of A (engines/walk.cl), and each meets panels of TILE_N columns of B.
//
// What a kernel file defines before it includes this file
//   PRODUCT            one of the three
//   A_TYPE, A_LAYOUT   operand A is a matrix of the caller's, of this element type (TYPE_*), whose
//                      contiguous index is k (ALONG_SECOND), m (ALONG_FIRST) or neither (STRIDED)
//   A_OPERAND          1 instead: it is an operand that an epilogue stored, m along its k
//   B_STORED           1: operand B is one that an epilogue stored
//   OUT_TYPE, OUT_LAYOUT  of the matrix that ENGINE_STORE writes: contiguous along n
//                      (ALONG_SECOND), along m (ALONG_FIRST), or neither
//   K_KEPT(k)          optional: false where none of the K_KEPT_STEP words of the tile from word k
//                      on, a multiple of that, counts in the product with `panel`
//   OUT_ADDRESS(m)     optional: where row m of the tile will be stored, to ask for it early where
//                      OUT_IS_FETCHED holds
//
// What a kernel declares, by these names, before the first call
//   matrix_a matrix    operand A: {base, m_stride, k_stride, m_readable, k_count}, base at element
//                      (0, 0) and k_count in elements; of A_OPERAND {base, extent, k_count},
//                      extent as in matrix_b
//   engine_call e      as the host gave it
//   tile_walk walk; a_tile now, next
// and none that ends in an underscore, nor item, item_m, item_n, pack and turn: engines use those.
// operand B is a matrix_b {base, extent}: panels of TILE_N columns, each of `extent` rows of words.
//
// Geometry of a work-group
//   ENGINE_KERNEL      attributes of a kernel that multiplies
//   ENGINE_LOCALS      declares local memory; ENGINE_SETUP(scratch) all else. Both stand first
//   ENGINE_GROUP, ENGINE_GROUPS *  which of the groups that share the parts of A this one is
//   PANEL_BEGIN, PANEL_END(panels) *  the panels of columns that this group takes
//   BATCH_INDEX *      which product of a batch (operands then begin where the kernel says)
//   TILE_N             columns of a panel, a multiple of LANES, the width of lane_f
//   A_STRIP            rows of A that go together: parts have whole strips, but for the last
//   ENGINE_WHOLE_K     1: the host gives all of k in one step (Cut::k_step)
//   WORDS(k), ELEMENTS(words)  an operand packs elements along k into words, and back
//
// Calls that all work-items of the group make together
//   ENGINE_LOAD        brings the tile `next` of A in, whole: before the first turn, and where a
//                      tile was passed over without a product
//   ENGINE_TURN        the tile that was brought in is `now`; the kernel then lets `next` be the
//                      one after it, which the products bring in meanwhile
//   ENGINE_MULTIPLY(tile, b, panel, index, count)
//                      PRODUCT_VISIT, PRODUCT_STORE: tile of C = now x panel of b, or += where
//                      now.k is not 0; the index-th of `count` panels that meet this tile of A.
//                      C is complete where TILE_COMPLETE * says so; for PRODUCT_STORE always,
//                      since the host gives all of k in one step there
//   ENGINE_ACCUMULATE(sums, b, panel, index, count, first)
//                      PRODUCT_ACCUMULATE: into the rows from now.m on of `panel` of sums
//                      (sums_index); `first`: they hold nothing yet
//   ENGINE_RESCALE(sums, rows, factors)
//                      multiplies `rows` rows of a panel of sums by factors[column]
//   ENGINE_STORE(tile, to, m_stride, n_stride, m_count, n_count, how)
//                      C into a matrix whose element (0, 0) of this tile is `to`, converted to
//                      OUT_TYPE. `how` is STORE_ADD where what is there is added first, in f32,
//                      STORE_STREAMED where the matrix is too large for any cache, so that an
//                      engine may write past them, and STORE_NEW otherwise (engines/arguments.h)
//   ENGINE_CLEAR(to, m_stride, n_stride, m_count, n_count)   zeros there
//
// A tile of C, and how an epilogue visits it. A work-item sees columns, LANES of them side by side
// as one lane_f, and of each some of the rows; several work-items may hold rows of the same column.
//   c_tile             type of a tile; ENGINE_TILE(index) is the tile of the index-th panel
//   FOR_COLUMNS(column)  for each column that this work-item sees: the first of LANES
//   FOR_ROWS(m, rows)  for each row below `rows` of it that this work-item holds
//   FOR_ELEMENTS(m, rows, column)  both, in the order in which the engine holds them, rows outside
//                      where that is up to it; nothing in it may be asked of a column as a whole
//   TILE_AT(tile, m, column), TILE_SET(tile, m, column, value)   of the elements that it holds
//   COLUMN_MAX(v), COLUMN_SUM(v), COLUMN_MIN_INDEX(i)  over all who hold rows of the column; all of
//                      them call it, from inside FOR_COLUMNS and behind no condition, and get the
//                      result. A maximum is never asked of a NaN. What they have read of global
//                      memory before is read, so that an owner may write there
//   COLUMN_OWNER       true for one of them: it writes what the column came to
//   COLUMN_SYNC        after that all of them may read what it wrote; all of them call it
//
// Operands, in the engine's own format; engines/<name>/operand.cl, which stands without the rest.
// Their memory is of operand_word (32 bits), in which the engine alone sees numbers.
//   operand_pack_rows, operand_pack_columns    make operand B of a matrix: engines/operand.cl
//   operand_index(extent, panel, k, column)
//                      the word that holds element (k, column) of an operand that an epilogue
//                      stores: operand_store(value, at, k), LANES columns at a time. Where LANES is
//                      more than 1, two k that share words come from one work-item, the even one
//                      first. Other kernels read it by operand_load(at, k), or one element by
//                      operand_element(at, k)
//   OPERAND_ROUNDING   the relative error of what operand_store stores, at most; 0: it is exact
//   sums_index(extent, panel, m)  where row m of a panel of accumulated sums begins; its TILE_N
//                      columns follow each other
//   OPERAND_EXTENT(k_count)  words of k in a panel of what operand_pack_rows made of so many
//                      elements
//   PANEL_ITEMS        work-items that share the columns of a panel, in kernels that go over an
//                      operand element by element (Engine::panel_range)
#ifndef TESSERA_ENGINE_CL
#define TESSERA_ENGINE_CL

#include "engines/arguments.h"
#include "engines/operand.cl"
#include "engines/walk.cl"

#define PRODUCT_VISIT 0
#define PRODUCT_ACCUMULATE 1
#define PRODUCT_STORE 2

// Defaults, with which every file that includes this one compiles by itself.
#ifndef PRODUCT
#define PRODUCT PRODUCT_VISIT
#endif
#ifndef A_TYPE
#define A_TYPE TYPE_F32
#endif
#ifndef A_LAYOUT
#define A_LAYOUT STRIDED
#endif
#ifndef A_OPERAND
#define A_OPERAND 0
#endif
#ifndef B_STORED
#define B_STORED 0
#endif
#ifndef OUT_TYPE
#define OUT_TYPE TYPE_F32
#endif
#ifndef OUT_LAYOUT
#define OUT_LAYOUT ALONG_SECOND
#endif

typedef struct {
#if A_OPERAND
  global const operand_word* base;
  long extent;
#else
  global const ELEMENT(A_TYPE) * base;
  long m_stride, k_stride;
  long m_readable;
#endif
  int k_count;
} matrix_a;

typedef struct {
  global const operand_word* base;
  long extent;
} matrix_b;

#define ENGINE_GROUPS ((int)get_num_groups(0))
#define PANEL_END(panels) min(PANEL_BEGIN + e.panels_per_group, panels)
#define BATCH_INDEX ((long)get_group_id(2))

#include "engines/ENGINE/engine.cl"

// An engine may have its groups in another order.
#ifndef ENGINE_GROUP
#define ENGINE_GROUP ((int)get_group_id(0))
#define PANEL_BEGIN ((int)get_group_id(1) * e.panels_per_group)
#endif

// Whether the sums of the tile are complete after this step of k. Where they always are, no test:
// an epilogue may hold barriers, and PoCL 3.1 miscompiled those behind this condition.
#if ENGINE_WHOLE_K
#define TILE_COMPLETE 1
#else
#define TILE_COMPLETE (now.k + now.depth == walk.k_count)
#endif

#endif
