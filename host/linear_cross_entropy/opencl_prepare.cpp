// SPDX-License-Identifier: Apache-2.0
#include "host/linear_cross_entropy/opencl_prepare.hpp"

#include <bit>

#include "host/dispatch/knobs.hpp"

namespace tessera::linear_cross_entropy {
namespace {

/// Kinds of calls that are remembered; a program rarely has more than a few at a time.
constexpr std::size_t most_calls = 32;

}  // namespace

engines::Operands operands_of(const Request& request) {
  return {.a = request.w.dtype(), .b = request.x.dtype()};
}

Prepared prepare(const Request& request, const std::string& engine_name, opencl::Runtime& runtime) {
  Prepared made;
  auto operands = operands_of(request);
  operands.n = counted_rows(request.loss);
  const auto& given = request.execution.knobs;
  made.shapes = engines::shapes_with(engines::engine_entry(engine_name), runtime.facts(), operands,
                                     given, &runtime, made.notes);
  auto choice = make_schedule(request, made.shapes, runtime.facts(), runtime.info());
  made.engine = std::move(choice.engine);
  made.schedule = std::move(choice.schedule);
  dispatch::check_knobs(given, knobs_of(request, *made.engine, made.schedule),
                        "opencl." + engine_name);
  if (made.shapes.front()->multiplies_pairs() && !made.engine->multiplies_pairs()) {
    made.notes.push_back(
        "bf16 is widened to f32: blocks or memory have room for tiles of half a register only");
  }
  auto& p = made.programs;
  p = programs_of(request, *made.engine, made.schedule, engines::statistics_options(request.loss));
  for (auto* program : p.all()) program->hash = opencl::hash_of(*program);
  return made;
}

void build_kernels(const Request& request, const Prepared& prepared, opencl::Runtime& runtime) {
  auto kernels = kernels_of(request, prepared.schedule, prepared.programs);
  for (auto& kernel : engines::loss_kernels_of(request.loss, prepared.schedule.chunk_rows)) {
    kernels.push_back(std::move(kernel));
  }
  for (const auto& [program, entry] : kernels) runtime.programs().kernel(program, entry);
}

/// Facts change in tests alone, which pretend to have another device.
void PreparedCalls::check_facts(const opencl::Runtime& runtime) {
  if (facts_ == runtime.facts()) return;
  facts_ = runtime.facts();
  verdicts_.clear();
  calls_.clear();
}

std::optional<std::string> PreparedCalls::why_unsupported(const Request& request,
                                                          const std::string& engine_name,
                                                          const opencl::Runtime& runtime) {
  const auto operands = operands_of(request);
  std::lock_guard lock(mutex_);
  check_facts(runtime);
  for (const auto& known : verdicts_) {
    if (known.engine_name == engine_name && known.a == operands.a && known.b == operands.b) {
      return known.reason;
    }
  }
  auto reason = engines::engine_entry(engine_name).why_unsupported(runtime.facts(), operands);
  return verdicts_
      .emplace_back(KnownVerdict{engine_name, operands.a, operands.b, std::move(reason)})
      .reason;
}

PreparedCalls::Words PreparedCalls::key_of(const Request& r) {
  Words words;
  words.reserve(120);  // below 1 KiB, where glibc's malloc is quick; more is for exotic calls
  const auto add = [&](auto... values) {
    (words.push_back(static_cast<std::int64_t>(values)), ...);
  };
  const auto add_view = [&](const View& view) {
    if (!view) return add(-1);
    add(static_cast<int>(view.dtype()), view.rank(), view.is_device());
    for (const auto extent : view.extents()) add(extent);
    for (const auto stride : view.strides()) add(stride);
  };
  const auto& l = r.loss;
  const auto& o = l.outputs;
  const auto& g = r.gradients;
  for (const View* view : {&r.x, &r.w, &r.bias, &l.labels, &l.weight, &l.class_weight, &l.dloss,
                           &l.dlse, &l.lse, &l.statistics}) {
    add_view(*view);
  }
  for (const MutableView* view :
       {&o.loss, &o.lse, &o.argmax, &o.label_logprob, &o.entropy, &o.z_loss, &o.statistics,
        &l.partial, &g.grad_x, &g.grad_w, &g.grad_bias}) {
    add_view(*view);
  }
  const auto& options = l.options;
  const auto& e = r.execution;
  add(l.pass, l.b, l.v, l.v_total, l.is_shard, r.h, options.reduction, options.vocab_offset,
      options.vocab_size_total, counted_rows(l), kernels_can_read(g.grad_w));
  for (const Accumulate gradient :
       {Accumulate::grad_x, Accumulate::grad_w, Accumulate::grad_bias}) {
    add(g.accumulate.has(gradient));
  }
  if (e.block_sizes) {
    add(e.block_sizes->b_block_size, e.block_sizes->h_block_size, e.block_sizes->v_block_size);
  }
  for (const auto& knob : e.knobs) {
    add(knob.name.size(), knob.value);
    for (const char letter : knob.name) add(letter);
  }
  add(e.workspace_bytes.has_value(), e.workspace_bytes.value_or(0));
  for (const float value : {options.logsumexp_weight, options.logit_scale, options.logit_soft_cap,
                            options.label_smoothing, e.gradient_filter_eps}) {
    add(std::bit_cast<std::int32_t>(value));
  }
  return words;
}

std::shared_ptr<const Prepared> PreparedCalls::prepare(const Request& request,
                                                       const std::string& engine_name,
                                                       opencl::Runtime& runtime) {
  auto key = key_of(request);
  {
    std::lock_guard lock(mutex_);
    check_facts(runtime);
    for (const auto& known : calls_) {
      if (known.key == key && known.engine_name == engine_name) return known.prepared;
    }
  }
  const auto made =
      std::make_shared<Prepared>(linear_cross_entropy::prepare(request, engine_name, runtime));
  build_kernels(request, *made, runtime);
  KnownCall entry{engine_name, std::move(key), made};
  std::lock_guard lock(mutex_);
  if (calls_.size() < most_calls) {
    calls_.push_back(std::move(entry));
  } else {
    calls_[next_++ % most_calls] = std::move(entry);
  }
  return made;
}

}  // namespace tessera::linear_cross_entropy
