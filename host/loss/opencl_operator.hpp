// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/dispatch/knobs.hpp"
#include "host/engines/engine.hpp"
#include "host/engines/segments.hpp"
#include "host/loss/opencl_programs.hpp"
#include "host/loss/operator.hpp"
#include "host/opencl/call.hpp"

/// The implementations `opencl.*` of any loss operator, one for each engine. Each prepares a call,
/// or takes what it prepared for the same kind of call before, and lets the operator enqueue it.
namespace tessera::loss {

/// What calls of one kind share: how their work is cut into blocks, and the programs that they
/// compile. `Schedule` has name, blocks, source, chunk_rows and scratch_words, `Programs` has
/// all().
template <class Schedule, class Programs>
struct Prepared {
  engines::EngineShapes shapes{};  ///< the candidates; `engine` is one of them
  std::shared_ptr<const engines::Engine> engine{};
  Schedule schedule{};
  Programs programs{};
  std::vector<std::string> notes{};  ///< for Dispatch::notes
};

/// A program and the name of one of its kernels.
using Kernel = std::pair<opencl::Specialisation, std::string>;

/// What an operator provides for its OpenCL implementations. `Plan` is a Prepared.
template <class Op, class Plan>
struct Opencl {
  using Request = OperatorRequest<Op>;
  /// The types that its products multiply, or that its passes over rows read.
  engines::Operands (*operands)(const Request&);
  /// Why no engine can serve a request on this device. Nothing: each engine decides for itself.
  std::optional<std::string> (*refuses)(const Request&, const opencl::DeviceFacts&);
  /// Engine, schedule and programs. Throws Error invalid_argument for illegal blocks and knobs,
  /// workspace_too_small, out_of_memory.
  Plan (*prepare)(const Request&, const std::string& engine_name, opencl::Runtime&);
  std::vector<NamedValue> (*knobs)(const Request&, const Plan&);
  /// The kernels that the operator launches itself. Those of loss_kernels_of come in addition.
  std::vector<Kernel> (*kernels)(const Request&, const Plan&);
  std::int64_t (*minimum_workspace_bytes)(const Request&, const Plan&, const opencl::Runtime&);
  void (*enqueue)(opencl::Call&, const Request&, const Plan&);
  /// Adds to the key of a call what `prepare` reads and key_of does not hold.
  void (*add_to_key)(const Request&, std::vector<std::int64_t>& key);
  /// The cost of a prepared call. nullptr: HostTraits::cost knows it from the block sizes.
  CostEstimate (*cost)(const Request&, const Plan&);
};

/// The kind of a call, by which a prepared one is found again: all that `prepare` reads of any
/// call. That is views without their addresses, options, block sizes, knobs and the bound on
/// memory. The tuned tables never change, so they are not in it.
template <class Op>
std::vector<std::int64_t> key_of(const OperatorRequest<Op>& r) {
  using Traits = OperatorTraits<Op>;
  std::vector<std::int64_t> words;
  words.reserve(120);  // less than 1 KiB, which glibc's malloc is quick at; few calls need more
  const auto add = [&](auto... values) {
    (words.push_back(static_cast<std::int64_t>(values)), ...);
  };
  const auto add_view = [&](const View& view) {
    if (!view) return add(-1);
    add(static_cast<int>(view.dtype()), view.rank(), view.is_device());
    for (const auto extent : view.extents()) add(extent);
    for (const auto stride : view.strides()) add(stride);
  };
  for (const auto& input : Traits::inputs) add_view(r.inputs.*input.view);
  for (std::size_t i = 0; i < Traits::outputs.size(); ++i) add_view(output_at<Op>(r, i));
  add_view(r.loss.partial);
  add_view(r.own_partial);
  for (std::size_t i = 0; i < Traits::gradients.size(); ++i) {
    add_view(r.gradients.*Traits::gradients[i].view);
    add(Traits::accumulates(r.gradients, i));
  }
  const auto& l = r.loss;
  const auto& e = r.execution;
  add(l.pass, l.b, l.v, l.v_total, l.is_shard);
  const auto add_option = [&](const OptionValue& value) {
    const auto* number = std::get_if<float>(&value);
    add(number != nullptr ? std::bit_cast<std::int32_t>(*number) : std::get<std::int64_t>(value));
  };
  for (const auto& option : Traits::options) add_option(option.value(r.options));
  for (const auto& option : Traits::execution_options) add_option(option.value(e));
  add(e.block_sizes.has_value());
  if (e.block_sizes) {
    for (const auto& axis : Op::BlockSizes::axes()) add((*e.block_sizes).*axis.value);
  }
  for (const auto& knob : e.knobs) {
    add(knob.name.size(), knob.value);
    for (const char letter : knob.name) add(letter);
  }
  add(e.workspace_bytes.has_value(), e.workspace_bytes.value_or(0));
  return words;
}

/// Compiles all kernels that a call launches, before any output is touched. When the driver refuses
/// one of them, another implementation can still serve the call.
template <class Op, class Plan>
void build_kernels(const Opencl<Op, Plan>& own, const OperatorRequest<Op>& request,
                   const Plan& prepared, opencl::Runtime& runtime) {
  for (const auto& [program, entry] : own.kernels(request, prepared)) {
    runtime.programs().kernel(program, entry);
  }
  for (const auto& [program, entry] : loss_kernels_of(request.loss, prepared.schedule.chunk_rows)) {
    runtime.programs().kernel(program, entry);
  }
}

/// Remembers prepared calls of one device, because preparing a tiny call takes longer than its
/// kernels. Thread-safe.
template <class Op, class Plan>
class PreparedCalls {
 public:
  using Request = OperatorRequest<Op>;

