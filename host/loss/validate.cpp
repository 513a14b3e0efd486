// SPDX-License-Identifier: Apache-2.0
#include "host/loss/validate.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "host/loss/results.hpp"
#include "host/loss/targets.hpp"

namespace tessera::loss {

namespace {

/// Members that have a meaning in some passes only: silence would hide a mistake.
void check_passes(const arguments::Checks& checks, const LossRequest& in,
                  const LossOptions& options) {
  const Pass pass = in.pass;
  if (!has_gradients(pass)) {
    checks.refuse("dloss", in.dloss, "only backward and value_and_grad read a cotangent");
    checks.refuse("dlse", in.dlse, "only backward and value_and_grad read a cotangent");
  }
  if (pass == Pass::backward) {
    if (!in.statistics && !in.lse) {
      checks.fail("neither statistics nor lse is given; backward needs what forward saved");
    }
  } else {
    checks.refuse("lse", in.lse, "it is read by backward alone; the output is Outputs::lse");
    checks.refuse("statistics", in.statistics,
                  "they are read by backward alone; the output is Outputs::statistics");
  }
  if (options.vocab_size_total != 0 && pass == Pass::forward) {
    checks.fail(
        "vocab_size_total is " + std::to_string(options.vocab_size_total) +
        ", so that this call is one shard, whose loss nobody knows yet; call forward_partial "
        "on every shard and combine");
  }
  if (options.vocab_size_total != 0 && pass == Pass::value_and_grad) {
    checks.fail(
        "vocab_size_total is " + std::to_string(options.vocab_size_total) +
        ", so that this call is one shard; value_and_grad cannot know the other shards: call "
        "forward_partial on each, combine, then backward with the merged statistics");
  }
}

void check_shard(const arguments::Checks& checks, const LossOptions& o, std::int64_t v) {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  if (o.vocab_offset > 0 && o.vocab_size_total == 0) {
    checks.fail("vocab_offset is " + number(o.vocab_offset) +
                " without vocab_size_total; give the width of the whole vocabulary");
  }
  if (o.vocab_size_total > 0 &&
      (v > o.vocab_size_total || o.vocab_offset > o.vocab_size_total - v)) {
    checks.fail("vocab_offset " + number(o.vocab_offset) + " and " + number(v) +
                " columns reach beyond vocab_size_total " + number(o.vocab_size_total));
  }
}

/// argmax is a column of the call, and in a partial row an i32.
void check_argmax(const arguments::Checks& checks, Pass pass, const MutableView& argmax,
                  std::int64_t v) {
  if (v <= most_i32_columns) return;
  if (pass == Pass::forward_partial) {
    checks.fail(
        fmt::format("a shard of {} columns is given; the most is 2^31: give more shards", v));
  }
  if (argmax && argmax.dtype() == DType::i32) {
    checks.fail(
        fmt::format("argmax has type i32, which does not hold the index of every one of {} "
                    "columns; give a view "
                    "of i64",
                    v));
  }
}

/// Compares the shape of a loss argument; `source` names where the leading axes come from.
template <class V>
void check_shape(const arguments::Checks& checks, const char* name, const SymbolicShape& shape,
                 V& view, const LossRequest& r, const arguments::Source& source) {
  if (!view) return;
  const Dims expected = extents_of(shape, r);
  const Reduction reduction = r.options.reduction;
  arguments::Source from = source;
  if (shape.is_reducible()) {
    from = reduction == Reduction::none   ? source.with(" (reduction none)")
           : reduction == Reduction::mean ? "the loss is a single number (reduction mean)"
                                          : "the loss is a single number (reduction sum)";
  } else if (!shape.has_leading()) {
    from = r.is_shard ? "one per word of the whole vocabulary (vocab_size_total)"
                      : "one per word of the vocabulary";
  } else if (shape.rank() > 0) {
    from = source.with(shape.axis(0) == 'K'   ? ", then the pairs of a row"
                       : shape.axis(0) == 'T' ? r.is_shard ? ", then the words of the whole "
                                                             "vocabulary (vocab_size_total)"
                                                           : ", then the words of the vocabulary"
                       : shape.axis(0) == '2' ? ", then (max, sum)"
                                              : "");
  }
  checks.shape(name, view, expected, from);
}

/// Labels, pairs or a probability for every word: one of them. Sets `k`.
void check_target_form(const arguments::Checks& checks, LossRequest& r) {
  const LossRequest& in = r;
  const bool pairs = in.target_indices || in.target_probs;
  if (!in.labels && !pairs && !in.targets && r.nll_weight != 0.0f) {
    // Of 1 - (1 - alpha) the digits that f32 has.
    const std::string needed =
        r.has_terms ? fmt::format(
                          "alpha is {:.6g}, and only at 1 may a call do without: give one "
                          "of them, or alpha 1",
                          1.0f - r.nll_weight)
                    : "every call needs one of them";
    checks.fail(
        "labels is not given, nor are soft targets in their place (target_indices with "
        "target_probs, or targets); " +
        needed);
  }
  if (in.labels && (pairs || in.targets)) {
    checks.fail(std::string("labels and ") + (in.targets ? "targets" : "target_indices") +
                " are both given; a row's target is one or the other");
  }
  if (pairs && in.targets) {
    checks.fail("target_indices and targets are both given; a row's target is one or the other");
  }
  if (!pairs && !in.targets) return;
  if (pairs) {
    checks.require("target_indices", in.target_indices, "target_probs has no meaning without them");
    checks.require("target_probs", in.target_probs, "target_indices has no meaning without them");
    const Dims& extents = in.target_indices.extents();
    r.k = extents.rank() > 0 ? extents.back() : 0;
  }
}

void check_outputs(arguments::Checks& checks, LossRequest& r, const arguments::Source& source) {
  auto& call = r.call;
  const auto& outputs = call.op->outputs;
  const bool writes = call.pass == Pass::forward || call.pass == Pass::value_and_grad;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!writes) {
      checks.refuse(outputs[i].name, call.outputs[i], "this pass writes no loss outputs");
      continue;
    }
    checks.output(outputs[i].name, call.outputs[i], outputs[i].types);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    check_shape(checks, outputs[i].name, outputs[i].shape, call.outputs[i], r, source);
  }
}

}  // namespace

