// SPDX-License-Identifier: Apache-2.0
#include "host/operators/opencl_operator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <new>

#include "host/dispatch/openmp.hpp"

namespace tessera::operators {
namespace {

const Request& request_of(const dispatch::Request& request) {
  return static_cast<const Request&>(request);
}

/// Compiles all kernels that a call launches, before any output is touched. When the driver refuses
/// one of them, another implementation can still serve the call.
void build_kernels(const OpenclOperator& own, const Request& request, const Prepared& prepared,
                   opencl::Runtime& runtime) {
  for (const auto& [program, entry] : own.kernels(request, prepared)) {
    runtime.programs().kernel(program, entry);
  }
}

/// Remembers prepared calls of one device, because preparing a tiny call takes longer than its
/// kernels. Thread-safe.
class PreparedCalls {
 public:
  /// Why the engine of that name cannot serve this device, for such operands.
  std::optional<std::string> why_unsupported(const engines::Operands& operands,
                                             const std::string& engine_name,
                                             const opencl::Runtime& runtime) {
    std::lock_guard lock(mutex_);
    check_facts(runtime);
    for (const auto& known : verdicts_) {
      if (known.engine_name == engine_name && known.operands == operands) return known.reason;
    }
    auto reason = engines::engine_entry(engine_name).why_unsupported(runtime.facts(), operands);
    return verdicts_.emplace_back(KnownVerdict{engine_name, operands, reason}).reason;
  }

  /// The prepared call with its kernels built: a remembered one, or what `make` returns.
  template <class Make>
  std::shared_ptr<const Prepared> prepare(const OpenclOperator& own, const Request& request,
                                          const std::string& engine_name,
                                          const opencl::Runtime& runtime, const Make& make) {
    auto key = full_key(own, request);
    {
      std::lock_guard lock(mutex_);
      check_facts(runtime);
      if (const auto* known = find(own, key, engine_name)) return known->prepared;
    }
    auto made = make();
    std::lock_guard lock(mutex_);
    keep({&own, engine_name, std::move(key), made});
    return made;
  }

  /// From now on `made` stands for such calls.
  void replace(const OpenclOperator& own, const Request& request, const std::string& engine_name,
               const std::shared_ptr<const Prepared>& made) {
    auto key = full_key(own, request);
    std::lock_guard lock(mutex_);
    if (auto* known = find(own, key, engine_name)) {
      known->prepared = made;
    } else {
      keep({&own, engine_name, std::move(key), made});
    }
  }

 private:
  /// How many kinds of calls are remembered; a program rarely has more than a few at a time.
  static constexpr std::size_t max_calls = 64;
  struct KnownVerdict {
    std::string engine_name;
    engines::Operands operands;
    std::optional<std::string> reason;
  };
  struct KnownCall {
    const OpenclOperator* own;
    std::string engine_name;
    std::vector<std::int64_t> key;
    std::shared_ptr<const Prepared> prepared;
  };
  static std::vector<std::int64_t> full_key(const OpenclOperator& own, const Request& request) {
    auto key = key_of(request.call);
    own.add_to_key(request, key);
    return key;
  }
  KnownCall* find(const OpenclOperator& own, const std::vector<std::int64_t>& key,
                  const std::string& engine_name) {
    for (auto& known : calls_) {
      if (known.own == &own && known.key == key && known.engine_name == engine_name) return &known;
    }
    return nullptr;
  }
  void keep(KnownCall entry) {
    if (calls_.size() < max_calls) {
      calls_.push_back(std::move(entry));
    } else {
      calls_[next_++ % max_calls] = std::move(entry);
    }
  }
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

/// Notes how much a call copied because its arrays are in host memory and the device has its own.
void note_staging(Dispatch& dispatch) {
  if (dispatch.staged_bytes == 0) return;
  dispatch.notes.push_back(
      "copies of host arrays on the device take " + std::to_string(dispatch.staged_bytes) +
      " bytes in each such call; keep what calls share in device memory (View::device, "
      "examples/device_memory)");
}

/// One engine.
class OpenclRow final : public dispatch::Implementation {
 public:
  OpenclRow(std::shared_ptr<const OpenclOperator> own, const engines::EngineEntry& engine)
      : Implementation({"opencl." + engine.name, engine.description, true}),
        own_(std::move(own)),
        engine_name_(engine.name) {}

  bool sets_knobs() const noexcept override { return true; }

  std::optional<std::string> why_unsupported(ContextState& state,
                                             const dispatch::Request& request) const override {
    const auto& r = request_of(request);
    auto* runtime = opencl::runtime_of(state);
    if (auto reason = opencl::Runtime::why_no_kernels()) return reason;
    if (runtime == nullptr) return "the context has no OpenCL device";
    auto reason =
        runtime->keep<PreparedCalls>().why_unsupported(own_->operands(r), engine_name_, *runtime);
    return reason ? reason : own_->refuses(r, engine_name_, runtime->facts());
  }