  /// Why the engine of that name cannot serve this device, for operands like the request's.
  std::optional<std::string> why_unsupported(const engines::Operands& operands,
                                             const std::string& engine_name,
                                             const opencl::Runtime& runtime) {
    std::lock_guard lock(mutex_);
    check_facts(runtime);
    for (const auto& known : verdicts_) {
      if (known.engine_name == engine_name && known.a == operands.a && known.b == operands.b) {
        return known.reason;
      }
    }
    auto reason = engines::engine_entry(engine_name).why_unsupported(runtime.facts(), operands);
    return verdicts_.emplace_back(KnownVerdict{engine_name, operands.a, operands.b, reason}).reason;
  }

  /// The prepared call with its kernels built: a remembered one, or what the operator prepares.
  std::shared_ptr<const Plan> prepare(const Opencl<Op, Plan>& own, const Request& request,
                                      const std::string& engine_name, opencl::Runtime& runtime) {
    auto key = key_of(request);
    own.add_to_key(request, key);
    {
      std::lock_guard lock(mutex_);
      check_facts(runtime);
      for (const auto& known : calls_) {
        if (known.key == key && known.engine_name == engine_name) return known.prepared;
      }
    }
    auto made = std::make_shared<Plan>(own.prepare(request, engine_name, runtime));
    for (auto* program : made->programs.all()) program->hash = opencl::hash_of(*program);
    build_kernels(own, request, *made, runtime);
    KnownCall entry{engine_name, std::move(key), made};
    std::lock_guard lock(mutex_);
    if (calls_.size() < most_calls) {
      calls_.push_back(std::move(entry));
    } else {
      calls_[next_++ % most_calls] = std::move(entry);
    }
    return made;
  }

 private:
  /// How many kinds of calls are remembered; a program rarely has more than a few at a time.
  static constexpr std::size_t most_calls = 32;
  struct KnownVerdict {
    std::string engine_name;
    DType a, b;  ///< of the operands
    std::optional<std::string> reason;
  };
  struct KnownCall {
    std::string engine_name;
    std::vector<std::int64_t> key;
    std::shared_ptr<const Plan> prepared;
  };
  /// Forgets everything where the facts have changed: only tests do that, to pretend that the
  /// device is another one.
  void check_facts(const opencl::Runtime& runtime) {
    if (facts_ == runtime.facts()) return;
    facts_ = runtime.facts();
    verdicts_.clear();
    calls_.clear();
  }

