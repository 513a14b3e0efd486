// SPDX-License-Identifier: Apache-2.0
// What every kernel that multiplies takes beside its own arguments; made by Engine::call
// (host/engines/engine.hpp).
#ifndef TESSERA_ENGINE_ARGUMENTS_H
#define TESSERA_ENGINE_ARGUMENTS_H

#include "common/arguments.h"

KERNEL_STRUCTS_BEGIN(engines)
typedef struct {
  INT64 group_words;       // scratch of each work-group, in f32 words
  INT64 own[2];            // the engine's own numbers
  INT32 tile_m;            // rows of A that a tile has at most
  INT32 k_step;            // words of k that a tile has at most
  INT32 panels_per_group;  // panels of columns that one work-group takes
  INT32 parts;             // of the rows of A, which the work-groups take in turn
} engine_call;

// A matrix in the caller's memory, as operand A: strides in elements. The first m_readable rows may
// be loaded, also where they are beyond the rows of a product.
typedef struct {
  INT64 m_stride, k_stride;
  INT64 m_readable;
} matrix_sizes;
// How a product is stored in a matrix of the caller's.
#define STORE_NEW 0
#define STORE_ADD 1       // to what it holds
#define STORE_STREAMED 2  // past the caches, which have no room for it
// Where work-items share a panel's columns, so many of them pack blocks of so many columns, and as
// many words of each.
#define PACK_GROUP 64
#define PACK_EDGE 32
KERNEL_STRUCTS_END

#endif