  std::unique_ptr<Completion::State> run(const std::shared_ptr<ContextState>& state,
                                         const dispatch::Request& request,
                                         dispatch::Attempt& attempt) const override {
    const auto& r = request_of(request);
    auto& runtime = *opencl::runtime_of(*state);
    auto& known = runtime.keep<PreparedCalls>();
    const auto prepared = known.prepare(*own_, r, engine_name_, runtime,
                                        [&] { return prepare_to_run(*state, r, {}); });
    const auto try_again = [&](const Error& error) {
      attempt.dispatch = {};
      const auto without =
          prepare_to_run(*state, r, given_way(name(), prepared->report.reason, error));
      auto result = enqueue(state, r, *without, attempt);
      // Only now: what failed may have been the caller's queue, not the row.
      known.replace(*own_, r, engine_name_, without);
      return result;
    };
    const bool by_row = prepared->report.source.has_value();
    try {
      return enqueue(state, r, *prepared, attempt);
    } catch (const Error& error) {
      if (!by_row || attempt.outputs_touched || !gives_way(error.code())) throw;
      return try_again(error);
    } catch (const std::bad_alloc&) {
      if (!by_row || attempt.outputs_touched) throw;
      return try_again(Error(ErrorCode::out_of_memory, "the host has no memory for them"));
    }
  }

  Plan plan(ContextState& state, const dispatch::Request& request) const override {
    const auto& r = request_of(request);
    auto& runtime = *opencl::runtime_of(state);
    Plan result;
    bool by_row = false;
    prepare(state, r, [&](const Request& used, const Prepared& prepared) {
      result = {};
      describe(used, prepared, runtime, result.dispatch);
      result.workspace_bytes = result.dispatch.workspace_bytes;
      result.minimum_workspace_bytes = own_->minimum_workspace_bytes(used, prepared, runtime);
      by_row = prepared.report.source.has_value();
      result.considered = own_->considered(used, prepared, runtime);
      if (!runtime.only_plans()) build_kernels(*own_, used, prepared, runtime);
    });
    if (by_row) {
      lower_minimum(result, [&] {
        return own_->minimum_workspace_bytes(r, *own_->prepare(r, engine_name_, runtime), runtime);
      });
    }
    return result;
  }

  std::pair<std::vector<NamedValue>, BlockSource> infer(
      ContextState& state, const dispatch::Request& request) const override {
    Dispatch dispatch;
    prepare(state, request_of(request), [&](const Request&, const Prepared& prepared) {
      prepared.describe(dispatch);
      prepared.report.write(dispatch);
    });
    return {std::move(dispatch.block_sizes), dispatch.block_source};
  }

  std::vector<dispatch::Choice> choices(ContextState& state,
                                        const dispatch::Request& request) const override {
    auto& runtime = *opencl::runtime_of(state);
    const auto operands = own_->operands(request_of(request));
    std::vector<std::string> unused;
    std::vector<dispatch::Choice> all;
    for (const auto& shape : engines::engine_entry(engine_name_)
                                 .variants(runtime.facts(), operands, &runtime, unused)) {
      all.push_back(
          {operands.rows ? engines::row_knobs(*shape) : shape->knobs(), own_->multiples(*shape)});
    }
    return all;
  }

  Dispatch foresee(ContextState& state, const dispatch::Request& request) const override {
    Dispatch dispatch;
    prepare(state, request_of(request), [&](const Request& used, const Prepared& prepared) {
      describe(used, prepared, *opencl::runtime_of(state), dispatch = {});
    });
    return dispatch;
  }

  std::vector<Kernel> kernels(ContextState& state, const Request& request) const {
    std::vector<Kernel> all;
    prepare(state, request, [&](const Request& used, const Prepared& prepared) {
      all = own_->kernels(used, prepared);
    });
    return all;
  }

  CostEstimate cost(ContextState& state, const dispatch::Request& request) const override {
    CostEstimate result;
    prepare(state, request_of(request), [&](const Request& used, const Prepared& prepared) {
      result = own_->cost(used, prepared);
    });
    return result;
  }

 private:
  /// Hands `use` a call prepared with the blocks of a table's row, or, where there is none or they
  /// fail, as it is.
  std::shared_ptr<Prepared> prepare(
      ContextState& state, const Request& request,
      const std::function<void(const Request&, const Prepared&)>& use) const {
    auto& runtime = *opencl::runtime_of(state);
    const auto device = [&]() -> TunedDevice {
      const auto columns = std::max<std::int64_t>(letter_extents(request.call)['V'], 0);
      return {runtime.info().name, engines::device_class(runtime.facts()),
              engines::default_workspace_bytes(runtime.facts(), columns)};
    };
    const auto fit = [&](const tuning::Answer& answer, std::string& changes) {
      return fitted(request, answer, runtime.facts(), changes);
    };
    std::shared_ptr<Prepared> made;
    with_row({state, request, name(), device, fit}, false,
             [&](const Request& used, const BlockReport& report) {
               made = own_->prepare(used, engine_name_, runtime);
               made->report = report;
               use(used, *made);
             });
    return made;
  }

