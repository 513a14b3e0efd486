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

// What a row's label says.
#define LABEL_ELSEWHERE (-1)  // in the vocabulary, not in this shard
#define LABEL_IGNORED (-2)
#define LABEL_OUT_OF_RANGE (-3)

// Per row and slice of the vocabulary: the fields of tessera::Partial, as f32 words.
#define STAT_MAX 0
#define STAT_SUM 1
#define STAT_LABEL_LOGIT 2
#define STAT_CLASS_LOGIT 3
#define STAT_CLASS_SUM 4
#define STAT_ARGMAX_VALUE 5
#define STAT_ARGMAX 6
#define STAT_EXP_LOGIT 7
#define STAT_FIELDS 8

// Per counted row, for gradients: p = exp(logit - SHIFT) * INVERSE_SUM and
// dlogit = P * p - Y * [v is the label] - C * c_v.
#define ROW_SHIFT 0
#define ROW_INVERSE_SUM 1
#define ROW_P 2
#define ROW_Y 3
#define ROW_C 4

#endif
