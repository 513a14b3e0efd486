// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/linear_distillation/request.hpp"
#include "host/loss/operator.hpp"
#include "host/loss/partial.hpp"

namespace tessera::linear_distillation {
namespace {

/// What forward_partial has of a row besides every loss's.
void set_own_rows(const Options& options, const std::vector<float>& words, PartialResult& result) {
  result.divergence = effective_divergence(options);
  result.divergence_rows = loss::rows_of<DivergenceSums>(words);
}

}  // namespace

#include "host/loss/api.inc"

const char* to_string(Divergence divergence) {
  const auto at = static_cast<std::size_t>(divergence);
  return at < divergence_names.size() ? divergence_names[at] : "?";
}

Divergence effective_divergence(const Options& options) {
  if (options.divergence != Divergence::jsd) return options.divergence;
  if (options.beta == 0.0f) return Divergence::forward_kl;
  return options.beta == 1.0f ? Divergence::reverse_kl : Divergence::jsd;
}

namespace {

void check_teacher(const arguments::Checks& checks, const Request& request) {
  const auto& in = request.inputs;
  if (in.teacher_logits) {
    checks.refuse("teacher_x", in.teacher_x, "teacher_logits are given; give one or the other");
    checks.refuse("teacher_w", in.teacher_w, "teacher_logits are given; give one or the other");
    checks.refuse("teacher_bias", in.teacher_bias,
                  "teacher_logits are given, which have theirs in them; leave it out");
    return;
  }
  if (!in.teacher_x && !in.teacher_w) {
    checks.fail("no teacher is given; give teacher_x with teacher_w, or teacher_logits");
  }
  checks.require("teacher_x", in.teacher_x, "teacher_w has no meaning without it");
  checks.require("teacher_w", in.teacher_w, "teacher_x has no meaning without it");
}

/// A shard's forward hands on sums, and its backward needs those of the whole.
void check_shard(const arguments::Checks& checks, const Request& request) {
  const auto& saved = request.inputs.divergence_statistics;
  if (request.loss.pass != Pass::backward) {
    checks.refuse("divergence_statistics", saved,
                  "they are read by backward alone; the output is Outputs::divergence_statistics");
  }
  if (request.loss.pass != Pass::forward_partial && !request.loss.is_shard) return;
  if (effective_divergence(request.options) == Divergence::jsd) {
    checks.fail(
        "jsd on a shard of the vocabulary would take two rounds of exchange: the logarithm of the "
        "mixture needs both log-sum-exps of the whole before its sums can begin; give the whole "
        "vocabulary",
        ErrorCode::unsupported);
  }
  if (request.loss.pass == Pass::backward && !saved) {
    checks.fail(
        "divergence_statistics is not given; a shard cannot know the other shards' words: give "
        "those that combine returns");
  }
}

class Behind final : public loss::LossOperator {
 public:
  Behind()
      : LossOperator(operators::description_of<Operator>(),
                     operators::make_table([](auto) { return opencl_implementations(); },
                                           eigen_implementation(), reference_implementation())) {}

 private:
  std::optional<float> nll_weight(const operators::Call& call) const override {
    return 1.0f - operators::options_of<Operator>(call).alpha;
  }
  std::int64_t own_partial_words() const override { return sizeof(DivergenceSums) / sizeof(float); }
  void check_own(const arguments::Checks& checks, const loss::LossRequest& checked) const override {
    const auto request = request_of(checked);
    check_teacher(checks, request);
    check_shard(checks, request);
    linear::check_dz_dtype<Operator>(checks, checked.call);
  }
};

}  // namespace
}  // namespace tessera::linear_distillation

const tessera::operators::AnyOperator&
tessera::OperatorTraits<tessera::linear_distillation::Operator>::behind() {
  // Never destroyed: destructors of static objects may call.
  static const auto& behind = *new linear_distillation::Behind();
  return behind;
}
