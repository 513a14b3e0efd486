// SPDX-License-Identifier: Apache-2.0
// The gradient of logits that exist, element by element: it may overwrite them (in place).
#ifndef TESSERA_DLOGITS_CL
#define TESSERA_DLOGITS_CL

#include "common/logit.cl"
#include "softmax_cross_entropy/stream.cl"

#ifndef OUT_TYPE
#define OUT_TYPE TYPE_F32
#endif
#ifndef OUT_CONTIGUOUS
#define OUT_CONTIGUOUS 1
#endif

DEFINE_STORE_COLUMNS(store_columns, OUT_TYPE, OUT_CONTIGUOUS)

#if STREAMS && OUT_CONTIGUOUS && !CLASS_GRADIENT && (OUT_TYPE == TYPE_F32 || OUT_TYPE == TYPE_BF16)
#define STREAMS_GRADIENT 1
// coefficient * exp(logit - shift); exactly 0 where that is nothing beside 1.
static inline lane_f stream_dlogit(lane_f logit, lane_f shift, lane_f coefficient) {
  const lane_f d = lane_at_most_0(logit - shift);
  lane_f power, factor;
  lane_exp_parts(d, &power, &factor);
  return d < (lane_f)(LEAST_DIFFERENCE) ? (lane_f)(0.0f) : power * coefficient * factor;
}

#if OUT_TYPE == TYPE_F32
#define STREAM_STORE(values, p) STORE_ANYWHERE(global, values, p)
#else
typedef struct __attribute__((packed)) {
  LANE_CAT(ushort) value;
} stream_out;
typedef LANE_CAT(uint) lane_bits;
// As float_to_bf16. Only an f32 logit brings a NaN that the carry could turn into something else.
static inline lane_bits lane_bf16(lane_f value) {
  const lane_bits u = LANE_CAT(as_uint)(value);
  const lane_bits rounded = u + (lane_bits)(0x7fffu) + ((u >> 16) & (lane_bits)(1u));
#if LOGITS_TYPE == TYPE_F32
  return value == value ? rounded : u | (lane_bits)(0x400000u);
#else
  return rounded;
#endif
}
#define STREAM_STORE(values, p) \
  (((global stream_out*)(p))->value = LANE_CAT(convert_ushort)(lane_bf16(values) >> 16))
#endif
// Even and odd columns that lie in turns.
#if OUT_TYPE == TYPE_BF16 && defined(__ENDIAN_LITTLE__)
typedef struct __attribute__((packed)) {
  lane_bits value;
} stream_pairs;
#define STREAM_STORE_PAIRS(even, odd, p) \
  (((global stream_pairs*)(p))->value =  \
       (lane_bf16(even) >> 16) | (lane_bf16(odd) & (lane_bits)(0xffff0000u)))
#else
#define STREAM_STORE_PAIRS(even, odd, p)                 \
  {                                                      \
    float turns[2 * LANES];                              \
    const lane_f even_ = (even), odd_ = (odd);           \
    float evens[LANES], odds[LANES];                     \
    LANE_STORE(even_, evens);                            \
    LANE_STORE(odd_, odds);                              \
    for (int lane = 0; lane < LANES; ++lane) {           \
      turns[2 * lane] = evens[lane];                     \
      turns[2 * lane + 1] = odds[lane];                  \
    }                                                    \
    STREAM_STORE(LANE_LOAD(turns), p);                   \
    STREAM_STORE(LANE_LOAD(turns + LANES), (p) + LANES); \
  }
#endif

// Whole blocks of [begin, end) but for the label's column; returns where the rest begins. `row` and
// `out` are the row's first columns.
static inline long stream_gradient(global const ELEMENT(LOGITS_TYPE) * row,
                                   global ELEMENT(OUT_TYPE) * out, long begin, long end,
                                   lane_f shift, lane_f coefficient, float scale) {
  for (; end - begin >= STREAM_BLOCK; begin += STREAM_BLOCK) {
    global const ELEMENT(LOGITS_TYPE)* p = row + begin;
    global ELEMENT(OUT_TYPE)* to = out + begin;
#if OUT_TYPE == TYPE_F32
    for (int v = 0; v < STREAM_BLOCK; v += LANES) {
      const lane_f logit = SCALE_LOGIT(LANE_LOAD_TYPE(LOGITS_TYPE, p + v));
      STREAM_STORE(stream_dlogit(logit, shift, coefficient), to + v);
    }
#else
    // Rounding in a loop of its own: both together are more than a processor has in flight.
    float values[STREAM_BLOCK];
    for (int v = 0; v < STREAM_BLOCK; v += LANES) {
      const lane_f logit = SCALE_LOGIT(LANE_LOAD_TYPE(LOGITS_TYPE, p + v));
      LANE_STORE(stream_dlogit(logit, shift, coefficient), values + v);
    }
    for (int v = 0; v < STREAM_BLOCK; v += LANES) STREAM_STORE(LANE_LOAD(values + v), to + v);
#endif
  }
  return begin;
}

#if KEEPS
// The same of the columns [begin, end), from what was kept.
static inline void stream_kept(const kept_columns* kept, global ELEMENT(OUT_TYPE) * out, long begin,
                               long end, lane_f coefficient) {
#define FROM_KEPT(e) ((e) > (lane_f)(LEAST_KEPT) ? (e)*coefficient : (lane_f)(0.0f))
  for (; begin < end; begin += STREAM_BLOCK) {
    local const float* e = kept->memory + begin;
    global ELEMENT(OUT_TYPE)* to = out + begin;
#ifdef LOAD_ODD
    for (int v = 0; v < STREAM_BLOCK; v += 2 * LANES) {
      const lane_f even = LOAD_ANYWHERE(local, e + v / 2);
      const lane_f odd = LOAD_ANYWHERE(local, e + STREAM_BLOCK / 2 + v / 2);
      STREAM_STORE_PAIRS(FROM_KEPT(even), FROM_KEPT(odd), to + v);
    }
#else
    for (int v = 0; v < STREAM_BLOCK; v += LANES) {
      const lane_f value = LOAD_ANYWHERE(local, e + v);
      STREAM_STORE(FROM_KEPT(value), to + v);
    }
#endif
  }
}
#endif
#endif

