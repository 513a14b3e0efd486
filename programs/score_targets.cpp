// SPDX-License-Identifier: Apache-2.0
// What labels and soft targets say by themselves, without logits.
#include <cmath>
#include <cstring>
#include <vector>

#include "programs/score.hpp"

namespace tessera::programs {
namespace {

/// Goes through the elements of a file's array in row-major order, whatever their order there.
class Walk {
 public:
  explicit Walk(const View& view) : view_(view), at_(contiguous_strides(view.extents())) {
    for (int axis = 0; axis < at_.rank(); ++axis) at_[axis] = 0;
  }
  std::int64_t next_word() {
    return view_.dtype() == DType::i64 ? next<std::int64_t>() : next<std::int32_t>();
  }
  double next_probability() {
    if (view_.dtype() == DType::bf16) return static_cast<double>(static_cast<float>(next<bf16>()));
    if (view_.dtype() == DType::f16) return static_cast<double>(static_cast<float>(next<f16>()));
    return static_cast<double>(next<float>());
  }

 private:
  template <class T>
  T next() {
    T value;
    std::memcpy(&value, static_cast<const T*>(view_.host_data()) + offset_, sizeof value);
    for (int axis = view_.rank() - 1; axis >= 0; --axis) {
      offset_ += view_.strides()[axis];
      if (++at_[axis] < view_.extents()[axis]) break;
      offset_ -= at_[axis] * view_.strides()[axis];
      at_[axis] = 0;
    }
    return value;
  }

  const View& view_;
  Dims at_;
  std::int64_t offset_ = 0;
};

/// Calls `body(row, q)` for each word that a row names: labels have q = 1, padding names none.
template <class Body>
void for_each_word(const ScoreArrays& arrays, std::int64_t ignore_index, const Body& body) {
  if (const View& q = arrays["targets"].view()) {
    Walk probabilities(q);
    for (std::int64_t i = 0; i < q.size(); ++i) {
      body(i / q.extents().back(), probabilities.next_probability());
    }
    return;
  }
  const View& probs = arrays["target_probs"].view();
  const View& words = arrays[probs ? "target_indices" : "labels"].view();
  const std::int64_t k = probs ? words.extents().back() : 1;
  Walk each_word(words), each_probability(probs);
  for (std::int64_t i = 0; i < words.size(); ++i) {
    const double q = probs ? each_probability.next_probability() : 1.0;
    if (each_word.next_word() != ignore_index) body(i / k, q);
  }
}

}  // namespace

std::int64_t counted_tokens(const ScoreArrays& arrays, std::int64_t rows,
                            std::int64_t ignore_index) {
  if (!arrays["labels"] && !arrays["target_indices"]) return rows;
  std::int64_t counted = 0, last = -1;
  for_each_word(arrays, ignore_index, [&](std::int64_t row, double) {
    counted += row != last ? 1 : 0;
    last = row;
  });
  return counted;
}

HostTensor target_entropy(const ScoreArrays& arrays, std::int64_t ignore_index) {
  HostTensor result(DType::f32, arrays.leading());
  const auto values = result.as<float>();
  std::vector<double> sums(values.size(), 0.0);
  for_each_word(arrays, ignore_index, [&](std::int64_t row, double q) {
    if (q > 0.0) sums[static_cast<std::size_t>(row)] -= q * std::log(q);
  });
  for (std::size_t row = 0; row < sums.size(); ++row) values[row] = static_cast<float>(sums[row]);
  return result;
}

}  // namespace tessera::programs
