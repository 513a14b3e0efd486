// SPDX-License-Identifier: Apache-2.0

#include "host/operators/streaming.hpp"

#include "host/arguments/offsets.hpp"
#include "host/arguments/workspace.hpp"
#include "host/dispatch/recorder.hpp"

namespace tessera::operators {

streaming::Type streaming_type(DType type) {
  if (type == DType::bf16) return streaming::Type::bf16;
  return type == DType::f16 ? streaming::Type::f16 : streaming::Type::f32;
}

streaming::Environment environment(ContextState& state) {
  streaming::Environment result;
  result.threads = state.threads.size();
  result.parallel_for = [&threads = state.threads](
                            const char* phase, std::int64_t tasks,
                            const std::function<void(std::int64_t, int)>& body) {
    dispatch::parallel_for(threads, phase, tasks, body);
  };
  return result;
}

namespace {
bool is_dense_f32(const View& view) {
  return view.dtype() == DType::f32 && (view.strides()[0] == 1 || view.extents()[0] <= 1);
}
}  // namespace

std::int64_t dense_f32_bytes(const View& view, std::int64_t count) {
  if (!view || is_dense_f32(view)) return 0;
  streaming::Arena counter(nullptr);
  counter.take<float>(count);
  return counter.used();
}

const float* dense_f32(const View& view, std::int64_t first, std::int64_t count,
                       streaming::Arena& arena) {
  if (!view) return nullptr;
  if (is_dense_f32(view)) return static_cast<const float*>(view.host_data()) + first;
  auto* values = arena.take<float>(count);
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] =
        arguments::load_f32(view.host_data(), view.dtype(), (first + i) * view.strides()[0]);
  }
  return values;
}

WorkspaceLimit workspace_limit(const std::optional<std::size_t>& requested, std::int64_t v,
                               int threads) {
  if (requested) return {static_cast<std::int64_t>(*requested), true};
  return {arguments::default_workspace_bytes(v, threads), false};
}

void throw_workspace_too_small(const WorkspaceLimit& limit, const std::string& shape,
                               std::int64_t minimum) {
  throw Error(ErrorCode::workspace_too_small,
              "workspace_bytes (or the lent workspace) is " + std::to_string(limit.bytes) +
                  " bytes, the minimum of eigen for " + shape + " is " + std::to_string(minimum) +
                  "; give at least that, or smaller block_sizes");
}

}  // namespace tessera::operators
