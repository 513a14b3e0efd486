// SPDX-License-Identifier: Apache-2.0
#include "host/tile/compute.hpp"

#include <algorithm>

#include "host/tile/core.hpp"

namespace tessera::tile {

void Compute::run(std::int64_t units, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (units <= 0) return;
  // A few parts per thread, so that one that is held up holds up little.
  const std::int64_t part = std::max(grain, (units - 1) / (4 * pool_.size()) + 1);
  const std::int64_t parts = (units + part - 1) / part;
  const auto compute_all = [&] {
    const detail::Aside aside;
    if (parts == 1) return body(0, units);
    pool_.parallel_for(
        parts, [&](std::int64_t i, int) { body(i * part, std::min(units, (i + 1) * part)); });
  };
  // What is not worth a second thread is not worth handing the turn over either.
  if (units < grain) return compute_all();
  detail::beside(compute_all);
}

Compute::Floats Compute::floats(std::int64_t count) {
  {
    const std::lock_guard lock(mutex_);
    // The smallest that is large enough.
    auto best = free_.end();
    for (auto i = free_.begin(); i != free_.end(); ++i) {
      if (i->count >= count && (best == free_.end() || i->count < best->count)) best = i;
    }
    if (best == free_.end() && !free_.empty()) {
      // None: the largest makes room for a larger one.
      best = std::max_element(free_.begin(), free_.end(),
                              [](const Block& a, const Block& b) { return a.count < b.count; });
      free_.erase(best);
    } else if (best != free_.end()) {
      Block block = std::move(*best);
      free_.erase(best);
      return {*this, std::move(block)};
    }
  }
  const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(count, 1)) * sizeof(float);
  auto* data = static_cast<float*>(::operator new[](bytes, alignment));
  return {*this, Block{std::unique_ptr<float[], Free>(data), count}};
}

void Compute::give_back(Block block) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(block));
}

}  // namespace tessera::tile
