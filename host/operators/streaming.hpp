// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "host/dispatch/context_state.hpp"
#include "reference/streaming/rows.hpp"

/// Shared by implementations on the walks of reference/streaming.
namespace tessera::operators {

streaming::Type streaming_type(DType type);

/// Tasks of a call on the context's threads.
streaming::Environment environment(ContextState& state);

/// A vector as dense f32: the view's own memory where it is that already, else converted into a
/// piece of `arena`. nullptr when the view is not given.
const float* dense_f32(const View& view, std::int64_t first, std::int64_t count,
                       streaming::Arena& arena);
/// Bytes `dense_f32` may take.
std::int64_t dense_f32_bytes(const View& view, std::int64_t count);

/// The bound on scratch memory: the caller's (`strict`) or the default of the host.
struct WorkspaceLimit {
  std::int64_t bytes;
  bool strict;
};
/// `v` and `threads` are those that the default counts (arguments::default_workspace_bytes).
WorkspaceLimit workspace_limit(const std::optional<std::size_t>& requested, std::int64_t v,
                               int threads = 1);
[[noreturn]] void throw_workspace_too_small(const WorkspaceLimit& limit, const std::string& shape,
                                            std::int64_t minimum);

}  // namespace tessera::operators
