// SPDX-License-Identifier: Apache-2.0
// Operands of products in the engine's own format: the part of the contract (engines/engine.cl)
// that kernels need which do not multiply.
//
// A kernel that makes operand B of a matrix defines PACK_TYPE (TYPE_*) and PACK_CONTIGUOUS (1: k is
// contiguous in it), and calls
//
//   operand_pack_rows(out, k_count, panel, column, start, from, k_stride, k0, k1)
//       elements [k0, k1) of LANES rows of the matrix, as columns from `column` on of a panel whose
//       depth is k: start[i] is where row i begins in `from`, ROW_PADDING: it is all 0,
//       ROW_ELSEWHERE: another launch writes it. k0 is a multiple of PACK_STEP, k1 one or k_count
//   operand_pack_columns(out, row_count, row, start, from, k_stride, k_count, panel0, panel1)
//       the rows of the matrix that share a word, WORD_ELEMENTS of them from `row` on, as rows of
//       panels of its columns, whose depth is the rows; start[i] is where row + i begins. All
//       work-items of a group make the call together, PACK_ITEMS of them: they share the columns
#ifndef TESSERA_OPERAND_CL
#define TESSERA_OPERAND_CL

#include "common/lanes.cl"

// Which index of a matrix [first][second] is contiguous; LAYOUT_* of host/engines/engine.hpp.
#define ALONG_SECOND 0
#define ALONG_FIRST 1
#define STRIDED 2

// A word of an operand, in which only its engine sees numbers.
typedef struct {
  uint bits;
} operand_word;

#define ROW_PADDING (-1)
#define ROW_ELSEWHERE (-2)

// The engine's PANEL_ITEMS is known where these are used.
#define PACK_ITEM (PANEL_ITEMS > 1 ? (int)get_local_id(0) : 0)
#define PACK_ITEMS (PANEL_ITEMS > 1 ? (int)get_local_size(0) : 1)

#include "engines/ENGINE/operand.cl"

#endif
