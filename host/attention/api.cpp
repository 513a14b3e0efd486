// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "host/arguments/offsets.hpp"
#include "host/attention/request.hpp"

namespace tessera::attention {

#include "host/operators/api.inc"

namespace {

constexpr std::int64_t most_depth = 512;

/// A list of names that prefers OpenCL falls back with a reason.
dispatch::Table without_kernels() {
  dispatch::Table rows;
  rows.push_back(dispatch::left_out("opencl", "attention has no OpenCL kernels yet"));
  return rows;
}

class Behind final : public operators::PlainOperator {
 public:
  Behind()
      : PlainOperator(operators::make_table([](auto) { return without_kernels(); },
                                            eigen_implementation(), reference_implementation())) {}

 private:
  void check_own(const arguments::Checks& checks, const operators::Call& call) const override {
    const View& q = operators::input<Operator, &Inputs::q>(call);
    const View& k = operators::input<Operator, &Inputs::k>(call);
    const View& v = operators::input<Operator, &Inputs::v>(call);
    const int leading = q.rank() - 3;
    const std::int64_t q_heads = q.extents()[leading], heads = k.extents()[leading];
    if (heads == 0 ? q_heads != 0 : q_heads % heads != 0) {
      checks.fail(fmt::format(
          "q has shape {} and k has shape {}: the {} heads of q, axis -3, must be a multiple of "
          "the {} of k, so that each group of them shares one; give views with heads before tokens",
          arguments::to_string(q.extents()), arguments::to_string(k.extents()), q_heads, heads));
    }
    for (const auto& [name, view] : {std::pair{"q", &q}, std::pair{"v", &v}}) {
      const std::int64_t depth = view->extents().back();
      if (depth >= 1 && depth <= most_depth) continue;
      checks.fail(fmt::format("{} has shape {}; its last axis must be 1 to {}", name,
                              arguments::to_string(view->extents()), most_depth));
    }
    if (checks.form() == arguments::Form::question) return;
    const View& lengths = operators::input<Operator, &Inputs::kv_lengths>(call);
    if (!lengths || lengths.is_device()) return;
    // Until then the lengths may not have been written.
    if (!call.wait_for.empty()) checks.state()->device->wait_for(call.wait_for);
    check_lengths(checks, call);
  }
};

}  // namespace

void check_lengths(const arguments::Checks& checks, const operators::Call& call) {
  const View& lengths = operators::input<Operator, &Inputs::kv_lengths>(call);
  if (!lengths) return;
  const View& k = operators::input<Operator, &Inputs::k>(call);
  const std::int64_t most = k.extents()[k.rank() - 2];
  const arguments::RowOffsets offsets(lengths, lengths.rank());
  for (std::int64_t i = 0; i < lengths.size(); ++i) {
    const std::int64_t length =
        arguments::load_int(lengths.host_data(), lengths.dtype(), offsets(i));
    if (length >= 0 && length <= most) continue;
    checks.fail(fmt::format("kv_lengths of sequence {} is {}; give 0 to {}, the number of keys T",
                            arguments::describe_row(i, lengths.extents()), length, most));
  }
}

void check_values(const ContextState& state, const operators::Request& request) {
  check_lengths(arguments::Checks(&state, request.operation(), arguments::Form::views),
                request.call);
}

}  // namespace tessera::attention

const tessera::operators::AnyOperator&
tessera::OperatorTraits<tessera::attention::Operator>::behind() {
  // Never destroyed: destructors of static objects may call.
  static const auto& behind = *new attention::Behind();
  return behind;
}
