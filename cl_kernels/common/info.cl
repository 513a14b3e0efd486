// SPDX-License-Identifier: Apache-2.0
// What `compact` finds out about the rows of a call, and every later kernel reads: 16 words.
#ifndef TESSERA_INFO_CL
#define TESSERA_INFO_CL

#define INFO_COUNT 0        // int: rows that count, in compact order
#define INFO_BAD_COUNT 1    // int: rows with a label out of range
#define INFO_BAD_ROW_LOW 2  // two ints: the first such row
#define INFO_BAD_ROW_HIGH 3
#define INFO_DENOMINATOR 4  // float: sum of weight * c_y over counted rows
#define INFO_CLASS_TOTAL 5  // float: sum of class weights over the whole vocabulary

// What says which words a row is about, and so what a kernel is compiled for: a label; pairs of a
// word and its probability; or a probability for every word.
#define TARGETS_LABELS 0
#define TARGETS_PAIRS 1
#define TARGETS_DENSE 2
#ifndef TARGETS
#define TARGETS TARGETS_LABELS
#endif

// What a row's label says. Rows with other targets have one too: LABEL_ELSEWHERE where they count.
#define LABEL_ELSEWHERE (-1)  // in the vocabulary, not in this shard
#define LABEL_IGNORED (-2)
#define LABEL_OUT_OF_RANGE (-3)

// Per row and slice of the vocabulary, f32 words: the first fields of tessera::Partial.
#define STAT_MAX 0
#define STAT_SUM 1
#define STAT_LABEL_LOGIT 2
#define STAT_CLASS_LOGIT 3
#define STAT_CLASS_SUM 4
#define STAT_ARGMAX_VALUE 5
#define STAT_ARGMAX 6
#define STAT_EXP_LOGIT 7
#if TARGETS == TARGETS_DENSE
// The sum of probabilities; STAT_LABEL_LOGIT is that of them times logits. Classes have targets for
// weights, but on a shard (PARTIAL), where the same sums with class weights come last.
#define STAT_TARGET_SUM 8
#if PARTIAL
#define STAT_WEIGHTED_LOGIT 9
#define STAT_WEIGHTED_SUM 10
#define STAT_FIELDS 11
#else
#define STAT_FIELDS 9
#endif
#else
#define STAT_FIELDS 8
#endif
// The fields that tessera::Partial has besides, of soft targets.
#define PARTIAL_TARGET_LOGIT 8
#define PARTIAL_TARGET_SUM 9
#define PARTIAL_WEIGHTED_LOGIT 10
#define PARTIAL_WEIGHTED_SUM 11
#define PARTIAL_FIELDS 12

// Per counted row, for gradients: p = exp(logit - SHIFT) * INVERSE_SUM and
// dlogit = P * p - Y * [v is the label] - C * c_v. A pair takes Y times its factor; where every
// word has a probability, c_v is its target and Y is 0.
#define ROW_SHIFT 0
#define ROW_INVERSE_SUM 1
#define ROW_P 2
#define ROW_Y 3
#define ROW_C 4

#endif
