// SPDX-License-Identifier: Apache-2.0
#include "host/operators/tuned.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "host/arguments/workspace.hpp"
#include "host/dispatch/knobs.hpp"
#include "host/dispatch/openmp.hpp"
#include "reference/streaming/kernels.hpp"

namespace tessera::operators {
namespace {

std::string dtype_of(const Call& call) {
  std::vector<std::string> types;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.op->inputs[i].is_operand()) types.emplace_back(to_string(call.inputs[i].dtype()));
  }
  const bool same = std::all_of(types.begin(), types.end(),
                                [&](const auto& type) { return type == types.front(); });
  return same ? types.front() : fmt::format("{}", fmt::join(types, ":"));
}

std::string layout_of(const Call& call) {
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const View& view = call.inputs[i];
    if (!view || !call.op->inputs[i].is_weight()) continue;
    return view.strides()[0] < view.strides()[1] ? "vh" : "hv";
  }
  return {};
}

std::string gradients_of(const Call& call) {
  std::vector<const char*> names;
  for (std::size_t i = 0; i < call.gradients.size(); ++i) {
    if (call.gradients[i]) names.push_back(call.op->gradients[i].name);
  }
  return fmt::format("{}", fmt::join(names, "+"));
}

tuning::Key key_of(const TunedCall& tuned) {
  const Call& call = tuned.request.call;
  auto device = tuned.device();
  const auto& bound = call.workspace_bytes;
  ProblemExtents extents = letter_extents(call);
  extents['B'] = leading_extents(call).product();
  const bool below = bound && static_cast<std::int64_t>(*bound) < device.default_workspace_bytes;
  return {.operation = call.op->name,
          .implementation = tuned.implementation,
          .device = std::move(device.name),
          .device_class = std::move(device.device_class),
          .pass = to_string(call.pass),
          .dtype = dtype_of(call),
          .layout = layout_of(call),
          .gradients = gradients_of(call),
          .workspace = below ? "below" : "default",
          .extents = extents};
}

/// A row cannot know which axes an operator has.
void check_axes(const Description& op, const std::vector<NamedValue>& blocks) {
  for (const auto& block : blocks) {
    if (dispatch::value_of(op.block_sizes, block.name)) continue;
    std::vector<std::string> names;
    for (const auto& axis : op.block_sizes) names.push_back(axis.name);
    throw Error(ErrorCode::invalid_argument,
                fmt::format("block_sizes: {} has no \"{}\", but {}", op.name, block.name,
                            fmt::join(names, ", ")));
  }
}

/// The call as a row completes it.
void use_row(const TunedCall& tuned, const tuning::Answer& answer,
             const std::function<void(const Request&, const BlockReport&)>& use) {
  check_axes(*tuned.request.call.op, answer.block_sizes);
  BlockReport report{.source = answer.source, .reason = answer.reason};
  tuned.request.copied([&](Request& completed) {
    Call& call = completed.call;
    if (call.knobs.empty()) call.knobs = answer.knobs;
    if (!answer.block_sizes.empty()) {
      call.set_block_sizes(tuned.fit(answer, report.reason));
      report.asked = blocks_by_name(*call.op, *call.block_sizes);
    }
    use(completed, report);
  });
}

}  // namespace

void BlockReport::write(Dispatch& dispatch, const std::vector<std::string>& notes) const {
  if (source) dispatch.block_source = *source;
  dispatch.block_reason = reason;
  for (const auto& note : notes) dispatch.block_reason += "; " + note;
  for (const auto& [name, value] : asked) {
    const auto used = dispatch::value_of(dispatch.block_sizes, name).value_or(value);
    const auto explains = [&](const auto& note) { return note.starts_with(name); };
    if (used == value || std::any_of(notes.begin(), notes.end(), explains)) continue;
    dispatch.block_reason += fmt::format("; {} {} counts as {}, the problem's", name, value, used);
  }
}

bool gives_way(ErrorCode code) noexcept {
  return code != ErrorCode::foreign_context && code != ErrorCode::label_out_of_range &&
         code != ErrorCode::device_not_found;
}

BlockReport given_way(const std::string& implementation, const std::string& row,
                      const Error& error) {
  BlockReport report{.reason = row + "; not used: " + error.what()};
  // That another shape or a smaller workspace has no room for them is no fault of the row.
  const bool expected =
      error.code() == ErrorCode::unsupported || error.code() == ErrorCode::workspace_too_small;
  if (!expected) {
    report.warning =
        fmt::format("tessera: {} runs with blocks of its own choice, not with those of {}: {}",
                    implementation, row, error.what());
  }
  return report;
}

void with_row(const TunedCall& tuned, const bool& is_final,
              const std::function<void(const Request&, const BlockReport&)>& use) {
  warn_of_tables(tuned.state);
  const Call& call = tuned.request.call;
  std::optional<tuning::Answer> answer;
  if (!call.block_sizes && tuning::has_rows(call.op->name, tuned.implementation)) {
    answer = tuning::decide(key_of(tuned));
    // Of one with knobs alone nothing is left where the caller has his own.
    if (answer && answer->block_sizes.empty() && !call.knobs.empty()) answer.reset();
  }
  if (!answer) return use(tuned.request, {});
  BlockReport report;
  try {
    return use_row(tuned, *answer, use);
  } catch (const Error& error) {
    if (is_final || !gives_way(error.code())) throw;
    report = given_way(tuned.implementation, answer->reason, error);
  } catch (const std::bad_alloc&) {
    if (is_final) throw;
    report = given_way(tuned.implementation, answer->reason,
                       Error(ErrorCode::out_of_memory, "the host has no memory for them"));
  }
  use(tuned.request, report);
}

