// SPDX-License-Identifier: Apache-2.0
#include "bench/linear_data.hpp"

#include <algorithm>
#include <cmath>

namespace tessera::bench {
namespace {

/// Every 128th channel of a hidden state is this much stronger.
constexpr float outlier = 8.0f;
constexpr std::int64_t outlier_every = 128;

}  // namespace

HostTensor hidden_states(const ProblemKey& key, std::uint64_t seed) {
  const auto [b, h, v] = key.layer();
  HostTensor x = random_tensor(key.x, {b, h}, {h, 1}, seed, 1.0f);
  for (std::int64_t row = 0; row < b; ++row) {
    for (std::int64_t i = outlier_every / 2; i < h; i += outlier_every) {
      store(x, row * h + i, outlier * static_cast<float>(element(x, row * h + i)));
    }
  }
  return x;
}

HostTensor weights(const ProblemKey& key, std::uint64_t seed) {
  const auto [b, h, v] = key.layer();
  const float strong = outlier * outlier / static_cast<float>(outlier_every);
  return random_tensor(key.w, {h, v}, w_strides(key), seed,
                       spread_of_logits / std::sqrt(static_cast<float>(h) * (1.0f + strong)));
}

/// The label has u^2 for a uniform u: two nats on average, three tokens in ten above a half. Four
/// other words, drawn by Zipf's law too, share half of the rest; the other half falls as 1 / rank^2
/// over all words, which are numbered in the order of their frequency, so that a few dozen words of
/// a token are above 2^-12, as Wijmans et al. (Cut Your Losses, 2024) found of Gemma 2. Words are
/// random of norm about 1, a token is the sum of its words, and every logit has noise of variance 1
/// on it; feature 0 carries the logits that all tokens have in common.
Trained trained(const ProblemKey& key, const std::vector<std::int32_t>& labels) {
  const auto [b, h, v] = key.layer();
  const Dims strides = w_strides(key);
  constexpr float strong = 8.0f;  // of x, so that feature 0 of w is not much above the others
  // The words that a token also resembles, besides its label, which share half of the rest.
  constexpr std::int64_t others = 4;
  const auto common = [](std::int64_t word) {
    return -2.0 * std::log(static_cast<double>(word) + zipf_shift);
  };
  HostTensor w = random_tensor(key.w, {h, v}, strides, 2, 1.0f / std::sqrt(static_cast<float>(h)));
  double sum = 0.0;
  for (std::int64_t word = 0; word < v; ++word) {
    sum += std::exp(common(word));
    store(w, word * strides[1], static_cast<float>(common(word)) / strong);
  }
  const double half_of_rest = std::log(sum) + 0.5;  // noise makes the mean of exp e^(1/2) larger
  HostTensor x(key.x, {b, h}, {h, 1});
  const auto other_words = zipf_labels(b * others, v, 5);
  Random random(1);
  std::vector<double> state(static_cast<std::size_t>(h));
  for (std::int64_t row = 0; row < b; ++row) {
    for (auto& value : state) value = static_cast<double>(random.normal());
    state[0] = static_cast<double>(strong);
    const auto add = [&, h = h](std::int64_t word, double logit) {
      for (std::int64_t i = 1; i < h; ++i) {
        state[static_cast<std::size_t>(i)] +=
            (logit - common(word)) * element(w, i * strides[0] + word * strides[1]);
      }
    };
    const double p = std::clamp(std::pow(random.uniform(), 2.0), 1e-6, 1.0 - 1e-6);
    add(std::max(0, labels[static_cast<std::size_t>(row)]),
        half_of_rest + std::log(2.0 * p / (1.0 - p)));
    for (std::int64_t i = 0; i < others; ++i) {
      add(other_words[static_cast<std::size_t>(row * others + i)],
          half_of_rest - std::log(static_cast<double>(others)));
    }
    for (std::int64_t i = 0; i < h; ++i) {
      store(x, row * h + i, static_cast<float>(state[static_cast<std::size_t>(i)]));
    }
  }
  return {std::move(x), std::move(w)};
}

}  // namespace tessera::bench
