// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "host/dispatch/description.hpp"
#include "tessera/view.hpp"

namespace tessera::loss {

/// a * b, at most the largest number: for estimates, where saturating is as good as exact.
std::int64_t saturating_product(std::int64_t a, std::int64_t b) noexcept;
std::int64_t saturating_sum(std::int64_t a, std::int64_t b) noexcept;

/// Bytes of the elements a view can reach, each once: axes of stride 0 repeat theirs.
std::int64_t distinct_bytes(const View& view) noexcept;
/// Each input read once and each output written once.
std::int64_t ideal_bytes(const std::vector<dispatch::NamedView>& inputs,
                         const std::vector<dispatch::NamedView>& outputs) noexcept;

}  // namespace tessera::loss