  std::mutex mutex_;
  opencl::DeviceFacts facts_;  ///< of the device that everything below is for
  std::vector<KnownVerdict> verdicts_;
  std::vector<KnownCall> calls_;
  std::size_t next_ = 0;  ///< the place in a full calls_ that is replaced next
};

template <class Op, class Plan>
void describe(const Opencl<Op, Plan>& own, const OperatorRequest<Op>& request, const Plan& prepared,
              const DeviceInfo& info, Dispatch& dispatch) {
  dispatch.implementation = "opencl." + prepared.engine->name();
  dispatch.schedule = prepared.schedule.name;
  dispatch.device = info.name;
  dispatch.driver = info.driver;
  dispatch.block_sizes = to_named(prepared.schedule.blocks);
  dispatch.block_source = prepared.schedule.source;
  dispatch.knobs = own.knobs(request, prepared);
  dispatch.notes = prepared.notes;
  dispatch.workspace_bytes = prepared.schedule.scratch_words * 4;
}

/// Notes how much a call copied because its arrays are in host memory and the device has its own.
inline void note_staging(Dispatch& dispatch) {
  if (dispatch.staged_bytes == 0) return;
  dispatch.notes.push_back(
      "copies of host arrays on the device take " + std::to_string(dispatch.staged_bytes) +
      " bytes in each such call; keep what calls share in device memory (View::device, "
      "examples/device_memory)");
}

/// The call without its gradients that have no elements (H is 0), which no kernel writes; nothing
/// where there are none.
template <class Op>
std::optional<OperatorRequest<Op>> without_empty_gradients(const OperatorRequest<Op>& request) {
  std::optional<OperatorRequest<Op>> changed;
  for (const auto& gradient : OperatorTraits<Op>::gradients) {
    const auto& view = request.gradients.*gradient.view;
    if (!view || view.size() > 0) continue;
    if (!changed) changed = request;
    (*changed).gradients.*gradient.view = {};
  }
  return changed;
}

template <class Op, class Plan>
std::unique_ptr<Completion::State> run_opencl(const Opencl<Op, Plan>& own,
                                              const std::shared_ptr<ContextState>& state,
                                              const OperatorRequest<Op>& request,
                                              dispatch::Attempt& attempt,
                                              const std::string& engine_name) {
  if (const auto changed = without_empty_gradients(request)) {
    return run_opencl(own, state, *changed, attempt, engine_name);
  }
  auto& runtime = *opencl::runtime_of(*state);
  const auto prepared =
      runtime.keep<PreparedCalls<Op, Plan>>().prepare(own, request, engine_name, runtime);
  const auto& execution = request.execution;
  opencl::Call call(state, runtime, {execution.queue, execution.wait_for, execution.workspace},
                    attempt);
  own.enqueue(call, request, *prepared);
  // After the commands are enqueued: the device works while this is put together.
  describe(own, request, *prepared, runtime.info(), attempt.dispatch);
  note_staging(attempt.dispatch);
  return call.finish();
}

template <class Op, class Plan>
tessera::Plan plan_opencl(const Opencl<Op, Plan>& own, ContextState& state,
                          const OperatorRequest<Op>& request, const std::string& engine_name) {
  if (const auto changed = without_empty_gradients(request)) {
    return plan_opencl(own, state, *changed, engine_name);
  }
  auto& runtime = *opencl::runtime_of(state);
  const auto prepared = own.prepare(request, engine_name, runtime);
  tessera::Plan result;
  describe(own, request, prepared, runtime.info(), result.dispatch);
  result.workspace_bytes = result.dispatch.workspace_bytes;
  result.minimum_workspace_bytes = own.minimum_workspace_bytes(request, prepared, runtime);
  build_kernels(own, request, prepared, runtime);
  return result;
}

template <class Op, class Plan>
std::optional<std::string> why_unsupported(const Opencl<Op, Plan>& own, ContextState& state,
                                           const OperatorRequest<Op>& request,
                                           const std::string& engine_name) {
  auto* runtime = opencl::runtime_of(state);
  if (auto reason = opencl::Runtime::why_no_kernels()) return reason;
  if (runtime == nullptr) return "the context has no OpenCL device";
  if (auto reason = why_unsupported(request.loss, runtime->facts())) return reason;
  auto& known = runtime->keep<PreparedCalls<Op, Plan>>();
  auto reason = known.why_unsupported(own.operands(request), engine_name, *runtime);
  return reason ? reason : own.refuses(request, runtime->facts());
}

/// The runtime, for questions that may compile or probe and that nobody has asked why_unsupported
/// before. Throws Error unsupported where the library has no kernels.
inline opencl::Runtime& usable_runtime(ContextState& state) {
  if (auto reason = opencl::Runtime::why_no_kernels()) throw Error(ErrorCode::unsupported, *reason);
  return *opencl::runtime_of(state);
}

/// The rows of the operator's table, one for each engine, best first.
template <class Op, class Plan>
dispatch::Table<OperatorRequest<Op>> opencl_rows(const Opencl<Op, Plan>& own) {
  using Request = OperatorRequest<Op>;
  dispatch::Table<Request> rows;
  for (const auto& entry : engines::all_engines()) {
    const std::string& engine_name = entry.name;
    dispatch::Implementation<Request> row;
    row.name = "opencl." + engine_name;
    row.description = entry.description;
    row.sets_knobs = true;
    row.why_unsupported = [=](ContextState& state, const Request& request) {
      return why_unsupported(own, state, request, engine_name);
    };
    row.run = [=](const std::shared_ptr<ContextState>& state, const Request& request,
                  dispatch::Attempt& attempt) {
      return run_opencl(own, state, request, attempt, engine_name);
    };
    row.plan = [=](ContextState& state, const Request& request) {
      return plan_opencl(own, state, request, engine_name);
    };
    row.infer = [=](ContextState& state, const Request& request) {
      const auto made = own.prepare(request, engine_name, usable_runtime(state));
      return std::pair{made.schedule.blocks, made.schedule.source};
    };
    if (own.cost != nullptr) {
      row.cost = [=](ContextState& state, const Request& request) {
        return own.cost(request, own.prepare(request, engine_name, usable_runtime(state)));
      };
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace tessera::loss
