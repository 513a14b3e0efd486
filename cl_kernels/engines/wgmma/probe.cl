// SPDX-License-Identifier: Apache-2.0
// One tile by the matrix unit of NVIDIA's Hopper, for the host to compare with its own product
// (host/engines/wgmma_probe.cpp): c[m][n] = sum over k of a(m, k) * b(n, k), of bf16 with f32 sums,
// by all that the engine is built of.
#include "engines/wgmma/instructions.cl"

// 1: k is along the rows of a matrix in memory; 0: m or n is.
#ifndef PROBE_A_BY_K
#define PROBE_A_BY_K 1
#define PROBE_B_BY_K 0
#elif defined(__x86_64__)
// LLVM ends the process where it comes to the operands of probe_multiply.
#error "these are instructions of NVIDIA's"
#endif

// A step of k lies in a stage, A before B, each of 128 x 64 elements.
#define PROBE_TILE 128
#define PROBE_STEP 64
#define PROBE_OPERAND (2 * PROBE_TILE * PROBE_STEP)  // bytes
#define PROBE_STAGE (2 * PROBE_OPERAND)
#define PROBE_STAGES 2
#define PROBE_WARP __attribute__((reqd_work_group_size(32, 1, 1)))
// Two warpgroups multiply 64 rows each, the third copies.
#define PROBE_GROUP __attribute__((reqd_work_group_size(384, 1, 1)))
#define PROBE_WARPS 8  // that multiply

// Tensor map `index`, of a matrix of `columns` that are contiguous.
kernel PROBE_WARP void make_map(global uchar* maps, int index, global const ushort* base,
                                uint columns, uint rows, ulong row_stride, uint box_rows) {
  local uint map[MAP_BYTES / 4] __attribute__((aligned(MAP_BYTES)));
  const ulong map_at = (ulong)(size_t)map;
  map[get_local_id(0)] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) == 0) map_describe(map_at, base, columns, rows, row_stride, box_rows);
  barrier(CLK_LOCAL_MEM_FENCE);
  map_publish(maps + index * MAP_BYTES, map_at);
}

// 0: it has not come in seconds. What a device gets wrong must not hang it.
ALWAYS_INLINE int probe_wait(uint barrier_at, uint parity) {
  for (int tries = 0; tries < 1 << 20; ++tries) {
    if (mbarrier_has_ended(barrier_at, parity)) return 1;
  }
  return 0;
}

// Brings step k of an operand: a box of 128 rows, or two of 64 rows side by side.
ALWAYS_INLINE void probe_bring(uint to, global const uchar* map, int by_k, int k, uint full) {
  if (by_k) {
    map_copy(to, map, k, 0, full);
  } else {
    map_copy(to, map, 0, k, full);
    map_copy(to + PROBE_OPERAND / 2, map, PROBE_TILE / 2, k, full);
  }
}

#define PROBE_PRODUCT(more)                                                                 \
  "//@ wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" WGMMA_SUMS "}, a, b, " more \
  ", 1, 1, %67, %68;\n"                                                                     \
  "//@ add.u64 a, a, %69; add.u64 b, b, %70;\n"
// sums of 64 x 128 = (first ? 0 : sums) + a step of a by one of b, which have been read then.
ALWAYS_INLINE void probe_multiply(float* sums, ulong a, ulong b, int first) {
  __asm__ volatile(
      "//@ { .reg .pred more; .reg .b64 a, b;\n"
      "//@ setp.eq.u32 more, %66, 0; mov.b64 a, %64; mov.b64 b, %65;\n"
      "//@ wgmma.fence.sync.aligned;\n"  //
      PROBE_PRODUCT("more") PROBE_PRODUCT("1") PROBE_PRODUCT("1") PROBE_PRODUCT("1")
      "//@ wgmma.commit_group.sync.aligned;\n"
      "//@ wgmma.wait_group.sync.aligned 0; }"
      : WGMMA_TIED_64(sums)
      : "l"(a), "l"(b), "r"(first), "n"(!PROBE_A_BY_K), "n"(!PROBE_B_BY_K),
        "n"(WGMMA_NEXT_K(PROBE_A_BY_K)), "n"(WGMMA_NEXT_K(PROBE_B_BY_K))
      : "memory");
}

kernel PROBE_GROUP void probe(global const uchar* maps, int m_count, int n_count, int k_count,
                              global float* c) {
  local uchar memory[PROBE_STAGES * PROBE_STAGE + 1024];  // [stage][operand][row][128 bytes]
  local ulong barriers[2 * PROBE_STAGES];                 // [full, empty][stage]
  const uint stages = ((uint)(size_t)memory + 1023u) & ~1023u;
  const uint full = (uint)(size_t)barriers, empty = full + 8 * PROBE_STAGES;
  const int item = (int)get_local_id(0);
  if (item == 0) {
    for (int stage = 0; stage < PROBE_STAGES; ++stage) {
      mbarrier_init(full + 8 * stage, 1);
      mbarrier_init(empty + 8 * stage, PROBE_WARPS);
    }
    mbarrier_publish();
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (item >= PROBE_WARPS * 32) {
    registers_give();
    if (item == PROBE_WARPS * 32) {
      global const uchar* map_b = maps + MAP_BYTES;
      map_acquire(maps);
      map_acquire(map_b);
      for (int k = 0, step = 0; k < k_count; k += PROBE_STEP, ++step) {
        const uint stage = step % PROBE_STAGES, to = stages + stage * PROBE_STAGE;
        if (!probe_wait(empty + 8 * stage, ~(step / PROBE_STAGES) & 1)) break;
        mbarrier_arrive_expecting(full + 8 * stage, PROBE_STAGE);
        probe_bring(to, maps, PROBE_A_BY_K, k, full + 8 * stage);
        probe_bring(to + PROBE_OPERAND, map_b, PROBE_B_BY_K, k, full + 8 * stage);
      }
    }
    return;
  }
  registers_take();
  const int group = item / 128;
  const ulong a = wgmma_operand(stages + group * (PROBE_OPERAND / 2));
  const ulong b = wgmma_operand(stages + PROBE_OPERAND);
  float sums[PROBE_TILE / 2];
#pragma unroll
  for (int i = 0; i < PROBE_TILE / 2; ++i) sums[i] = 0.0f;
  for (int k = 0, step = 0; k < k_count; k += PROBE_STEP, ++step) {
    const uint stage = step % PROBE_STAGES;
    const ulong on = stage * (PROBE_STAGE / WGMMA_UNIT);
    if (!probe_wait(full + 8 * stage, step / PROBE_STAGES & 1)) break;
    probe_multiply(sums, a + on, b + on, step == 0);
    if (item % 32 == 0) mbarrier_arrive(empty + 8 * stage);
  }
#pragma unroll
  for (int i = 0; i < PROBE_TILE / 2; ++i) {
    const int m = 64 * group + wgmma_row(i, item % 128), n = wgmma_column(i, item % 128);
    if (m < m_count && n < n_count) c[m * n_count + n] = sums[i];
  }
}
