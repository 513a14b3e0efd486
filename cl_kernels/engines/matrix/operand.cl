// SPDX-License-Identifier: Apache-2.0
// Operands of the mma engine: words of pairs of bf16 or f16 in panels, which is how the instruction
// takes operand B. What an epilogue stores is such pairs too, whatever becomes of it.
#ifndef TESSERA_MATRIX_OPERAND_CL
#define TESSERA_MATRIX_OPERAND_CL

#if LANES != 1
#error "the mma engine has one column per work-item"
#endif
#define PANEL_ITEMS TILE_N
#ifndef STORED_PAIRS
#define STORED_PAIRS 1
#endif

#include "engines/pairs.cl"
// Behind it, since it asks for WORD_ELEMENTS.
#include "engines/matrix/tile.cl"
#include "engines/panels.cl"

#endif
