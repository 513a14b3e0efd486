// SPDX-License-Identifier: Apache-2.0
// The contract between engines, which multiply, and the kernels of operators. This comment is all
// of it. An engine is a folder of cl_kernels/engines (Engine::folder) with operand.cl, memory.cl
// and product.cl, and one file host/engines/<engine>.cpp; nothing else knows its name.
//
// Instances. A product is C[m][n] = sum over k of A[m][k] * B[k][n]. A kernel names each of its
// products:
//
//   #define LOGITS_A_TYPE W_TYPE
//   #include "engines/product.cl"  // as logits
//
// The loader (host/opencl/embedded_kernels.cpp) makes that instance of this file and of those that
// it includes `as product`: names that begin with product_ begin with logits_ there, PRODUCT_ with
// LOGITS_. A file with such names is included as often as it is named; it defines no other names,
// and pastes none together (a pasted name keeps its prefix). The host gives an engine's options of
// the operands under the same name (Engine::options(product, "LOGITS")). TILE_N, LANES and whatever
// else Engine::options() says hold for all instances of a program.
//
// A kernel defines before the include, under the instance's name
//   PRODUCT_USE       USE_VISIT: an epilogue visits the elements of C, tile by tile;
//                     USE_ACCUMULATE: C is summed in f32 memory over several tiles of A;
//                     USE_STORE: C goes to a matrix of the caller's
//   PRODUCT_A_TYPE, PRODUCT_A_LAYOUT  A is a matrix of the caller's, of this element type (TYPE_*),
//                     whose contiguous index is k (ALONG_SECOND), m (ALONG_FIRST) or neither
//                     (STRIDED)
//   PRODUCT_A_STORED  1 instead: A is an operand that an epilogue stored, m along its k
//   PRODUCT_B_STORED  1: B is an operand that an epilogue stored
//   PRODUCT_B_COLUMNS  1: operand_pack_columns packed B; else operand_pack_rows did
//   PRODUCT_B_TILE    1: B is the tile of an earlier product of the kernel
//   PRODUCT_KEPT      the stored operand has flags (kept_tiles), one for so many elements of its k
//                     by a panel of its columns; where a flag is 0 these elements are left out
//   PRODUCT_OUT_TYPE, PRODUCT_OUT_LAYOUT  of the matrix that product_store writes: contiguous along
//                     n (ALONG_SECOND), along m (ALONG_FIRST), or neither
//   LONG_EPILOGUE     1, without a prefix and before the first include: what a program's epilogue
//                     does with an element is too long to be unrolled over a tile. All products of
//                     such a program are USE_VISIT
//
// A kernel that multiplies has the attributes PRODUCT_KERNEL and begins with
// PRODUCT_LOCALS(memory), which declares local arrays and, by the name given, a product_memory that
// points to them: only a kernel's own scope may declare such arrays.
//
// The state of a product, which every function below takes first
//   kept              with PRODUCT_KEPT: the flags. A kernel sets them before product_open
//   out               USE_STORE: the matrix that C goes to. A kernel sets it before product_open
//   a, b              the operands, as they were given; b is not read where B is a tile
//   now, next         the tile of A that is multiplied, and the one that is brought in meanwhile
//   panel_begin, panel_end  the panels of TILE_N columns of B that this group multiplies; none
//                     where panel_end is not larger
//
// All work-items of a group make these calls together, behind no condition that parts them
//   product_open(p, memory, scratch, call, a, b, m_count, m_part, panels)
//                     C has m_count rows, in parts of m_part (0: even ones), and so many panels.
//                     Brings the first tile of A in, where the group has a panel. An engine whose
//                     work-items divide the labour (PRODUCT_DIVIDES) has those that only bring do
//                     all of it here and end: a kernel has no barrier of its own behind the call
//   product_restart(p, panel)  goes over all of A again, for one panel, without the other groups: a
//                     product inside the loop of another
//   product_next(p)   1: `now` is the next tile of A; 0: there is none. A tile has rows of A, and a
//                     step of their k; a depth of 0 is legal, and C then 0. Rows of A beyond
//                     now.rows may be read below m_readable only (of a stored A not at all), B not
//                     beyond now.depth; the columns that pad a panel are 0
//   product_load(p)   brings `next` in whole, where no product was formed with `now`
//   product_multiply(p, tile, panel)  USE_VISIT, USE_STORE: tile = now x panel, or += where now.k
//                     is not 0, and a part of `next` is brought in. The sums are complete where
//                     PRODUCT_WHOLE_K or product_is_complete(p) says so, of USE_STORE always: the
//                     host gives all of k in one step there (Cut::k_step)
//   product_multiply_tile(p, tile, other, k, depth)
//                     PRODUCT_B_TILE: tile = columns [k, k + depth) of the rows `now` of A, times
//                     the first `depth` rows of `other`; += where k is not 0. k is a multiple of
//                     PRODUCT_STRIP. `other` may be visited and formed anew afterwards
//   product_accumulate(p, sums, panel, first)
//                     USE_ACCUMULATE: into the rows from now.m on of a panel of sums (sums_index);
//                     `first`: they hold nothing yet
//   product_store(p, tile, panel)  USE_STORE: C into p->out, converted to PRODUCT_OUT_TYPE, as
//                     out.how says (STORE_*, engines/arguments.h)
//   product_clear(p)  zeros in the rows `now` of it, for all panels of the group
//
// An epilogue visits positions of a tile: rows i and columns j, where a column is LANES of them
// side by side, as one lane_f. A tile may be registers, so that a position's number must be known
// where the loops are unrolled. A work-item holds the same rows of each of its columns, in
// ascending order; several work-items may hold rows of a column
//   PRODUCT_FOR_COLUMNS(j)  for each column that this work-item holds. All work-items of a group
//                     take as many turns, where the calls below have barriers
//   PRODUCT_FOR_ROWS(i, rows)  for each row below `rows` of it that this work-item holds, and maybe
//                     for rows beyond, whose elements are anything and are not to count, but where
//                     PRODUCT_ROWS_COUNT is 1
//   PRODUCT_FOR_ELEMENTS(i, rows, j)  both; nothing in it may be asked of a column as a whole
//   product_row(p, i), product_column(p, j)  the row in the tile, the first of the LANES columns
//   product_ahead(i)  product_row(p, i) less product_row(p, 0): where loops are unrolled a plain
//                     number, which a comparison takes without a register
//   product_row_within(p, i, rows)  the row, or rows - 1 where it lies beyond: of what is read
//   product_at(tile, i, j), product_put(tile, i, j, value)  the element
//   product_store_operand(p, tile, to, extent, panel)
//                     the rows `now` of the tile, as those k of a panel of an operand (engines/
//                     operand.cl); without a tile: zeros
//   product_max(p, v), product_sum(p, v), product_first(p, index)
//                     the maximum, the sum, the least index over all who hold rows of the column.
//                     All of them call it, from inside PRODUCT_FOR_COLUMNS and behind no condition,
//                     and get the result. A maximum is never asked of a NaN. Global memory that
//                     they read before is read by then, so that an owner may write there
//   product_owns(p)   1 for one of them: it writes the column's result
//   product_sync(p)   after that all of them may read what owners wrote; all of them call it
//
// Words. Engines pack operands in words of 32 bits along k
//   product_words(elements), product_elements(words)  of k
//   product_extent(elements)  words of k in a panel that operand_pack_rows made of so many elements
//   PRODUCT_WORD_ELEMENTS  of k in a word: 1 or 2
//
// An engine's memory.cl defines PRODUCT_KERNEL, PRODUCT_LOCALS, product_memory, PRODUCT_STRIP (rows
// of A that go together: parts have whole strips, but for the last) and PRODUCT_WHOLE_K. Where they
// are not 1, it defines PRODUCT_WORD_ELEMENTS and PRODUCT_PANEL_WORDS (the words of a panel are a
// multiple). It may define PRODUCT_ONE_TILE as 1, where a group has one tile of A: there are as
// many groups as parts, and a part is a strip. With PRODUCT_ORDER product_group and
// product_first_panel are its own (engines/bands.cl). Its product.cl defines product_load,
// product_multiply, product_multiply_tile, product_accumulate, product_store and product_clear
// (engines/store.cl helps), the loops and all that is asked inside them (engines/columns.cl, where
// positions are coordinates); with PRODUCT_STORES_OPERAND product_store_operand; with
// PRODUCT_DIVIDES product_divide, the end of product_open, and then a kernel has one product, whose
// group does not go over A again. Its operand.cl (engines/operand.cl) defines engine_tile, a tile
// of C, which instances have in common.
#include "engines/arguments.h"
#include "engines/operand.cl"
#include "engines/walk.cl"