#if KEEPS && STREAMS
#define KEPT_INPUT , const kept_columns* kept
#else
#define KEPT_INPUT
#endif

#if defined(STREAMS_GRADIENT) && TARGETS == TARGETS_PAIRS
// The columns of [begin, end) that pairs have, once more, from the logits that were kept of them.
static inline void store_pairs(const logits_row* row, global ELEMENT(OUT_TYPE) * out, long begin,
                               long end, const lane_row* r) {
  for (int pair = pair_from(row, begin); PAIR_COLUMN(row, pair) < end;) {
    const long v = PAIR_COLUMN(row, pair);
    const lane_f logit = (lane_f)(PAIR_VALUE(row, logits, pair));
    float factor = 0.0f;
    for (; PAIR_COLUMN(row, pair) == v; ++pair) factor += PAIR_VALUE(row, factors, pair);
    const lane_f share = r->y * (lane_f)(factor);
    const lane_f g = lane_dlogit(logit, (lane_i)(-1), share, (lane_f)(0.0f), r);
    STORE(OUT_TYPE, out, v, LANE_FIRST(lane_dz(g, logit, row->scale, row->cap)));
  }
}
#endif

// Of the columns of a row's slice, the gradient to `out`, where the row's first column is. `c`
// holds the row's coefficients, [field][ld_].
static inline void slice_gradient(logits_row* row, global const float* c, long ld_,
                                  global ELEMENT(OUT_TYPE) * out, long out_v_stride,
                                  int add KEPT_INPUT) {
  const long v_begin = row->begin;
  const long v_end = row->end;
#if TARGETS == TARGETS_LABELS
  const long label = row->label;
#endif
  const float scale = row->scale;
  const float cap = row->cap;
  row->apart |=
      !OUT_CONTIGUOUS || BEFORE_VECTOR(OUT_TYPE, out) != BEFORE_VECTOR(LOGITS_TYPE, row->logits);
  lane_row r;
  r.shift = (lane_f)(c[ROW_SHIFT * ld_]);
  r.inverse_sum = (lane_f)(c[ROW_INVERSE_SUM * ld_]);
  r.p = (lane_f)(c[ROW_P * ld_]);
  r.y = (lane_f)(c[ROW_Y * ld_]);
  r.c = (lane_f)(c[ROW_C * ld_]);
  long rest = v_begin;
#ifdef STREAMS_GRADIENT
  const lane_f coefficient = r.p * r.inverse_sum * (lane_f)(scale);
  // NaN and infinite rows go the general way.
  if (!add && all(isfinite(coefficient))) {
    // In place, the label's logit is gone after this.
#if TARGETS == TARGETS_PAIRS
    keep_pair_logits(row);
#else
    const int labelled = label >= v_begin && label < v_end;
    const lane_f label_logit =
        labelled ? SCALE_LOGIT((lane_f)(LOAD(LOGITS_TYPE, row->logits, label))) : (lane_f)(0.0f);
#endif
#if KEEPS
    if (kept->to > kept->from) {
      stream_gradient(row->logits, out, v_begin, kept->from, r.shift, coefficient, scale);
      stream_kept(kept, out, kept->from, kept->to, coefficient * lane_exp(kept->shift - r.shift));
      rest = kept->to;
    }
#endif
    rest = stream_gradient(row->logits, out, rest, v_end, r.shift, coefficient, scale);
#if TARGETS == TARGETS_PAIRS
    store_pairs(row, out, v_begin, rest, &r);
#else
    if (labelled && label < rest) {
      const lane_f g = lane_dlogit(label_logit, (lane_i)(-1), r.y, (lane_f)(0.0f), &r);
      const lane_f dz = lane_dz(g, label_logit, scale, cap);
      STORE(OUT_TYPE, out, label, LANE_FIRST(dz));
    }
#endif
  }
#endif
#if TARGETS == TARGETS_PAIRS
  int pair = pair_from(row, rest);
#endif
  for (long end; rest < v_end; rest = end) {
    end = pass_end(row, rest, v_end);
    FOR_COLUMNS(v, rest, end, row->apart) {
      const lane_f logit = LOGIT_OR(v, end, 0.0f);
#if TARGETS == TARGETS_LABELS
      const lane_i is_label = LANE_COLUMNS(v, row->apart) == (lane_i)((int)label);
      const lane_f share = r.y;
#elif TARGETS == TARGETS_PAIRS
      lane_f share;
      const lane_i is_label = pair_shares(row, &pair, v, r.y, &share);
#else
      const lane_i is_label = (lane_i)(0);
      const lane_f share = (lane_f)(0.0f);
#endif
#if CLASS_GRADIENT
      lane_f classes = CLASSES_OR_0(v, end);
#else
      lane_f classes = (lane_f)(0.0f);
#endif
#if TARGETS == TARGETS_DENSE
      classes = dense_target(row->sizes, PROBABILITIES_OR_0(v, end), classes);
#endif
      const lane_f g = lane_dlogit(logit, is_label, share, classes, &r);
      store_columns(out, v * out_v_stride, out_v_stride, end - v, lane_dz(g, logit, scale, cap),
                    add, row->apart);
    }
  }
}

#endif
