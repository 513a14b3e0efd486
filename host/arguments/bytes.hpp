// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/view.hpp"

namespace tessera::arguments {

/// A view of a call and its name in the public structs.
struct NamedView {
  const char* name;
  View view;
};

/// "loss, lse"
std::string names(const std::vector<NamedView>& views);

/// a * b, at most the largest number: for estimates, where saturating is as good as exact.
std::int64_t saturating_product(std::int64_t a, std::int64_t b) noexcept;
std::int64_t saturating_sum(std::int64_t a, std::int64_t b) noexcept;

/// Bytes of the elements a view can reach, each once: axes of stride 0 repeat theirs.
std::int64_t distinct_bytes(const View& view) noexcept;
/// Each input read once and each output written once.
std::int64_t ideal_bytes(const std::vector<NamedView>& inputs,
                         const std::vector<NamedView>& outputs) noexcept;

}  // namespace tessera::arguments
