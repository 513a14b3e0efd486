// SPDX-License-Identifier: Apache-2.0
#include "host/arguments/overlap.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::arguments {

namespace {

/// 128 bits: a sum of reaches, each below 2^63.
using Wide = __int128;

/// Bytes from the first to the end of the last byte that a view with elements reaches.
Wide span_of(const View& view) {
  Wide last = 0;
  for (int axis = 0; axis < view.rank(); ++axis) {
    last += Wide(view.extents()[axis] - 1) * view.strides()[axis];
  }
  return (last + 1) * static_cast<std::int64_t>(size_of(view.dtype()));
}

/// An integer variable in [low, high] that moves an address by `stride` bytes per unit.
struct Term {
  std::int64_t stride;
  std::int64_t low;
  std::int64_t high;
};

Wide floor_div(Wide a, Wide b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }
Wide ceil_div(Wide a, Wide b) { return -floor_div(-a, b); }

/// Whether sum(stride_k * n_k) can be `target`. Each term is bounded by what the smaller strides
/// can still make up, so that regular layouts need a handful of steps.
class Search {
 public:
  explicit Search(std::vector<Term> terms) : terms_(std::move(terms)) {
    std::sort(terms_.begin(), terms_.end(),
              [](const Term& a, const Term& b) { return a.stride > b.stride; });
    rest_.assign(terms_.size() + 1, {0, 0});
    for (std::size_t k = terms_.size(); k-- > 0;) {
      const auto& t = terms_[k];
      rest_[k] = {rest_[k + 1].first + Wide(t.stride) * t.low,
                  rest_[k + 1].second + Wide(t.stride) * t.high};
    }
  }

  bool reaches(Wide target, std::size_t k = 0) {
    if (target < rest_[k].first || target > rest_[k].second) return false;
    if (k + 1 >= terms_.size()) {
      return terms_.empty() || target % terms_[k].stride == 0;
    }
    const auto& t = terms_[k];
    const Wide low = std::max<Wide>(t.low, ceil_div(target - rest_[k + 1].second, t.stride));
    const Wide high = std::min<Wide>(t.high, floor_div(target - rest_[k + 1].first, t.stride));
    for (Wide n = low; n <= high; ++n) {
      if (--budget_ <= 0) return true;
      if (reaches(target - n * t.stride, k + 1)) return true;
    }
    return false;
  }

 private:
  std::vector<Term> terms_;
  std::vector<std::pair<Wide, Wide>> rest_;  ///< least and largest sum of terms k and on
  /// About ten milliseconds; views met in practice need fewer steps than they have rows.
  std::int64_t budget_ = 1 << 20;
};

void add_axes(std::vector<Term>& terms, const View& view, std::int64_t sign) {
  const auto add = [&](std::int64_t stride, std::int64_t count) {
    if (count <= 1 || stride == 0) return;
    const std::int64_t low = sign > 0 ? 0 : -(count - 1);
    const std::int64_t high = sign > 0 ? count - 1 : 0;
    for (auto& term : terms) {
      if (term.stride == stride) {
        term.low += low;
        term.high += high;
        return;
      }
    }
    terms.push_back({stride, low, high});
  };
  const auto bytes = static_cast<std::int64_t>(size_of(view.dtype()));
  for (int axis = 0; axis < view.rank(); ++axis) {
    add(view.strides()[axis] * bytes, view.extents()[axis]);
  }
  add(1, bytes);  // any byte of an element
}

}  // namespace

bool overlap(const View& a, const View& b) {
  if (a.size() == 0 || b.size() == 0) return false;
  if (a.is_device() != b.is_device() || a.device_memory() != b.device_memory()) return false;
  const auto address = [](const View& view) {
    return view.is_device() ? Wide(view.byte_offset())
                            : Wide(reinterpret_cast<std::uintptr_t>(view.host_data()));
  };
  // Arrays apart from each other, as nearly all are.
  if (address(a) + span_of(a) <= address(b) || address(b) + span_of(b) <= address(a)) return false;
  // Both touch a byte when (a + its terms) - (b + its terms) can be 0.
  std::vector<Term> terms;
  add_axes(terms, a, 1);
  add_axes(terms, b, -1);
  return Search(std::move(terms)).reaches(address(b) - address(a));
}

bool elements_are_apart(const View& view) {
  if (view.size() == 0) return true;
  Dims strides, extents;  // of the axes that matter, the smallest stride first
  for (int axis = 0; axis < view.rank(); ++axis) {
    if (view.extents()[axis] <= 1) continue;
    strides.push_back(view.strides()[axis]);
    extents.push_back(view.extents()[axis]);
    for (int at = strides.rank() - 1; at > 0 && strides[at] < strides[at - 1]; --at) {
      std::swap(strides[at], strides[at - 1]);
      std::swap(extents[at], extents[at - 1]);
    }
  }
  Wide reach = 0;  // elements from the first to the last of the inner axes
  for (int i = 0; i < strides.rank(); ++i) {
    if (strides[i] <= reach) return false;
    reach += Wide(strides[i]) * (extents[i] - 1);
  }
  return true;
}

}  // namespace tessera::arguments
