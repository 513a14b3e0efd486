// SPDX-License-Identifier: Apache-2.0
// Reductions over the rows of a column, of a work-group of PRODUCT_ITEMS whose work-items i, i +
// TILE_N, ... hold rows of the same column, PRODUCT_OWNERS of them.

#if PRODUCT_OWNERS > 1
// Every holder puts down its value in memory.values, and all of them read all, in order. Complete
// before it is read; and global memory that was read so far is read before an owner writes there.
ALWAYS_INLINE local float* product_gather(const product_state* p, float value) {
  const int item = (int)get_local_id(0);
  p->memory.values[item] = value;
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  return p->memory.values + item % TILE_N;
}
ALWAYS_INLINE float product_max(const product_state* p, float value) {
  local const float* values = product_gather(p, value);
  float result = values[0];
  for (int i = 1; i < PRODUCT_OWNERS; ++i) {
    const float other = values[i * TILE_N];
    result = other > result ? other : result;
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // read before it is written again
  return result;
}
ALWAYS_INLINE float product_sum(const product_state* p, float value) {
  local const float* values = product_gather(p, value);
  float result = 0.0f;
  for (int i = 0; i < PRODUCT_OWNERS; ++i) result += values[i * TILE_N];
  barrier(CLK_LOCAL_MEM_FENCE);  // read before it is written again
  return result;
}
ALWAYS_INLINE int product_first(const product_state* p, int index) {
  local const int* values = (local const int*)product_gather(p, as_float(index));
  int result = values[0];
  for (int i = 1; i < PRODUCT_OWNERS; ++i) result = min(result, values[i * TILE_N]);
  barrier(CLK_LOCAL_MEM_FENCE);  // read before it is written again
  return result;
}
ALWAYS_INLINE int product_owns(void) { return get_local_id(0) < TILE_N; }
// Written by one, read by all for the next tile.
ALWAYS_INLINE void product_sync(void) { barrier(CLK_GLOBAL_MEM_FENCE); }
#else
ALWAYS_INLINE lane_f product_max(const product_state* p, lane_f value) { return value; }
ALWAYS_INLINE lane_f product_sum(const product_state* p, lane_f value) { return value; }
ALWAYS_INLINE lane_i product_first(const product_state* p, lane_i index) { return index; }
ALWAYS_INLINE int product_owns(void) { return 1; }
ALWAYS_INLINE void product_sync(void) {}
#endif
