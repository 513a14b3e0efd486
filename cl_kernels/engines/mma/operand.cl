// SPDX-License-Identifier: Apache-2.0
// Operands of the mma engine: words of pairs of bf16 in panels, which is how the instruction takes
// operand B. What an epilogue stores is such pairs too, whatever becomes of it.
#ifndef TESSERA_MMA_OPERAND_CL
#define TESSERA_MMA_OPERAND_CL

#if LANES != 1
#error "the mma engine has one column per work-item"
#endif
#define PANEL_ITEMS TILE_N
// A tile of C lies in local memory, [m][TILE_N + 8]: the spare elements keep rows in different
// banks.
#define ENGINE_LD_C (TILE_N + 8)
typedef struct {
  local float* at;
} engine_tile;
#ifndef STORED_PAIRS
#define STORED_PAIRS 1
#endif

#include "engines/pairs.cl"
// Behind it, since it asks for WORD_ELEMENTS.
#include "engines/panels.cl"

#endif