  /// With its kernels built. `report`: of a row that gave way, which is not tried again.
  std::shared_ptr<const Prepared> prepare_to_run(ContextState& state, const Request& request,
                                                 const std::optional<BlockReport>& report) const {
    auto& runtime = *opencl::runtime_of(state);
    const auto build = [&](const Request& used, const Prepared& prepared) {
      build_kernels(*own_, used, prepared, runtime);
    };
    std::shared_ptr<Prepared> made;
    if (report) {
      made = own_->prepare(request, engine_name_, runtime);
      made->report = *report;
      build(request, *made);
    } else {
      made = prepare(state, request, build);
    }
    for (auto* program : made->all_programs()) program->hash = opencl::hash_of(*program);
    return made;
  }

  std::unique_ptr<Completion::State> enqueue(const std::shared_ptr<ContextState>& state,
                                             const Request& r, const Prepared& prepared,
                                             dispatch::Attempt& attempt) const {
    auto& runtime = *opencl::runtime_of(*state);
    opencl::Call call(state, runtime, {r.call.queue, r.call.wait_for, r.call.workspace}, attempt);
    // Before the device works: the threads that end wait for a processor, else for a tick or more.
    if (runtime.facts().is_cpu) {
      dispatch::rest_openmp([&] { return own_->cost(r, prepared); }, runtime.facts().compute_units);
    }
    own_->enqueue(call, r, prepared);
    // After the commands are enqueued: the device works while this is put together.
    describe(r, prepared, runtime, attempt.dispatch);
    warn_of_row(*state, prepared.report, attempt.dispatch);
    note_staging(attempt.dispatch);
    return call.finish();
  }

  /// Blocks of a row for a class of devices, which another one may have been tuned on, as this one
  /// takes them. Those of a row for this device are left as they are: illegal ones are its fault.
  std::vector<NamedValue> fitted(const Request& request, const tuning::Answer& answer,
                                 const opencl::DeviceFacts& facts, std::string& changes) const {
    auto blocks = answer.block_sizes;
    if (!answer.is_of_class) return blocks;
    std::vector<std::string> unused;
    const auto& knobs = request.call.knobs.empty() ? answer.knobs : request.call.knobs;
    const auto shapes = engines::shapes_with(engines::engine_entry(engine_name_), facts,
                                             own_->operands(request), knobs, nullptr, unused);
    const auto multiples = own_->multiples(*shapes.front());
    for (auto& [block, value] : blocks) {
      const auto& axes = request.call.op->block_sizes;
      for (std::size_t i = 0; i < axes.size(); ++i) {
        if (axes[i].name != block || value % multiples[i] == 0) continue;
        const auto rounded = engines::round_up(value, multiples[i]);
        changes +=
            fmt::format("; {} {} is {}, a multiple of {}", block, value, rounded, multiples[i]);
        value = rounded;
      }
    }
    return blocks;
  }

  void describe(const Request& request, const Prepared& prepared, const opencl::Runtime& runtime,
                Dispatch& dispatch) const {
    dispatch.implementation = "opencl." + prepared.engine->name();
    dispatch.device = runtime.info().name;
    dispatch.driver = runtime.info().driver;
    prepared.describe(dispatch);
    dispatch.knobs = own_->knobs(request, prepared);
    dispatch.notes = prepared.notes;
    if (!runtime.why_whole().empty()) dispatch.notes.push_back(runtime.why_whole());
    if (prepared.report.source) {
      prepared.report.write(dispatch, prepared.block_notes);
    } else {
      dispatch.block_reason = prepared.report.reason;
      for (const auto& note : prepared.block_notes) dispatch.notes.push_back(note);
    }
  }

  std::shared_ptr<const OpenclOperator> own_;
  std::string engine_name_;
};

}  // namespace

std::vector<std::int64_t> key_of(const Call& call) {
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
  add(call.pass);
  for (const View& view : call.inputs) add_view(view);
  for (const View& view : call.outputs) add_view(view);
  for (std::size_t i = 0; i < call.gradients.size(); ++i) {
    add_view(call.gradients[i]);
    add(call.accumulate[i]);
  }
  for (const auto& value : call.options) {
    if (const auto* number = std::get_if<float>(&value)) {
      add(std::bit_cast<std::int32_t>(*number));
    } else {
      const auto* integer = std::get_if<std::int64_t>(&value);
      add(integer != nullptr ? *integer : INT64_MIN);  // one that no bits of a number are
    }
  }
  add(call.block_sizes.has_value());
  if (call.block_sizes) {
    for (const auto value : *call.block_sizes) add(value);
  }
  for (const auto& knob : call.knobs) {
    add(knob.name.size(), knob.value);
    for (const char letter : knob.name) add(letter);
  }
  add(call.workspace_bytes.has_value(), call.workspace_bytes.value_or(0), tuning::generation());
  return words;
}

dispatch::Table opencl_rows(std::shared_ptr<const OpenclOperator> own) {
  dispatch::Table rows;
  for (const auto& entry : engines::all_engines()) {
    rows.push_back(std::make_unique<OpenclRow>(own, entry));
  }
  return rows;
}

std::vector<Kernel> kernels_of(const dispatch::Implementation& row, ContextState& state,
                               const Request& request) {
  return static_cast<const OpenclRow&>(row).kernels(state, request);
}

}  // namespace tessera::operators