void lower_minimum(Plan& plan, const std::function<std::int64_t()>& without) {
  try {
    plan.minimum_workspace_bytes = std::min(plan.minimum_workspace_bytes, without());
  } catch (const Error&) {
    // Then there is no call without the row.
  }
}

void warn_of_tables(const ContextState& state) {
  const auto now = tuning::generation();
  if (state.warned_of_tables == now || state.warned_of_tables.exchange(now) == now) return;
  for (const auto& problem : tuning::problems()) state.warnings.warn("tessera: " + problem);
}

void warn_of_row(const ContextState& state, const BlockReport& report, Dispatch& dispatch) {
  if (report.warning.empty()) return;
  dispatch.warnings.push_back(report.warning);
  state.warnings.warn(report.warning);
}

namespace {

class WithTables final : public dispatch::Implementation {
 public:
  explicit WithTables(std::unique_ptr<const dispatch::Implementation> row)
      : Implementation(row->info()), row_(std::move(row)) {}

  bool is_built() const noexcept override { return row_->is_built(); }
  bool sets_knobs() const noexcept override { return row_->sets_knobs(); }
  std::optional<std::string> why_unsupported(ContextState& state,
                                             const dispatch::Request& request) const override {
    return row_->why_unsupported(state, request);
  }

  std::unique_ptr<Completion::State> run(const std::shared_ptr<ContextState>& state,
                                         const dispatch::Request& request,
                                         dispatch::Attempt& attempt) const override {
    if (info().by_default) {  // others are for studies, and may take long to say what they cost
      dispatch::rest_openmp([&] { return row_->cost(*state, request); }, state->threads.size());
    }
    if (!may_have_rows(*state, request)) return row_->run(state, request, attempt);
    std::unique_ptr<Completion::State> result;
    for_blocks(*state, request, attempt.outputs_touched,
               [&](const Request& used, const BlockReport& report) {
                 attempt.dispatch = {};
                 attempt.dispatch.implementation = name();
                 result = row_->run(state, used, attempt);
                 report.write(attempt.dispatch);
                 warn_of_row(*state, report, attempt.dispatch);
               });
    return result;
  }
  Plan plan(ContextState& state, const dispatch::Request& request) const override {
    if (!may_have_rows(state, request)) return row_->plan(state, request);
    Plan result;
    bool by_row = false;
    for_blocks(state, request, false, [&](const Request& used, const BlockReport& report) {
      result = row_->plan(state, used);
      report.write(result.dispatch);
      by_row = report.source.has_value();
    });
    if (by_row) {
      lower_minimum(result, [&] { return row_->plan(state, request).minimum_workspace_bytes; });
    }
    return result;
  }
  std::pair<std::vector<NamedValue>, BlockSource> infer(
      ContextState& state, const dispatch::Request& request) const override {
    if (!may_have_rows(state, request)) return row_->infer(state, request);
    std::pair<std::vector<NamedValue>, BlockSource> result;
    for_blocks(state, request, false, [&](const Request& used, const BlockReport& report) {
      result = row_->infer(state, used);
      result.second = report.source.value_or(result.second);
    });
    return result;
  }
  CostEstimate cost(ContextState& state, const dispatch::Request& request) const override {
    if (!may_have_rows(state, request)) return row_->cost(state, request);
    CostEstimate result;
    for_blocks(state, request, false,
               [&](const Request& used, const BlockReport&) { result = row_->cost(state, used); });
    return result;
  }

 private:
  /// Whether a look at the tables is worth it, so that a steady call is not slower for them.
  bool may_have_rows(const ContextState& state, const dispatch::Request& request) const {
    const Call& call = static_cast<const Request&>(request).call;
    if (call.block_sizes) return false;
    warn_of_tables(state);
    // One word, so that no thread sees the answer of one generation for another's.
    const std::int64_t now = 2 * tuning::generation();
    std::int64_t known = known_.load();
    if (known / 2 * 2 != now || known < 0) {
      known = now + (tuning::has_rows(call.op->name, name()) ? 1 : 0);
      known_.store(known);
    }
    return known % 2 == 1;
  }

  void for_blocks(ContextState& state, const dispatch::Request& request, const bool& is_final,
                  const std::function<void(const Request&, const BlockReport&)>& use) const {
    const auto& r = static_cast<const Request&>(request);
    const auto device = [&]() -> TunedDevice {
      auto [of, of_class] = row_->tuned_names(state);
      if (of.empty()) {
        of = "host";
        of_class = fmt::format("cpu-{}-lanes", streaming::kernels().lanes);
      }
      return {std::move(of), std::move(of_class),
              arguments::default_workspace_bytes(
                  std::max<std::int64_t>(letter_extents(r.call)['V'], 0))};
    };
    const auto fit = [&](const tuning::Answer& answer, std::string& changes) {
      return row_->fitted(state, request, answer.block_sizes, changes);
    };
    with_row({state, r, name(), device, fit}, is_final,
             [&](const Request& used, const BlockReport& report) {
               // Such an implementation would pass over knobs that it does not have.
               if (report.source && !used.call.knobs.empty() && !row_->sets_knobs()) {
                 dispatch::check_knobs(used.call.knobs, row_->plan(state, used).dispatch.knobs,
                                       name());
               }
               use(used, report);
             });
  }

  std::unique_ptr<const dispatch::Implementation> row_;
  mutable std::atomic<std::int64_t> known_ = -1;  ///< 2 * generation, + 1 where it has rows
};

}  // namespace

std::unique_ptr<const dispatch::Implementation> with_tables(
    std::unique_ptr<const dispatch::Implementation> row) {
  return std::make_unique<WithTables>(std::move(row));
}

}  // namespace tessera::operators
