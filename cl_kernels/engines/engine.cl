// SPDX-License-Identifier: Apache-2.0
// How a device multiplies. An engine offers, for every product C[m][n] (+)= sum_k A[m][k] * B[k][n]:
//
//   TILE_N            columns of a tile; B comes packed in panels [k][TILE_N] of f32
//   TILE_M            rows of A that one step holds
//   ENGINE_STRIP      rows of A that go together; a step has whole strips, but for the last
//   ENGINE_K_STEP     how deep one step is, of a given depth
//   FOR_LANE_GROUPS   how work-items share the columns of a tile in an epilogue
//   C_SPACE           where the tile lives: `global` scratch or `local` memory
//
// and calls that every work-item of the group makes together:
//
//   ENGINE_LOAD_ALL   loads the A that the variable `next` describes: once, before the first turn
//   ENGINE_TURN       what was loaded becomes the A of this turn, `now`; the skeleton then lets `next`
//                     describe the one after it, which ENGINE_MULTIPLY loads bit by bit
//   ENGINE_MULTIPLY(c, ldc, b, rows, depth, first, panel, panels)
//                     c = A * b, or c += A * b when !first; `panel` of `panels` that meet this A
//
// The skeleton defines a struct for `now` and `next` (rows: 0 where there is none; depth; and where it
// lies), and where A comes from, before it includes this file:
//
//   A_AT(tile, m, k)      one element as f32; m < tile.rows and k < tile.depth always hold
//   A_CONTIGUOUS_K        1: A_VECTOR_K(tile, m, k) loads LANES elements k, k+1, ...
//   A_CONTIGUOUS_M        1: A_VECTOR_M(tile, m, k) loads LANES elements m, m+1, ...; all m below
//                         A_ROWS_READABLE(tile) may be loaded, also beyond tile.rows
//   A_IN_PLACE            1: A is f32 and contiguous along k; A_POINTER(tile, m) is row m, and rows are
//                         A_ROW_STEP elements apart
//   OUT_ADDRESS(m)        optional: where an epilogue will write row m of the tile
//   K_KEPT(k)             optional: false where the K_KEPT_STEP steps of k from k on, a multiple of it,
//                         are to be left out of this turn's product
//   A_ADDRESSES           1: A_ADDRESS(tile, m, k) points to the element of A_AT, in A_TYPE
//   A_HALF(tile)          with DOT_BF16 (engines/cpu/dot_bf16.cl), where k and depth count pairs: 1 if the
//                         last pair of the tile's rows is half
#ifndef TESSERA_ENGINE_CL
#define TESSERA_ENGINE_CL
// How many words of a packed operand hold so many elements along k, and the other way around: an element
// each, but for engines that multiply pairs of bf16.
#if DOT_BF16
#define WORDS(elements) (((elements) + 1) / 2)
#define ELEMENTS(words) (2 * (words))
#else
#define WORDS(elements) (elements)
#define ELEMENTS(words) (words)
#endif
#if ENGINE_CPU
#include "engines/cpu/engine.cl"
#elif ENGINE_SIMT
#include "engines/simt/engine.cl"
#else
#error "define ENGINE_CPU or ENGINE_SIMT"
#endif
#endif
