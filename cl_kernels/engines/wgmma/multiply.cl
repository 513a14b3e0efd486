// SPDX-License-Identifier: Apache-2.0
// All steps of a tile by the matrix unit. The tile is turned: a warpgroup has 64 columns of it,
// which are the instruction's rows, by all of its rows.

#define PRODUCT_INSTRUCTION(more)                                                              \
  "//@ wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" WGMMA_SUMS "," WGMMA_NEXT_SUMS \
  "}, columns, rows, " more ", 1, 1, %138, %139;\n"
#define PRODUCT_NEXT_INSTRUCTION                                                     \
  "//@ add.u32 columns_at, columns_at, %140; mov.b64 columns, {columns_at, %142};\n" \
  "//@ add.u32 rows_at, rows_at, %141; mov.b64 rows, {rows_at, %142};\n" PRODUCT_INSTRUCTION("1")

// sums = the product of so many steps, of which the first `releases` are released by this work-item
// once they have been read. One statement has all of it: between two, compilers would wait for the
// unit, or move sums.
ALWAYS_INLINE void product_sum_steps(product_state* p, float* sums, uint steps, uint releases) {
  const uint stages = (uint)(size_t)p->memory.steps;
  const uint first_column = (uint)get_local_id(0) / 128 * 64;
  const ulong columns = wgmma_operand(stages + PRODUCT_BYTES_A + first_column * PRODUCT_LINE);
  const ulong rows = wgmma_operand(stages);
  // Operands differ in their low words alone, where they begin: sums of 32 bits take fewer
  // registers.
  __asm__ volatile(
      "//@ { .reg .pred done, adds; .reg .b32 step, full, empty, columns_at, rows_at;\n"
      "//@ .reg .b64 columns, rows, state;\n"
      "//@ mov.b32 step, 0; mov.b32 empty, 0;\n"
      "//@ STEP:\n"
      "//@ shl.b32 full, %128, 3; add.u32 full, full, %130;\n"
      "//@ WAIT:\n"
      "//@ mbarrier.try_wait.parity.shared::cta.b64 done, [full], %129;\n"
      "//@ @!done bra WAIT;\n"
      "//@ mad.lo.u32 columns_at, %128, %136, %131; mov.b64 columns, {columns_at, %142};\n"
      "//@ mad.lo.u32 rows_at, %128, %136, %132; mov.b64 rows, {rows_at, %142};\n"
      "//@ setp.ne.u32 adds, step, 0;\n"
      "//@ wgmma.fence.sync.aligned;\n"  //
      PRODUCT_INSTRUCTION("adds")
          PRODUCT_NEXT_INSTRUCTION PRODUCT_NEXT_INSTRUCTION PRODUCT_NEXT_INSTRUCTION
      "//@ wgmma.commit_group.sync.aligned;\n"
      // The step before has been read, while this one is.
      "//@ wgmma.wait_group.sync.aligned 1;\n"
      "//@ setp.le.u32 done, step, %134; and.pred done, done, adds;\n"
      "//@ @done mbarrier.arrive.shared::cta.b64 state, [empty];\n"
      "//@ add.u32 empty, full, %137;\n"
      "//@ add.u32 %128, %128, 1; setp.eq.u32 done, %128, %135; selp.b32 %128, 0, %128, done;\n"
      "//@ @done xor.b32 %129, %129, 1;\n"
      "//@ add.u32 step, step, 1; setp.lt.u32 done, step, %133;\n"
      "//@ @done bra STEP;\n"
      "//@ wgmma.wait_group.sync.aligned 0;\n"
      "//@ setp.le.u32 done, step, %134;\n"
      "//@ @done mbarrier.arrive.shared::cta.b64 state, [empty]; }"
      : WGMMA_TIED_64(sums), WGMMA_TIED_64(sums + 64), "+r"(p->memory.stage), "+r"(p->memory.parity)
      : "r"(p->memory.barriers), "r"((uint)columns), "r"((uint)rows), "r"(steps), "r"(releases),
        "n"(STAGES), "n"(PRODUCT_STAGE / WGMMA_UNIT), "n"(8 * STAGES), "n"(!PRODUCT_B_BY_K),
        "n"(!PRODUCT_A_BY_K), "n"(WGMMA_NEXT_K(PRODUCT_B_BY_K)), "n"(WGMMA_NEXT_K(PRODUCT_A_BY_K)),
        "r"((uint)(rows >> 32))
      : "memory");
}
