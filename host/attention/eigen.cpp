// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "host/arguments/offsets.hpp"
#include "host/attention/request.hpp"
#include "host/operators/host_implementation.hpp"
#include "host/operators/streaming.hpp"
#include "reference/streaming/attention.hpp"

/// The implementation `eigen`: blocks of queries and keys on the host's threads.
namespace tessera::attention {
namespace {

using streaming::Arena;

/// Element offsets of the sequences of a view [..., heads, tokens, depth].
const std::int64_t* offsets_of(const View& view, int axes, std::int64_t sequences, Arena& arena) {
  const arguments::RowOffsets offsets(view, axes);
  auto* all = arena.take<std::int64_t>(sequences);
  for (std::int64_t b = 0; b < sequences; ++b) all[b] = offsets(b);
  return all;
}

/// An array as the walk takes it: its heads, tokens and depth stand behind `axes` leading axes.
template <class Array, class AView>
Array heads_of(const AView& view, int axes, std::int64_t sequences, Arena& arena) {
  if (!view) return {};
  const auto stride = [&](int axis) { return axis < view.rank() ? view.strides()[axis] : 0; };
  return {.data = view.host_data(),
          .type = operators::streaming_type(view.dtype()),
          .offsets = offsets_of(view, axes, sequences, arena),
          .head_stride = stride(axes),
          .token_stride = stride(axes + 1),
          .depth_stride = stride(axes + 2)};
}

/// Bytes of the tables of a call besides the walk's own scratch memory.
std::int64_t table_bytes(const Request& r) {
  Arena counter(nullptr);
  for (int i = 0; i < 7; ++i) counter.take<std::int64_t>(r.b);
  counter.take<float>(r.q_heads);
  counter.take<float>(r.q_heads);
  return counter.used() + dispatch::workspace_slack;
}

streaming::AttentionShape shape_of(const Request& r) {
  return {.batch = r.b,
          .q_heads = r.q_heads,
          .kv_heads = r.heads,
          .queries = r.s,
          .keys = r.t,
          .d = r.d,
          .e = r.e};
}

streaming::AttentionPlan plan_within(const Request& r, int threads, std::int64_t limit) {
  const auto given = operators::blocks_as<BlockSizes>(r.base.call.block_sizes);
  return streaming::plan_attention(shape_of(r), given ? given->q_block_size : 0,
                                   given ? given->kv_block_size : 0, threads, limit,
                                   streaming::kernels());
}

streaming::AttentionPlan plan_of(const Request& r, int threads) {
  const auto limit = operators::workspace_limit(r.base.call.workspace_bytes, 0, threads);
  const std::int64_t tables = table_bytes(r);
  const auto plan = plan_within(r, threads, limit.bytes - tables);
  const std::int64_t needed = plan.workspace_bytes + tables;
  if (limit.strict && limit.bytes < needed) {
    operators::throw_workspace_too_small(
        limit,
        fmt::format("D = {}, E = {}, {} queries, {} keys and {} threads", r.d, r.e, r.s, r.t,
                    threads),
        needed);
  }
  return plan;
}

class Eigen final : public operators::HostImplementation {
 public:
  Eigen() : HostImplementation({"eigen", "block by block, on the host's threads", true}) {}

  CostEstimate cost(ContextState&, const dispatch::Request& request) const override {
    return attention::cost(request_of(request));
  }

 private:
  std::optional<std::int64_t> minimum_workspace_bytes(
      const ContextState& state, const operators::Request& request) const override {
    const Request r = request_of(request);
    return plan_within(r, state.threads.size(), 0).workspace_bytes + table_bytes(r);
  }
  void describe(const ContextState& state, const operators::Request& request,
                Dispatch& dispatch) const override {
    const Request r = request_of(request);
    const auto plan = plan_of(r, state.threads.size());
    dispatch.device = "host";
    dispatch.schedule = plan.schedule;
    dispatch.workspace_bytes = plan.workspace_bytes + table_bytes(r);
    dispatch.knobs = {
        {"parts", plan.parts}, {"threads", plan.threads}, {"lanes", streaming::kernels().lanes}};
    const auto& given = request.call.block_sizes;
    dispatch.block_source = given ? BlockSource::caller : BlockSource::heuristic;
    dispatch.block_sizes = given ? operators::blocks_by_name(*request.call.op, *given)
                                 : to_named(BlockSizes{plan.q_block, plan.kv_block});
  }
  void check_values(const ContextState& state, const operators::Request& request) const override {
    attention::check_values(state, request);
  }
  void compute(ContextState& state, const operators::Request& request, Dispatch&,
               void* workspace) const override {
    const Request r = request_of(request);
    const auto plan = plan_of(r, state.threads.size());
    Arena arena(workspace);
    const int axes = r.q.rank() - 3;
    const auto read = [&](const View& view) {
      return heads_of<streaming::ConstHeads>(view, axes, r.b, arena);
    };
    const auto write = [&](const MutableView& view) {
      return heads_of<streaming::Heads>(view, axes, r.b, arena);
    };
    streaming::AttentionProblem p{shape_of(r)};
    p.q = read(r.q);
    p.k = read(r.k);
    p.v = read(r.v);
    p.bias = read(r.bias);
    p.y = write(r.y);
    p.lse = write(r.lse);
    if (r.kv_lengths) {
      const arguments::RowOffsets offsets(r.kv_lengths, r.kv_lengths.rank());
      auto* lengths = arena.take<std::int64_t>(r.b);
      for (std::int64_t b = 0; b < r.b; ++b) {
        lengths[b] =
            arguments::load_int(r.kv_lengths.host_data(), r.kv_lengths.dtype(), offsets(b));
      }
      p.lengths = lengths;
    }
    p.sinks = operators::dense_f32(r.sinks, 0, r.q_heads, arena);
    p.slopes = operators::dense_f32(r.alibi_slopes, 0, r.q_heads, arena);
    p.scale = r.scale;
    p.cap = r.options.logit_soft_cap;
    p.causal = r.options.causal != Causal::no;
    p.upper_left = r.options.causal == Causal::upper_left;
    p.window_left = r.options.window_left;
    p.window_right = r.options.window_right;
    streaming::run_attention(p, plan, operators::environment(state),
                             static_cast<char*>(workspace) + arena.used());
  }
};

}  // namespace

std::unique_ptr<dispatch::Implementation> eigen_implementation() {
  return std::make_unique<Eigen>();
}

}  // namespace tessera::attention
