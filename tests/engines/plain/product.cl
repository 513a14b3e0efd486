// SPDX-License-Identifier: Apache-2.0
// The contract of cl_kernels/engines/product.cl in its plainest form, to start from on a new
// device: a work-item keeps its element of C in a register and reads both operands from global
// memory. TILE_M work-items hold rows of the same column, so that they reduce it through local
// memory; an engine with matrix units does the same by shuffles.

ALWAYS_INLINE int product_m(void) { return (int)get_local_id(0) / TILE_N; }
ALWAYS_INLINE int product_n(void) { return (int)get_local_id(0) % TILE_N; }
// The one position of a work-item, whose row may lie beyond those that count.
#define PRODUCT_FOR_COLUMNS(j) for (int j = 0; j < 1; ++j)
#define PRODUCT_FOR_ROWS(i, rows) for (int i = 0; i < 1; ++i)
ALWAYS_INLINE int product_row(const product_state* p, int i) { return product_m(); }
ALWAYS_INLINE int product_ahead(int i) { return 0; }
ALWAYS_INLINE int product_row_within(const product_state* p, int i, int rows) {
  return min(product_m(), rows - 1);
}
ALWAYS_INLINE int product_column(const product_state* p, int j) { return product_n(); }
ALWAYS_INLINE float product_at(const engine_tile* tile, int i, int j) { return tile->value; }
ALWAYS_INLINE void product_put(engine_tile* tile, int i, int j, float value) {
  tile->value = value;
}

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
  for (int i = 1; i < TILE_M; ++i) {
    const float other = values[i * TILE_N];
    result = other > result ? other : result;
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // read before it is written again
  return result;
}
ALWAYS_INLINE float product_sum(const product_state* p, float value) {
  local const float* values = product_gather(p, value);
  float result = 0.0f;
  for (int i = 0; i < TILE_M; ++i) result += values[i * TILE_N];
  barrier(CLK_LOCAL_MEM_FENCE);  // read before it is written again
  return result;
}
ALWAYS_INLINE int product_first(const product_state* p, int index) {
  local const int* values = (local const int*)product_gather(p, as_float(index));
  int result = values[0];
  for (int i = 1; i < TILE_M; ++i) result = min(result, values[i * TILE_N]);
  barrier(CLK_LOCAL_MEM_FENCE);  // read before it is written again
  return result;
}
ALWAYS_INLINE int product_owns(const product_state* p) { return get_local_id(0) < TILE_N; }
// Written by one, read by all for the next tile.
ALWAYS_INLINE void product_sync(const product_state* p) { barrier(CLK_GLOBAL_MEM_FENCE); }

// Nothing is brought in ahead.
ALWAYS_INLINE void product_load(product_state* p) {}

ALWAYS_INLINE float product_a_at(const product_state* p, int k) {
  const long m = p->now.m + product_m();
#if PRODUCT_A_STORED
  return operand_element(p->a.base + operand_index(p->a.extent, k / TILE_N, m, k % TILE_N), m);
#else
  return LOAD(PRODUCT_A_TYPE, p->a.base, m * p->a.m_stride + (p->now.k + k) * p->a.k_stride);
#endif
}
ALWAYS_INLINE float product_b_at(const product_state* p, int panel, long k) {
#if PRODUCT_B_STORED
  return operand_element(p->b.base + operand_index(p->b.extent, panel, k, product_n()), k);
#else
  return ((global const float*)p->b.base)[panel_index(p->b.extent, panel, k, product_n())];
#endif
}

// The work-item's element of the product.
ALWAYS_INLINE float product_element(const product_state* p, int panel) {
  float sum = 0.0f;
  if (product_m() >= p->now.rows) return sum;
  for (int k = 0; k < p->now.depth; ++k) {
#if PRODUCT_KEPT
    if (!product_keeps(p, &p->now, panel, k / PRODUCT_KEPT_STEP * PRODUCT_KEPT_STEP)) continue;
#endif
    sum = fma(product_a_at(p, k), product_b_at(p, panel, p->now.k + k), sum);
  }
  return sum;
}

ALWAYS_INLINE void product_multiply(product_state* p, engine_tile* tile, int panel) {
  tile->value = product_element(p, panel);
}

// No work-item reads another's sums, so nothing has to be waited for.
ALWAYS_INLINE void product_accumulate(product_state* p, global float* sums, int panel, int first) {
  const float sum = product_element(p, panel);
  if (product_m() >= p->now.rows) return;
  global float* at = sums + (long)product_m() * TILE_N + product_n();
  *at = first ? sum : *at + sum;
}

// The other tile's elements are registers of work-items; they meet in local memory.
ALWAYS_INLINE void product_multiply_tile(product_state* p, engine_tile* tile,
                                         const engine_tile* other, int k, int depth) {
  local const float* column = product_gather(p, other->value);
  float sum = 0.0f;
  p->now.k = k;
  for (int i = 0; i < depth && product_m() < p->now.rows; ++i) {
    sum = fma(product_a_at(p, i), column[i * TILE_N], sum);
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // read before it is written again
  tile->value = k == 0 ? sum : tile->value + sum;
}

#if PRODUCT_USE == USE_STORE
ALWAYS_INLINE void product_write(const product_state* p, int panel, float value, int add) {
  if (product_m() >= p->now.rows || product_n() >= product_columns(p, panel)) return;
  global ELEMENT(PRODUCT_OUT_TYPE)* to = product_place(p, panel);
  const long at = product_m() * p->out.m_stride + product_n() * p->out.n_stride;
  STORE(PRODUCT_OUT_TYPE, to, at, add ? LOAD(PRODUCT_OUT_TYPE, to, at) + value : value);
}
ALWAYS_INLINE void product_store(const product_state* p, const engine_tile* tile, int panel) {
  product_write(p, panel, tile->value, p->out.how == STORE_ADD);
}
ALWAYS_INLINE void product_clear(const product_state* p) {
  for (int panel = p->panel_begin; panel < p->panel_end; ++panel) product_write(p, panel, 0.0f, 0);
}
#endif