// With these defaults the file compiles by itself.
#ifndef PRODUCT_USE
#define PRODUCT_USE USE_VISIT
#endif
#ifndef PRODUCT_A_TYPE
#define PRODUCT_A_TYPE TYPE_F32
#endif
#ifndef PRODUCT_A_LAYOUT
#define PRODUCT_A_LAYOUT STRIDED
#endif
#ifndef PRODUCT_A_STORED
#define PRODUCT_A_STORED 0
#endif
#ifndef PRODUCT_B_STORED
#define PRODUCT_B_STORED 0
#endif
#ifndef PRODUCT_B_COLUMNS
#define PRODUCT_B_COLUMNS 0
#endif
#ifndef PRODUCT_B_TILE
#define PRODUCT_B_TILE 0
#endif
#ifndef PRODUCT_KEPT
#define PRODUCT_KEPT 0
#endif
#ifndef PRODUCT_OUT_TYPE
#define PRODUCT_OUT_TYPE TYPE_F32
#endif
#ifndef PRODUCT_OUT_LAYOUT
#define PRODUCT_OUT_LAYOUT ALONG_SECOND
#endif

// Operand A: `base` is at element (0, 0), strides and k_count are in elements. The extent of a
// stored one is that of a matrix_b.
typedef struct {
#if PRODUCT_A_STORED
  global const operand_word* base;
  long extent;
#else
  global const ELEMENT(PRODUCT_A_TYPE) * base;
  long m_stride, k_stride;
  long m_readable;
#endif
  int k_count;
} product_a;

