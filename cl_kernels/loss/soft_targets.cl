// SPDX-License-Identifier: Apache-2.0
// What happens once per call to targets that are not labels: they are checked and added up, and the
// pairs of the rows that count are put in the order in which kernels come to their columns.
#ifndef TESSERA_SOFT_TARGETS_CL
#define TESSERA_SOFT_TARGETS_CL

#include "common/info.cl"
#include "common/rows.cl"
#include "common/targets.h"
#include "common/types.cl"
#include "loss/arguments.h"

#ifndef LABEL_TYPE
#define LABEL_TYPE TYPE_I32
#endif
#ifndef TARGET_TYPE
#define TARGET_TYPE TYPE_F32
#endif
#ifndef CLASS_TYPE
#define CLASS_TYPE TYPE_F32
#endif

// A probability times the weight of its word's class; `class_weight` is that of word 0, or null.
static inline float weighted_target(global const ELEMENT(CLASS_TYPE) * class_weight, long at,
                                    float probability, long column, const call_rows* call) {
  if (!class_weight) return probability;
  return probability * LOAD(CLASS_TYPE, class_weight, at + column * call->class_stride);
}

// What a row's target comes to: its probabilities times class weights, and its share of the mean's
// denominator.
static inline void put_target(long row, int state, float weighted, float share, global int* lists,
                              global float* values, const call_rows* call) {
  const int counts = state == LABEL_ELSEWHERE;
  lists[call->labels + row] = state;
  values[call->class_of_label + row] = counts ? weighted : 0.0f;
  values[call->share + row] = counts ? share : 0.0f;
}

// One work-item per row.
kernel void gather_pairs(global const ELEMENT(LABEL_TYPE) * indices,
                         global const ELEMENT(TARGET_TYPE) * probs,
                         global const ELEMENT(CLASS_TYPE) * class_weight, global int* lists,
                         global float* values, gather_pairs_arguments a) {
  const long row = get_global_id(0);
  if (row >= a.size.call.rows) return;
  const long index_at = a.at.indices + row_offset(&a.size.given.index_rows, row);
  const long prob_at = a.at.probs + row_offset(&a.size.given.prob_rows, row);
  int state = LABEL_IGNORED;
  float total = 0.0f;
  float weighted = 0.0f;
  for (long pair = 0; pair < a.size.targets.count; ++pair) {
    const long column = indices[index_at + pair * a.size.given.index_stride];
    if (column == a.size.call.ignore_index) continue;
    const float probability = LOAD(TARGET_TYPE, probs, prob_at + pair * a.size.given.prob_stride);
    // A NaN compares false.
    if (column < 0 || column >= a.size.call.v_total || !(probability >= 0.0f)) {
      state = LABEL_OUT_OF_RANGE;
      break;
    }
    state = LABEL_ELSEWHERE;
    total += probability;
    weighted += weighted_target(class_weight, a.at.class_weight, probability, column, &a.size.call);
  }
  put_target(row, state, weighted, total == 0.0f ? 1.0f : weighted / total, lists + a.at.lists,
             values + a.at.values, &a.size.call);
}

// Shell's sort by column of `count` pairs, `ld` apart.
static inline void sort_columns(global int* columns, global float* probs, global float* factors,
                                int count, long ld) {
  int gap = 1;
  while (gap < count / 3) gap = 3 * gap + 1;
  for (; gap > 0; gap /= 3) {
    for (int next = gap; next < count; ++next) {
      const int column = columns[next * ld];
      const float probability = probs[next * ld];
      const float factor = factors[next * ld];
      int to = next;
      for (; to >= gap && columns[(to - gap) * ld] > column; to -= gap) {
        columns[to * ld] = columns[(to - gap) * ld];
        probs[to * ld] = probs[(to - gap) * ld];
        factors[to * ld] = factors[(to - gap) * ld];
      }
      columns[to * ld] = column;
      probs[to * ld] = probability;
      factors[to * ld] = factor;
    }
  }
}