void check_loss(arguments::Checks& checks, LossRequest& r, const LossOptions& options,
                std::optional<float> nll_weight, const Dims& leading, std::int64_t v,
                const arguments::Source& source) {
  check_shard(checks, options, v);
  check_argmax(checks, r.pass, r.outputs.argmax, v);
  check_passes(checks, r, options);

  r.leading = leading;
  r.b = checks.product(leading, "the leading axes");
  r.v = v;
  r.is_shard = options.vocab_size_total > 0;
  r.v_total = r.is_shard ? options.vocab_size_total : v;
  r.options = options;
  r.nll_weight = nll_weight.value_or(1.0f);
  r.has_terms = nll_weight.has_value();
  if (r.v == 0 && r.b > 0) {
    checks.fail("the vocabulary has 0 columns but there are " + std::to_string(r.b) +
                " rows; a softmax needs at least one column");
  }
  checks.product(r.b, r.v, "rows * columns");

  check_target_form(checks, r);
  auto& call = r.call;
  const auto& inputs = call.op->inputs;
  for (std::size_t i = r.places().own(); i < inputs.size(); ++i) {
    checks.input(inputs[i].name, call.inputs[i], inputs[i].types);
  }
  for (std::size_t i = r.places().own(); i < inputs.size(); ++i) {
    check_shape(checks, inputs[i].name, inputs[i].shape, call.inputs[i], r, source);
  }
  if (r.statistics) call.inputs[r.places()[LossInput::lse]] = {};
  check_outputs(checks, r, source);
}

namespace {

/// A word may be in one pair of a row: PyTorch's and vLLM's top-k have it once, and a second one is
/// a mistake that would count twice.
void check_repeated(const arguments::Checks& checks, const LossRequest& r, const Targets& targets,
                    std::int64_t row, std::vector<std::int64_t>& words) {
  words.clear();
  targets.for_each(row, [&](std::int64_t column, float) { words.push_back(column); });
  std::sort(words.begin(), words.end());
  const auto twice = std::adjacent_find(words.begin(), words.end());
  if (twice == words.end()) return;
  checks.fail("target_indices: row " + arguments::describe_row(row, r.leading) + " has " +
              std::to_string(*twice) + " more than once; add up the probabilities of a word");
}

}  // namespace

void check_targets(const arguments::Checks& checks, LossRequest& r,
                   const std::vector<cl_event>& wait_for) {
  if (r.b == 0 || !is_known(r)) return;
  if (!wait_for.empty()) checks.state()->device->wait_for(wait_for);
  const Targets targets(r);
  const char* remedy = r.labels    ? "; correct the label, or mark a row that does not count with "
                                     "ignore_index"
                       : r.targets ? "; correct the probability"
                                   : "; correct the pair, or mark padding with ignore_index";
  std::vector<Targets::Sums> dense;
  if (r.targets) {
    dense = targets.sums_of_rows(checks.state() == nullptr ? nullptr : &checks.state()->threads);
  }
  // Probabilities rounded to bf16 add up to 1 within 2^-9.
  constexpr double tolerance = 0.01;
  bool unusual = false;
  std::vector<std::int64_t> words;
  for (std::int64_t row = 0; row < r.b; ++row) {
    const auto sums = r.targets ? dense[static_cast<std::size_t>(row)] : targets.sums_of(row);
    if (sums.bad) checks.fail(targets.why_bad(row) + remedy, ErrorCode::label_out_of_range);
    if (r.target_indices) check_repeated(checks, r, targets, row, words);
    unusual =
        unusual || sums.total > 1.0 + tolerance || (r.targets && sums.total < 1.0 - tolerance);
  }
  if (r.targets && !r.class_weight.is_device()) {
    std::vector<float> weights;
    for (const auto& sums : dense) weights.push_back(static_cast<float>(sums.weighted));
    r.target_weights = std::make_shared<const std::vector<float>>(std::move(weights));
  }
  if (unusual && checks.state() != nullptr) {
    // No row or value: a training loop would fill the log of messages that were given.
    checks.state()->warnings.warn(checks.operation() +
                                  (r.targets ? ": targets: some rows do not add up to 1"
                                             : ": target_probs: some rows add up to more than 1") +
                                  "; they are used as they are");
  }
}

}  // namespace tessera::loss
