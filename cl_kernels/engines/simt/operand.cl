// SPDX-License-Identifier: Apache-2.0
// Operands of the simt engine: f32 in panels.
#ifndef TESSERA_SIMT_OPERAND_CL
#define TESSERA_SIMT_OPERAND_CL

#if LANES != 1
#error "the simt engine has one column per work-item"
#endif
#define PANEL_ITEMS TILE_N
// A tile of C lies in local memory, [m][TILE_N].
typedef struct {
  local float* at;
} engine_tile;

#include "engines/panels.cl"

#endif
