// SPDX-License-Identifier: Apache-2.0
#include "bench/data.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/operator.hpp"

namespace tessera::bench {

void store(HostTensor& tensor, std::int64_t index, float value) {
  switch (tensor.dtype()) {
    case DType::bf16:
      static_cast<bf16*>(tensor.data())[index] = bf16(value);
      break;
    case DType::f16:
      static_cast<f16*>(tensor.data())[index] = f16(value);
      break;
    default:
      static_cast<float*>(tensor.data())[index] = value;
  }
}

HostTensor random_tensor(DType type, const Dims& extents, const Dims& strides, std::uint64_t seed,
                         float scale) {
  HostTensor tensor(type, extents, strides);
  Random random(seed);
  for (std::int64_t i = 0; i < tensor.size(); ++i) store(tensor, i, scale * random.normal());
  return tensor;
}

std::vector<std::int32_t> zipf_labels(std::int64_t b, std::int64_t v, std::uint64_t seed) {
  // The continuous law with density 1 / (k + shift), inverted.
  const double top = std::log((static_cast<double>(v) + zipf_shift) / zipf_shift);
  Random random(seed);
  std::vector<std::int32_t> labels(static_cast<std::size_t>(b));
  for (auto& label : labels) {
    const double rank = zipf_shift * std::exp(random.uniform() * top) - zipf_shift;
    label = static_cast<std::int32_t>(std::clamp<std::int64_t>(std::llround(rank), 0, v - 1));
  }
  return labels;
}

Dims w_strides(const ProblemKey& key) {
  return key.w_is_vh ? Dims{1, key.shape['H']} : Dims{key.shape['V'], 1};
}

double element(const void* data, DType type, std::int64_t index) {
  switch (type) {
    case DType::bf16:
      return static_cast<double>(static_cast<float>(static_cast<const bf16*>(data)[index]));
    case DType::f16:
      return static_cast<double>(static_cast<float>(static_cast<const f16*>(data)[index]));
    default:
      return static_cast<double>(static_cast<const float*>(data)[index]);
  }
}

namespace {

/// Distinct words of each row and what they have, half of it the label.
void make_pairs(Data& data) {
  const auto [b, h, v] = data.key.layer();
  const std::int64_t pairs = data.key.target_pairs;
  const auto ignored = static_cast<std::int32_t>(LossOptions{}.ignore_index);
  Random random(6);
  for (std::int64_t row = 0; row < b; ++row) {
    const std::int32_t label = data.labels[static_cast<std::size_t>(row)];
    std::vector<std::int32_t> words = {label};
    std::vector<double> q = {1.0};
    while (static_cast<std::int64_t>(words.size()) < pairs) {
      const auto word = static_cast<std::int32_t>(random.uniform() * static_cast<double>(v));
      const bool is_there = std::find(words.begin(), words.end(), word) != words.end();
      if (is_there && label != ignored) continue;
      words.push_back(label == ignored ? ignored : word);
      q.push_back(0.1 + random.uniform());
    }
    const double rest = std::accumulate(q.begin() + 1, q.end(), 0.0);
    for (std::size_t i = 1; i < q.size(); ++i) q[i] /= 2.0 * rest;
    if (pairs > 1) q[0] = 0.5;
    data.target_indices.insert(data.target_indices.end(), words.begin(), words.end());
    data.target_probs.insert(data.target_probs.end(), q.begin(), q.end());
  }
}

void make_dense(Data& data) {
  const auto [b, h, v] = data.key.layer();
  data.targets.resize(static_cast<std::size_t>(b * v));
  Random random(7);
  for (std::int64_t row = 0; row < b; ++row) {
    float* q = data.targets.data() + row * v;
    double sum = 0.0;
    for (std::int64_t j = 0; j < v; ++j) {
      q[j] = static_cast<float>(0.1 + random.uniform());
      sum += static_cast<double>(q[j]);
    }
    const auto half_of_all = static_cast<float>(0.5 / sum);
    for (std::int64_t j = 0; j < v; ++j) q[j] *= half_of_all;
    q[data.labels[static_cast<std::size_t>(row)]] += 0.5f;
  }
}

}  // namespace

Data make_data(const ProblemKey& key, int threads) {
  Data data;
  data.key = key;
  const bool has_labels = key.op->has_labels();
  if (has_labels) data.labels = zipf_labels(key.shape['B'], key.shape['V'], 3);
  for (std::int64_t row = 0; has_labels && row < key.shape['B']; ++row) {
    const auto before = [&](std::int64_t n) {
      return std::floor(static_cast<double>(n) * key.ignored);
    };
    if (before(row + 1) > before(row)) {
      data.labels[static_cast<std::size_t>(row)] =
          static_cast<std::int32_t>(LossOptions{}.ignore_index);
    } else {
      data.counted.push_back(row);
    }
  }
  if (key.target_pairs > 0) make_pairs(data);
  if (key.dense_targets) make_dense(data);
  key.op->make_arrays(data);
  key.op->add_streamed(data, threads);
  return data;
}

}  // namespace tessera::bench
