// SPDX-License-Identifier: Apache-2.0
// Operands of the plain engine: f32 in panels, the format that engines share.
#ifndef TESSERA_PLAIN_OPERAND_CL
#define TESSERA_PLAIN_OPERAND_CL

#define PANEL_ITEMS TILE_N
#define WORDS(elements) (elements)
#define ELEMENTS(words) (words)
#define OPERAND_EXTENT(k_count) (k_count)

#include "engines/panels.cl"

#endif
