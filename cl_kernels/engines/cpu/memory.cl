// SPDX-License-Identifier: Apache-2.0
// Geometry of the cpu engine: work-groups of one work-item, without local memory. The scratch of a
// group holds two buffers for packed rows of A, own[0] words together, then tiles of C.

#define PRODUCT_KERNEL __attribute__((reqd_work_group_size(1, 1, 1)))
#define PRODUCT_LOCALS(memory) const product_memory memory = {0}
typedef struct {
  int none;
} product_memory;
#define PRODUCT_STRIP MICRO_M
#define PRODUCT_WHOLE_K 0
#ifndef PRODUCT_DOT_BF16
#define PRODUCT_DOT_BF16 0
#endif
#if PRODUCT_DOT_BF16
#define PRODUCT_WORD_ELEMENTS 2
#endif
#ifndef PRODUCT_ALONG_K
#define PRODUCT_ALONG_K 0
#endif
#if PRODUCT_ALONG_K
#define PRODUCT_PANEL_WORDS LANES
#endif
