// SPDX-License-Identifier: Apache-2.0
// A dz of f16 is stored times a power of two, which brings the largest that one can be in a chunk
// of rows to between 2^13 and 2^15, and is taken back where sums of dz are written. f16 ends at
// 2^-24 and 65504, and the dz of a mean over some thousand rows lies below. An element up to 2^27
// times smaller than the largest is a normal number then, whose error is an eighth of what it is in
// bf16; the error of a smaller one is at most 2^-38 of the largest.
#include "common/info.cl"
#include "linear/arguments.h"

#define FIT_ITEMS 128

// The coefficients of the chunk's rows times that power of two, whose inverse becomes *scale. One
// work-group.
kernel __attribute__((reqd_work_group_size(FIT_ITEMS, 1, 1))) void fit_f16(
    global float* coefficients, global float* scale, fit_f16_arguments a) {
  local float largest[FIT_ITEMS];
  const int item = (int)get_local_id(0);
  global float* of = coefficients + a.at.coefficients;
  const int ld = a.size.ld;
  float most = 0.0f;
  for (int row = item; row < ld; row += FIT_ITEMS) {
    // Probabilities are at most 1. What is no number stays so, whatever it is multiplied by.
    const float bound =
        fabs(of[ROW_P * ld + row]) + fabs(of[ROW_Y * ld + row]) + fabs(of[ROW_C * ld + row]);
    if (isfinite(bound)) most = fmax(most, bound);
  }
  largest[item] = most;
  barrier(CLK_LOCAL_MEM_FENCE);  // each has its largest there before they are compared
  for (int i = 0; i < FIT_ITEMS; ++i) most = fmax(most, largest[i]);
  int power = 0;
  if (most > 0.0f) {
    // Each is below 2 to this. Neither the power, nor its inverse, nor a coefficient leaves f32.
    const int coefficient = ilogb(most) + 1;
    const int logit = a.size.logit_scale > 0.0f ? ilogb(a.size.logit_scale) + 1 : 0;
    power = clamp(min(15 - coefficient - logit, 120 - coefficient), -126, 126);
  }
  const float factor = ldexp(1.0f, power);
  for (int row = item; row < ld; row += FIT_ITEMS) {
    of[ROW_P * ld + row] *= factor;
    of[ROW_Y * ld + row] *= factor;
    of[ROW_C * ld + row] *= factor;
  }
  if (item == 0) scale[a.at.scale] = ldexp(1.0f, -power);
}
