// SPDX-License-Identifier: Apache-2.0
// Instructions of a warp of NVIDIA's, by inline PTX: 32 lanes that tell each other words, and pairs
// of 16-bit elements (PAIR_TYPE).
#ifndef TESSERA_WARP_CL
#define TESSERA_WARP_CL

#include "common/types.cl"

// The word of the lane whose number differs in this bit.
ALWAYS_INLINE uint warp_swap(uint word, int bit) {
  uint other;
  __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"
                   : "=r"(other)
                   : "r"(word), "r"(bit));
  return other;
}

// The number, hidden from the compiler, which would otherwise compute what follows from it early
// and keep that in registers.
ALWAYS_INLINE int warp_hidden(int number) {
  __asm__ volatile("" : "+r"(number));
  return number;
}

// The work-item ends here. NVIDIA's assembler then knows that what follows is the others', whose
// registers it counts apart.
ALWAYS_INLINE void item_end(void) { __asm__ volatile("exit;" : : : "memory"); }

// All lanes are here, and have seen what the others wrote.
ALWAYS_INLINE void warp_sync(void) { __asm__ volatile("bar.warp.sync 0xffffffff;" : : : "memory"); }

// Four lanes have a word each of four runs of 4; warp_turn gives a lane all words of the run that
// has its number, 16 bytes, and back.
ALWAYS_INLINE void warp_exchange(uint* low, uint* high, int lane, int bit) {
  const uint other = warp_swap(lane & bit ? *low : *high, bit);
  *low = lane & bit ? other : *low;
  *high = lane & bit ? *high : other;
}
ALWAYS_INLINE void warp_turn(uint* words, int lane) {
  warp_exchange(words, words + 1, lane, 1);
  warp_exchange(words + 2, words + 3, lane, 1);
  warp_exchange(words, words + 2, lane, 2);
  warp_exchange(words + 1, words + 3, lane, 2);
}

// The type of pairs, as PTX calls it.
#if PAIR_TYPE == TYPE_F16
#define WARP_PAIR "f16"
#else
#define WARP_PAIR "bf16"
#endif
// A matrix of 8 x 8 16-bit elements in a word of each lane, turned over: lane l has the row l / 4,
// its elements 2 (l % 4) and the next.
ALWAYS_INLINE uint warp_transpose(uint words) {
  uint turned;
  __asm__ volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(words));
  return turned;
}

// Two elements as a pair in a word, the first in its low half.
ALWAYS_INLINE uint warp_pair(float low, float high) {
  uint pair;
  __asm__("cvt.rn." WARP_PAIR "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

#endif
