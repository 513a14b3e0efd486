// SPDX-License-Identifier: Apache-2.0
// Tiles of logits, [vocabulary][tokens]: operand A is w as it lies, operand B x by rows. What
// forward and gradient share.
#ifndef TESSERA_LOGITS_CL
#define TESSERA_LOGITS_CL

#include "linear/operands.cl"

#define A_TYPE W_TYPE
#if W_LAYOUT == W_VH
#define A_LAYOUT ALONG_SECOND
#elif W_LAYOUT == W_HV
#define A_LAYOUT ALONG_FIRST
#endif
#include "engines/engine.cl"

// Parts are slices of the vocabulary. All panels of tokens meet a tile while it is in the cache.
#define LOGITS_WALK                                                                               \
  const matrix_a matrix = {w + a.at.w, a.size.w.m_stride, a.size.w.k_stride, a.size.w.m_readable, \
                           a.size.h_count};                                                       \
  const matrix_b x_rows = {x + a.at.x, OPERAND_EXTENT(a.size.h_count)};                           \
  const tile_walk walk = {                                                                        \
      a.size.v_count, a.size.v_block, e.parts, e.tile_m, (int)WORDS(a.size.h_count),              \
      e.k_step,       A_STRIP};                                                                   \
  a_tile now, next;                                                                               \
  walk_start(&walk, ENGINE_GROUP, &next);                                                         \
  ENGINE_LOAD
#define NEXT_TILE \
  ENGINE_TURN     \
  now = next;     \
  walk_next(&walk, ENGINE_GROUPS, &next);

#endif
