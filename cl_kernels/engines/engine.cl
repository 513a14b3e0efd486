// SPDX-License-Identifier: Apache-2.0
// How a device multiplies. An engine offers, for every product C[m][n] (+)= sum_k A[m][k] * B[k][n]:
//
//   TILE_N            columns of a tile; B comes packed in panels [k][TILE_N] of f32
//   TILE_M            rows of A that one step holds
//   FOR_LANE_GROUPS   how work-items share the columns of a tile in an epilogue
//   C_SPACE           where the tile lives: `global` scratch or `local` memory
//
// and two calls, made by every work-item of the group together:
//
//   ENGINE_LOAD_A(rows, depth)                 takes rows [0, rows) of A, `depth` deep
//   ENGINE_MULTIPLY(c, ldc, b, rows, depth, first)   c = A * b, or c += A * b when !first
//
// The skeleton defines where A comes from before it includes this file:
//
//   A_AT(m, k)        one element as f32; m < rows and k < depth always hold
//   A_CONTIGUOUS_K    1: A_VECTOR_K(m, k) loads LANES elements k, k+1, ...
//   A_CONTIGUOUS_M    1: A_VECTOR_M(m, k) loads LANES elements m, m+1, ...
#ifndef TESSERA_ENGINE_CL
#define TESSERA_ENGINE_CL
#if ENGINE_CPU
#include "engines/cpu/engine.cl"
#elif ENGINE_SIMT
#include "engines/simt/engine.cl"
#else
#error "define ENGINE_CPU or ENGINE_SIMT"
#endif
#endif
