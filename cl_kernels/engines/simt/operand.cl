// SPDX-License-Identifier: Apache-2.0
// Operands of the simt engine: f32 in panels.
#ifndef TESSERA_SIMT_OPERAND_CL
#define TESSERA_SIMT_OPERAND_CL

#if LANES != 1
#error "the simt engine has one column per work-item"
#endif
#define PANEL_ITEMS TILE_N
#define WORDS(elements) (elements)
#define ELEMENTS(words) (words)
#define OPERAND_EXTENT(k_count) (k_count)

#include "engines/panels.cl"

#endif