// One work-item per row that counts, and for each that pads the last panel: the latter have none.
kernel void sort_pairs(global const ELEMENT(LABEL_TYPE) * indices,
                       global const ELEMENT(TARGET_TYPE) * probs,
                       global const ELEMENT(CLASS_TYPE) * class_weight, global int* lists,
                       global float* values, sort_pairs_arguments a) {
  const long i = get_global_id(0);
  const target_sizes* to = &a.size.targets;
  if (i >= to->ld) return;
  lists += a.at.lists;
  values += a.at.values;
  global int* columns = lists + a.size.call.counted_labels + to->columns + i;
  int count = 0;
  if (i < lists[INFO_COUNT]) {
    const long row = lists[a.size.call.counted_rows + i];
    const long index_at = a.at.indices + row_offset(&a.size.given.index_rows, row);
    const long prob_at = a.at.probs + row_offset(&a.size.given.prob_rows, row);
    for (long pair = 0; pair < to->count; ++pair) {
      const long column = indices[index_at + pair * a.size.given.index_stride];
      if (column == a.size.call.ignore_index) continue;
      const long local_column = column - a.size.call.vocab_offset;
      if (local_column < 0 || local_column >= a.size.call.v) continue;
      const float probability = LOAD(TARGET_TYPE, probs, prob_at + pair * a.size.given.prob_stride);
      columns[count * to->ld] = (int)local_column;
      values[to->probs + count * to->ld + i] = probability;
      values[to->factors + count * to->ld + i] =
          weighted_target(class_weight, a.at.class_weight, probability, column, &a.size.call);
      ++count;
    }
    sort_columns(columns, values + to->probs + i, values + to->factors + i, count, to->ld);
  }
  for (; count < to->count; ++count) {
    columns[count * to->ld] = INT_MAX;
    values[to->probs + count * to->ld + i] = 0.0f;
  }
}

// 16 neighbours from `p` on, those at or beyond `count` as 0.
#define LOAD_16_0(p) vload16(0, p)
#define LOAD_16_1(p) as_float16(convert_uint16(vload16(0, p)) << 16)
#define LOAD_16_2(p) vload_half16(0, p)
#define DEFINE_LOAD_16(name, type)                                                       \
  static inline float16 name(global const ELEMENT(type) * p, long stride, long count) {  \
    if (stride == 1 && count >= 16) return TESSERA_CAT(LOAD_16_, type)(p);               \
    float each[16];                                                                      \
    for (int n = 0; n < 16; ++n) each[n] = n < count ? LOAD(type, p, n * stride) : 0.0f; \
    return vload16(0, each);                                                             \
  }
DEFINE_LOAD_16(load_16_targets, TARGET_TYPE)
DEFINE_LOAD_16(load_16_classes, CLASS_TYPE)

// One work-item per row. Such a row always counts. What the host has added up is in `sums`, of good
// rows only; else it is added up here, in blocks of several sums side by side: a row is as long as
// the vocabulary, and one sum would wait for itself and round at every step.
kernel void gather_dense(global const ELEMENT(TARGET_TYPE) * targets,
                         global const ELEMENT(CLASS_TYPE) * class_weight, global const float* sums,
                         global int* lists, global float* values, gather_dense_arguments a) {
#define DENSE_BLOCK 1024
  const long row = get_global_id(0);
  if (row >= a.size.call.rows) return;
  const long v_total = sums ? 0 : a.size.call.v_total;
  const long v_stride = a.size.targets.v_stride;
  targets += a.at.targets + row_offset(&a.size.targets.geometry, row);
  float weighted = sums ? sums[a.at.sums + row] : 0.0f;
  int good = 1;
  for (long begin = 0; begin < v_total; begin += DENSE_BLOCK) {
    const long end = min(begin + DENSE_BLOCK, v_total);
    float16 block = (float16)(0.0f);
    for (long v = begin; v < end; v += 16) {
      float16 q = load_16_targets(targets + v * v_stride, v_stride, end - v);
      good &= all(q >= (float16)(0.0f));  // a NaN compares false
      if (class_weight) {
        const long stride = a.size.call.class_stride;
        q *= load_16_classes(class_weight + a.at.class_weight + v * stride, stride, end - v);
      }
      block += q;
    }
    float lanes[16];
    vstore16(block, 0, lanes);
    for (int n = 1; n < 16; ++n) lanes[0] += lanes[n];
    weighted += lanes[0];
  }
  put_target(row, good ? LABEL_ELSEWHERE : LABEL_OUT_OF_RANGE, weighted, 1.0f, lists + a.at.lists,
             values + a.at.values, &a.size.call);
}
#endif