// A matrix of the caller's, from element (0, 0) of C on; n_count columns are written.
typedef struct {
  global ELEMENT(PRODUCT_OUT_TYPE) * base;
  long m_stride, n_stride;
  int n_count;
  int how;
} product_out;

#include "engines/ENGINE/memory.cl"  // as product

#ifndef PRODUCT_WORD_ELEMENTS
#define PRODUCT_WORD_ELEMENTS 1
#endif
#ifndef PRODUCT_PANEL_WORDS
#define PRODUCT_PANEL_WORDS 1
#endif
#ifndef PRODUCT_ONE_TILE
#define PRODUCT_ONE_TILE 0
#endif
static inline long product_words(long elements) {
  return (elements + PRODUCT_WORD_ELEMENTS - 1) / PRODUCT_WORD_ELEMENTS;
}
static inline long product_elements(long words) { return words * PRODUCT_WORD_ELEMENTS; }
static inline long product_extent(long elements) {
  return (product_words(elements) + PRODUCT_PANEL_WORDS - 1) / PRODUCT_PANEL_WORDS *
         PRODUCT_PANEL_WORDS;
}

typedef struct {
  product_a a;
  matrix_b b;
#if PRODUCT_KEPT
  kept_tiles kept;
#endif
#if PRODUCT_USE == USE_STORE
  product_out out;
#endif
  tile_walk walk;
  a_tile now, next;
  int panel_begin, panel_end;
  int group, groups;  // which of the groups that share the parts of A this one is
  int turn;           // tiles of A so far
  product_memory memory;
  global float* scratch;  // of this work-group
  long own[2];            // Cut::own
} product_state;

#ifndef PRODUCT_ORDER
// The number of this group, of those that share the parts of A, and its first panel.
ALWAYS_INLINE int product_group(void) { return (int)get_group_id(0); }
ALWAYS_INLINE int product_first_panel(int panels_per_group) {
  return (int)get_group_id(1) * panels_per_group;
}
#endif

#if PRODUCT_KEPT
// Words of k that one flag is asked for: an A has its panels along k.
#if PRODUCT_A_STORED
#define PRODUCT_KEPT_STEP (TILE_N / PRODUCT_WORD_ELEMENTS)
#else
#define PRODUCT_KEPT_STEP (PRODUCT_KEPT / PRODUCT_WORD_ELEMENTS)
#endif
// 1: one of elements [begin, end) of the stored operand's k counts in a panel of its.
ALWAYS_INLINE int product_any_kept(const kept_tiles* kept, long panel, long begin, long end) {
  global const int* flags = kept->flags + panel * kept->tiles;
  const int tile_end = (int)((end + PRODUCT_KEPT - 1) / PRODUCT_KEPT);
  int any = 0;
// There are few, and a turn unrolled costs registers beside those of a tile.
#pragma unroll 1
  for (int tile = (int)(begin / PRODUCT_KEPT); tile < tile_end; ++tile) any |= flags[tile];
  return any;
}
// 0: none of the PRODUCT_KEPT_STEP words from word k of a tile on, a multiple of that, counts in
// the product with `panel`. The same for every work-item of the group.
ALWAYS_INLINE int product_keeps(const product_state* p, const a_tile* tile, int panel, int k) {
#if PRODUCT_A_STORED
  return product_any_kept(&p->kept, product_elements(k) / TILE_N, tile->m, tile->m + tile->rows);
#else
  const long element = product_elements(tile->k + k);
  return product_any_kept(&p->kept, panel, element, element + 1);
#endif
}
#endif

