// SPDX-License-Identifier: Apache-2.0
// Instructions of NVIDIA's Hopper by inline PTX. The driver's compiler takes those of sm_90; lines
// that need sm_90a begin with the mark `//@ ` and are comments to it, whose operands it fills in.
// The host then takes the marks away. Addresses of local memory are those of the instructions: its
// first byte has 0.
#ifndef TESSERA_WGMMA_INSTRUCTIONS_CL
#define TESSERA_WGMMA_INSTRUCTIONS_CL

#include "common/types.cl"

// Barriers that count arrivals and bytes: of 8 bytes each, in local memory. A phase of one ends
// when as many have arrived as it was made for, and all bytes that they expect are there.
ALWAYS_INLINE void mbarrier_init(uint barrier_at, uint arrivals) {
  __asm__ volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                   :
                   : "r"(barrier_at), "r"(arrivals)
                   : "memory");
}
// Shows them to what copies, too; a barrier of the work-group has to follow.
ALWAYS_INLINE void mbarrier_publish(void) {
  __asm__ volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}
ALWAYS_INLINE void mbarrier_arrive(uint barrier_at) {
  __asm__ volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }"
                   :
                   : "r"(barrier_at)
                   : "memory");
}
ALWAYS_INLINE void mbarrier_arrive_expecting(uint barrier_at, uint bytes) {
  __asm__ volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }"
                   :
                   : "r"(barrier_at), "r"(bytes)
                   : "memory");
}
// Looks for a while; 1: the phase of this parity has ended. The first has 0, and the one before it
// has ended.
ALWAYS_INLINE int mbarrier_has_ended(uint barrier_at, uint parity) {
  int ended;
  __asm__ volatile(
      "{ .reg .pred ended; mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2; "
      "selp.s32 %0, 1, 0, ended; }"
      : "=r"(ended)
      : "r"(barrier_at), "r"(parity)
      : "memory");
  return ended;
}

// Has copies that come later to where this work-item wrote see that it did.
ALWAYS_INLINE void copies_after_stores(void) {
  __asm__ volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

// A tensor map, MAP_BYTES that begin at a multiple of them, describes a matrix of 16-bit elements
// to what copies boxes of it: rows of 64 columns, which local memory has as 128 bytes with their
// 16-byte parts in swizzled order; elements outside the matrix come as 0.
#define MAP_BYTES 128

// Fills in `map`, all 0 in local memory, by one work-item. `row_stride`: in the unit that the
// driver's assembler takes. The type is named u16: bf16 is copied as it is.
ALWAYS_INLINE void map_describe(ulong map, global const ushort* base, uint columns, uint rows,
                                ulong row_stride, uint box_rows) {
  __asm__ volatile(
      "//@ tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;\n"
      "//@ tensormap.replace.tile.rank.shared::cta.b1024.b32 [%0], %7;\n"
      "//@ tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 0, %6;\n"
      "//@ tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 1, %5;\n"
      "//@ tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 0, %2;\n"
      "//@ tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %3;\n"
      "//@ tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %4;\n"
      "//@ tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 0, %7;\n"
      "//@ tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 1, %7;\n"
      "//@ tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], 1;\n"
      "//@ tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%0], 0;\n"
      "//@ tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], 3;\n"
      "//@ tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], 0;"
      :
      : "l"(map), "l"(base), "r"(columns), "r"(rows), "l"(row_stride), "r"(box_rows), "r"(64u),
        "r"(1u)  // the strides of elements, and the rank, which counts from 0
      : "memory");
}
// Puts it where kernels that come later take it from, by a warp.
ALWAYS_INLINE void map_publish(global uchar* to, ulong map) {
  __asm__ volatile(
      "//@ tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
      "[%0], [%1], 128;"
      :
      : "l"(to), "l"(map)
      : "memory");
}
// Has the work-item that copies see it. NVIDIA's assembler has left out the fence where no wait
// followed.
ALWAYS_INLINE void map_acquire(global const uchar* map) {
  __asm__ volatile(
      "fence.proxy.tensormap::generic.acquire.gpu [%0], 128;\n"
      "cp.async.bulk.commit_group;\n"
      "cp.async.bulk.wait_group.read 0;"
      :
      : "l"(map)
      : "memory");
}
// Brings the box from (row, column) on to a multiple of 1024 bytes; `barrier_at` gets its bytes.
ALWAYS_INLINE void map_copy(uint to, global const uchar* map, int column, int row,
                            uint barrier_at) {
  __asm__ volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];"
      :
      : "r"(to), "l"(map), "r"(column), "r"(row), "r"(barrier_at)
      : "memory");
}

// An operand in local memory, as boxes lie there, to the matrix unit: 8 rows of 128 bytes are 1024
// bytes; where m or n is along rows, the next 64 of it are 8192 bytes away.
#define WGMMA_UNIT 16  // of its addresses and strides, in bytes
ALWAYS_INLINE ulong wgmma_operand(uint at) {
  const ulong start = (at & 0x3ffffu) / WGMMA_UNIT, next_64 = 8192 / WGMMA_UNIT,
              next_8 = 1024 / WGMMA_UNIT, swizzle_128 = 1;
  return start | next_64 << 16 | next_8 << 32 | swizzle_128 << 62;
}
// From it to the next 16 of k: 32 bytes of a row, or 16 rows.
#define WGMMA_NEXT_K(by_k) (((by_k) ? 32 : 2048) / WGMMA_UNIT)

// The sums of a warpgroup's 64 rows: work-item `item` of it has 4 of every 8 columns, i of them
// all in (wgmma_row, wgmma_column).
ALWAYS_INLINE int wgmma_row(int i, int item) {
  return item / 32 * 16 + item % 32 / 4 + i / 2 % 2 * 8;
}
ALWAYS_INLINE int wgmma_column(int i, int item) { return i / 4 * 8 + item % 4 * 2 + i % 2; }

// Sums of the instruction as operands of inline PTX: the first 64 of a statement, the next 64.
#define WGMMA_SUMS                                                                       \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"   \
  "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43," \
  "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define WGMMA_NEXT_SUMS                                                                  \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84," \
  "%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,"     \
  "%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,"     \
  "%120,%121,%122,%123,%124,%125,%126,%127"
#define WGMMA_TIED_4(sums) "+f"((sums)[0]), "+f"((sums)[1]), "+f"((sums)[2]), "+f"((sums)[3])
#define WGMMA_TIED_16(sums) \
  WGMMA_TIED_4(sums), WGMMA_TIED_4((sums) + 4), WGMMA_TIED_4((sums) + 8), WGMMA_TIED_4((sums) + 12)
#define WGMMA_TIED_64(sums)                                                    \
  WGMMA_TIED_16(sums), WGMMA_TIED_16((sums) + 16), WGMMA_TIED_16((sums) + 32), \
      WGMMA_TIED_16((sums) + 48)

// Registers go from the warpgroup that copies, which is given 40, to two that multiply.
ALWAYS_INLINE void registers_give(void) {
  __asm__ volatile("//@ setmaxnreg.dec.sync.aligned.u32 40;" : : : "memory");
}
ALWAYS_INLINE void registers_take(void) {
  __asm__ volatile("//@ setmaxnreg.inc.sync.aligned.u32 232;" : : : "memory");
}

#endif
