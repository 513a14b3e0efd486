// SPDX-License-Identifier: Apache-2.0
// The walk of a work-group over tiles of operand A: parts of its rows, which the groups take in
// turn, so that scratch is needed per group and not per part and no result depends on who takes
// which; in a part tiles of at most tile_m rows; in a tile steps of k.
#ifndef TESSERA_WALK_CL
#define TESSERA_WALK_CL

// PRODUCT_USE of engines/product.cl.
#define USE_VISIT 0
#define USE_ACCUMULATE 1
#define USE_STORE 2

// Rows m .. m + rows of A, words k .. k + depth; rows 0: the end.
typedef struct {
  int part;
  int rows, depth;
  long m, k;
} a_tile;

typedef struct {
  long m_count;  // rows of A
  long m_part;   // rows of a part; 0: the parts are even, in whole strips
  int parts;
  int tile_m;
  int k_count;  // words
  int k_step;
  int strip;  // PRODUCT_STRIP
} tile_walk;

// The first row of a part; of part `parts` and beyond: the end.
ALWAYS_INLINE long walk_begin(const tile_walk* walk, int part) {
  if (walk->m_part > 0) return min(part * walk->m_part, walk->m_count);
  // None has more than one strip more than another.
  const long strips = (walk->m_count + walk->strip - 1) / walk->strip;
  return min(strips * min(part, walk->parts) / walk->parts * walk->strip, walk->m_count);
}

ALWAYS_INLINE void walk_extents(const tile_walk* walk, a_tile* t) {
  const long left = walk_begin(walk, t->part + 1) - t->m;
  t->rows = t->part >= walk->parts ? 0 : left < walk->tile_m ? (int)left : walk->tile_m;
  t->depth = walk->k_count - t->k < walk->k_step ? (int)(walk->k_count - t->k) : walk->k_step;
}

ALWAYS_INLINE void walk_start(const tile_walk* walk, int group, a_tile* t) {
  t->part = group;
  t->m = walk_begin(walk, group);
  t->k = 0;
  walk_extents(walk, t);
}

ALWAYS_INLINE void walk_next(const tile_walk* walk, int groups, a_tile* t) {
  t->k += walk->k_step;
  if (t->k >= walk->k_count) {
    t->k = 0;
    t->m += t->rows;
    if (t->m >= walk_begin(walk, t->part + 1)) {
      t->part += groups;
      t->m = walk_begin(walk, t->part);
    }
  }
  walk_extents(walk, t);
}

#endif