// Passes over what no product needs: of a stored A the end of k; of a stored B whole tiles, unless
// they clear sums.
ALWAYS_INLINE void product_settle(product_state* p) {
#if PRODUCT_KEPT && PRODUCT_A_STORED
  while (p->next.depth > 0) {
    const int last = (p->next.depth - 1) / PRODUCT_KEPT_STEP;
    if (product_keeps(p, &p->next, 0, last * PRODUCT_KEPT_STEP)) break;
    p->next.depth = last * PRODUCT_KEPT_STEP;
  }
#elif PRODUCT_KEPT
  while (p->next.rows > 0 && !(p->kept.clears && p->next.k == 0)) {
    const long begin = product_elements(p->next.k);
    const long end = min(product_elements(p->next.k + p->next.depth), (long)p->a.k_count);
    int any = 0;
    for (int panel = p->panel_begin; panel < p->panel_end; ++panel) {
      any |= product_any_kept(&p->kept, panel, begin, end);
    }
    if (any) break;
    walk_next(&p->walk, p->groups, &p->next);
  }
#endif
}

ALWAYS_INLINE void product_load(product_state* p);
#ifdef PRODUCT_DIVIDES
ALWAYS_INLINE void product_divide(product_state* p);
#endif

ALWAYS_INLINE void product_start(product_state* p) {
  walk_start(&p->walk, p->group, &p->next);
  product_settle(p);
  if (p->panel_begin < p->panel_end) product_load(p);
}

ALWAYS_INLINE void product_open(product_state* p, const product_memory* memory,
                                global float* scratch, const engine_call* call, const product_a* a,
                                const matrix_b* b, long m_count, long m_part, int panels) {
  p->a = *a;
  p->b = *b;
  p->memory = *memory;
  p->turn = 0;
  p->panel_begin = product_first_panel(call->panels_per_group);
  p->panel_end = min(p->panel_begin + call->panels_per_group, panels);
  p->own[0] = call->own[0];
  p->own[1] = call->own[1];
  const long group =
      (get_group_id(2) * get_num_groups(1) + get_group_id(1)) * get_num_groups(0) + get_group_id(0);
  p->scratch = scratch + group * call->group_words;
  const tile_walk walk = {
      m_count,      m_part,       call->parts, call->tile_m, (int)product_words(a->k_count),
      call->k_step, PRODUCT_STRIP};
  p->walk = walk;
  p->group = product_group();
  p->groups = (int)get_num_groups(0);
  product_start(p);
#ifdef PRODUCT_DIVIDES
  product_divide(p);
#endif
}

ALWAYS_INLINE void product_restart(product_state* p, int panel) {
  p->group = 0;
  p->groups = 1;
  p->panel_begin = panel;
  p->panel_end = panel + 1;
  product_start(p);
}

ALWAYS_INLINE int product_next(product_state* p) {
  if (p->next.rows <= 0) return 0;
  ++p->turn;
  p->now = p->next;
#if PRODUCT_ONE_TILE
  p->next.rows = 0;  // the walk itself would take registers beside a tile's
#else
  walk_next(&p->walk, p->groups, &p->next);
  product_settle(p);
#endif
  return 1;
}

#define PRODUCT_FOR_ELEMENTS(i, rows, j) \
  PRODUCT_FOR_ROWS(i, rows)              \
    PRODUCT_FOR_COLUMNS(j)

// The sums of the tile are complete after this step of k. Behind PRODUCT_WHOLE_K, a plain number:
// an epilogue may hold barriers, and PoCL 3.1 miscompiled those behind a condition.
ALWAYS_INLINE int product_is_complete(const product_state* p) {
  return p->now.k + p->now.depth == p->walk.k_count;
}

#if PRODUCT_USE == USE_STORE
// Element (0, 0) of the tile in the matrix.
ALWAYS_INLINE global ELEMENT(PRODUCT_OUT_TYPE) * product_place(const product_state* p, int panel) {
  return p->out.base + p->now.m * p->out.m_stride + (long)panel * TILE_N * p->out.n_stride;
}
// Columns of a panel that are written.
ALWAYS_INLINE int product_columns(const product_state* p, int panel) {
  return min(p->out.n_count - panel * TILE_N, TILE_N);
}
#endif

#include "engines/ENGINE/product.cl"  // as product
#ifndef PRODUCT_ROWS_COUNT
#define PRODUCT_ROWS_COUNT 0
#endif

#ifndef PRODUCT_STORES_OPERAND
ALWAYS_INLINE void product_store_operand(const product_state* p, const engine_tile* tile,
                                         global operand_word* to, long extent, int panel) {
  PRODUCT_FOR_ELEMENTS(i, p->now.rows, j) {
    const int row = product_row(p, i);
    if (row >= p->now.rows) continue;
    const long k = p->now.m + row;
    operand_store(tile ? product_at(tile, i, j) : (lane_f)(0.0f),
                  to + operand_index(extent, panel, k, product_column(p, j)), k);
  }
}
#endif
