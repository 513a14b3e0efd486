// SPDX-License-Identifier: Apache-2.0
// Positions of a tile in memory: they are coordinates, and a column belongs to one work-item, which
// holds all of it.
#define PRODUCT_FOR_ROWS(i, rows) for (int i = 0; i < (rows); ++i)
#define PRODUCT_ROWS_COUNT 1
ALWAYS_INLINE int product_row(const product_state* p, int i) { return i; }
ALWAYS_INLINE int product_ahead(int i) { return i; }
ALWAYS_INLINE int product_row_within(const product_state* p, int i, int rows) { return i; }
ALWAYS_INLINE int product_column(const product_state* p, int j) { return j; }

ALWAYS_INLINE lane_f product_max(const product_state* p, lane_f value) { return value; }
ALWAYS_INLINE lane_f product_sum(const product_state* p, lane_f value) { return value; }
ALWAYS_INLINE lane_i product_first(const product_state* p, lane_i index) { return index; }
ALWAYS_INLINE int product_owns(const product_state* p) { return 1; }
ALWAYS_INLINE void product_sync(const product_state* p) {}
