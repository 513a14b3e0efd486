// SPDX-License-Identifier: Apache-2.0
// Geometry of the mma engine: a work-group of WARPS_M x WARPS_N warps of 32 computes a TILE_M x
// TILE_N tile from STAGES steps of DEPTH words of both operands in local memory.

#define PRODUCT_ITEMS (32 * WARPS_M * WARPS_N)
#define PRODUCT_KERNEL __attribute__((reqd_work_group_size(PRODUCT_ITEMS, 1, 1)))
#define PRODUCT_STRIP TILE_M
#define PRODUCT_WHOLE_K 1
#define PRODUCT_WORD_ELEMENTS 2

// A step of A lies as it does in global memory (operand_a.cl): rows along k; rows along m for each
// k where its m are contiguous (PRODUCT_A_BY_M); of a stored A rows along k for each pair of m. The
// spare words at the end of a row put what a warp reads together into different banks.
#define PRODUCT_A_BY_M (PRODUCT_A_LAYOUT == ALONG_FIRST && !PRODUCT_A_STORED)
#if PRODUCT_A_STORED
#define PRODUCT_ROWS_A (TILE_M / 2)
#define PRODUCT_WIDTH_A (2 * DEPTH)
#define PRODUCT_LD_A (PRODUCT_WIDTH_A + 8)
#elif PRODUCT_A_BY_M
#define PRODUCT_ROWS_A (2 * DEPTH)
#define PRODUCT_WIDTH_A (TILE_M / 2)
#define PRODUCT_LD_A (PRODUCT_WIDTH_A + 4)
#else
#define PRODUCT_ROWS_A TILE_M
#define PRODUCT_WIDTH_A DEPTH
#define PRODUCT_LD_A (PRODUCT_WIDTH_A + 4)
#endif
#define PRODUCT_WORDS_A (PRODUCT_ROWS_A * PRODUCT_LD_A)
// A step of B has rows of words for each pair of k, which is how the instruction takes it.
#define PRODUCT_LD_B (TILE_N + 8)
#define PRODUCT_STAGE (PRODUCT_WORDS_A + DEPTH * PRODUCT_LD_B)

// A tile of C that an epilogue visits takes the place of the steps; a tile that is summed over
// several others has a place of its own behind one step.
#define PRODUCT_TILE_WORDS (TILE_M * ENGINE_LD_C)
#if PRODUCT_B_TILE
#define PRODUCT_TILE_AT PRODUCT_STAGE
#define PRODUCT_SHARED (PRODUCT_STAGE + PRODUCT_TILE_WORDS)
#elif PRODUCT_USE == USE_ACCUMULATE || STAGES * PRODUCT_STAGE > PRODUCT_TILE_WORDS
#define PRODUCT_TILE_AT 0
#define PRODUCT_SHARED (STAGES * PRODUCT_STAGE)
#else
#define PRODUCT_TILE_AT 0
#define PRODUCT_SHARED PRODUCT_TILE_WORDS
#endif

// Work-items that hold rows of the same column, which put down what they have in `values`.
#define PRODUCT_OWNERS (PRODUCT_ITEMS > TILE_N ? PRODUCT_ITEMS / TILE_N : 1)
typedef struct {
  local uint* shared;
  local float* values;  // [PRODUCT_ITEMS]
} product_memory;
// Four words each, so that rows begin where 16 bytes may be read.
#if PRODUCT_ITEMS > TILE_N
#define PRODUCT_LOCALS(memory)                          \
  local uint4 product_local_shared[PRODUCT_SHARED / 4]; \
  local float product_local_values[PRODUCT_ITEMS];      \
  const product_memory memory = {(local uint*)product_local_shared, product_local_values}
#else
#define PRODUCT_LOCALS(memory)                          \
  local uint4 product_local_shared[PRODUCT_SHARED / 4]; \
  const product_memory memory = {(local uint*)product_local_shared, 0}
#endif

// The groups come in bands of BAND panels, which take turns first: those that run at once then
// share what they read of both operands.
#define PRODUCT_ORDER 1
ALWAYS_INLINE int product_in_band(void) {
  return (int)(get_group_id(1) * get_num_groups(0) + get_group_id(0));
}
ALWAYS_INLINE int product_band(void) {  // its first panel, in groups' shares
  return product_in_band() / (BAND * (int)get_num_groups(0)) * BAND;
}
ALWAYS_INLINE int product_band_size(void) {
  return min((int)get_num_groups(1) - product_band(), BAND);
}
ALWAYS_INLINE int product_group(void) {
  return product_in_band() % (BAND * (int)get_num_groups(0)) / product_band_size();
}
ALWAYS_INLINE int product_first_panel(int panels_per_group) {
  const int within = product_in_band() % (BAND * (int)get_num_groups(0));
  return (product_band() + within % product_band_size()) * panels_per_group;
}
