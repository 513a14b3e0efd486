// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "host/dispatch/context_state.hpp"
#include "host/dispatch/description.hpp"

namespace tessera::loss {

/// Scratch bytes a call over v columns may use: the caller's bound, else the larger of 64 MiB and
/// 256 rows of f32 logits on CPUs and the host, and 1/16 of device memory on GPUs. `on_device`
/// false: the call runs on the host, whatever device the context has.
std::int64_t workspace_budget(const ContextState& state, bool on_device, std::int64_t v,
                              const std::optional<std::size_t>& requested);

/// a * b, at most the largest number: for estimates, where saturating is as good as exact.
std::int64_t saturating_product(std::int64_t a, std::int64_t b) noexcept;
std::int64_t saturating_sum(std::int64_t a, std::int64_t b) noexcept;

/// Bytes of the elements a view can reach, each once: axes of stride 0 repeat theirs.
std::int64_t distinct_bytes(const View& view) noexcept;
/// Each input read once and each output written once.
std::int64_t ideal_bytes(const std::vector<dispatch::NamedView>& inputs,
                         const std::vector<dispatch::NamedView>& outputs) noexcept;

}  // namespace tessera::loss
