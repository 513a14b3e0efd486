// SPDX-License-Identifier: Apache-2.0
// Operands of the plain engine: f32 in panels, the format that engines share.
#ifndef TESSERA_PLAIN_OPERAND_CL
#define TESSERA_PLAIN_OPERAND_CL

#define PANEL_ITEMS TILE_N
// Each work-item has one element of a tile of C.
typedef struct {
  float value;
} engine_tile;

#include "engines/panels.cl"

#endif
