// SPDX-License-Identifier: Apache-2.0
#include "bench/arrays.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "bench/device_memory.hpp"

namespace tessera::bench {
namespace {

/// xorshift64*: the standard library's normal deviates take a minute for a large w.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u | 1u) {}
  std::uint64_t bits() {
    state_ ^= state_ >> 12, state_ ^= state_ << 25, state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1du;
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  /// Mean 0, variance 1: the sum of four 16-bit uniforms, bell-shaped up to 3.4 deviations.
  float normal() {
    const std::uint64_t b = bits();
    const auto part = [&](int shift) { return static_cast<float>((b >> shift) & 0xffffu); };
    const float sum = part(0) + part(16) + part(32) + part(48);
    return (sum - 131070.0f) * (1.7320508f / 65536.0f);
  }

 private:
  std::uint64_t state_;
};

void store(void* data, DType type, std::int64_t index, float value) {
  switch (type) {
    case DType::bf16:
      static_cast<bf16*>(data)[index] = bf16(value);
      break;
    case DType::f16:
      static_cast<f16*>(data)[index] = f16(value);
      break;
    default:
      static_cast<float*>(data)[index] = value;
  }
}

HostTensor random_tensor(DType type, const Dims& extents, const Dims& strides, std::uint64_t seed,
                         float scale) {
  HostTensor tensor(type, extents, strides);
  Random random(seed);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    store(tensor.data(), type, i, scale * random.normal());
  }
  return tensor;
}

/// Every 128th channel of a hidden state is this much stronger.
constexpr float outlier = 8.0f;
constexpr std::int64_t outlier_every = 128;

constexpr double shift = 2.7;  ///< Mandelbrot's, of Zipf's law

std::vector<std::int32_t> zipf_labels(std::int64_t b, std::int64_t v, std::uint64_t seed) {
  // The continuous law with density 1 / (k + shift), inverted.
  const double top = std::log((static_cast<double>(v) + shift) / shift);
  Random random(seed);
  std::vector<std::int32_t> labels(static_cast<std::size_t>(b));
  for (auto& label : labels) {
    const double rank = shift * std::exp(random.uniform() * top) - shift;
    label = static_cast<std::int32_t>(std::clamp<std::int64_t>(std::llround(rank), 0, v - 1));
  }
  return labels;
}

/// Hidden states and words whose probabilities are like a trained model's. The label has u^2 for a
/// uniform u: two nats on average, three tokens in ten above a half. Four other words, drawn by
/// Zipf's law too, share half of the rest; the other half falls as 1 / rank^2 over all words, which
/// are numbered in the order of their frequency, so that a few dozen words of a token are above
/// 2^-12, as Wijmans et al. (Cut Your Losses, 2024) found of Gemma 2. Words are random of norm
/// about 1, a token is the sum of its words, and every logit has noise of variance 1 on it; feature
/// 0 carries the logits that all tokens have in common.
void make_trained(Data& data) {
  const auto [b, h, v] = data.key.shape;
  const auto& key = data.key;
  const Dims strides = w_strides(key);
  constexpr float strong = 8.0f;  // of x, so that feature 0 of w is not much above the others
  // The words that a token also resembles, besides its label, which share half of the rest.
  constexpr std::int64_t others = 4;
  const auto common = [](std::int64_t word) {
    return -2.0 * std::log(static_cast<double>(word) + shift);
  };
  data.w = random_tensor(key.w, {h, v}, strides, 2, 1.0f / std::sqrt(static_cast<float>(h)));
  double sum = 0.0;
  for (std::int64_t word = 0; word < v; ++word) {
    sum += std::exp(common(word));
    store(data.w.data(), key.w, word * strides[1], static_cast<float>(common(word)) / strong);
  }
  const double half_of_rest = std::log(sum) + 0.5;  // noise makes the mean of exp e^(1/2) larger
  data.x = HostTensor(key.x, {b, h}, {h, 1});
  const auto other_words = zipf_labels(b * others, v, 5);
  Random random(1);
  std::vector<double> state(static_cast<std::size_t>(h));
  for (std::int64_t row = 0; row < b; ++row) {
    for (auto& value : state) value = static_cast<double>(random.normal());
    state[0] = static_cast<double>(strong);
    const auto add = [&](std::int64_t word, double logit) {
      for (std::int64_t i = 1; i < h; ++i) {
        state[static_cast<std::size_t>(i)] +=
            (logit - common(word)) *
            element(data.w.data(), key.w, i * strides[0] + word * strides[1]);
      }
    };
    const double p = std::clamp(std::pow(random.uniform(), 2.0), 1e-6, 1.0 - 1e-6);
    add(std::max(0, data.labels[static_cast<std::size_t>(row)]),
        half_of_rest + std::log(2.0 * p / (1.0 - p)));
    for (std::int64_t i = 0; i < others; ++i) {
      add(other_words[static_cast<std::size_t>(row * others + i)],
          half_of_rest - std::log(static_cast<double>(others)));
    }
    for (std::int64_t i = 0; i < h; ++i) {
      store(data.x.data(), key.x, row * h + i,
            static_cast<float>(state[static_cast<std::size_t>(i)]));
    }
  }
}

std::vector<double> lse_by_streaming(const Data& data, int threads) {
  const auto& shape = data.key.shape;
  Context context(ContextOptions{.threads = threads, .host_only = true});
  std::vector<float> lse(static_cast<std::size_t>(shape.b));
  const Outputs outputs{.lse = MutableView::host(lse.data(), {shape.b})};
  const View labels = View::host(data.labels.data(), {shape.b});
  if (data.key.op == Operator::linear_cross_entropy) {
    linear_cross_entropy::forward(context,
                                  {.x = data.x.view(), .labels = labels, .w = data.w.view()},
                                  outputs, {}, {.implementation = "eigen"})
        .wait();
  } else {
    softmax_cross_entropy::forward(context, {.logits = data.logits.view(), .labels = labels},
                                   outputs, {}, {.implementation = "eigen"})
        .wait();
  }
  return {lse.begin(), lse.end()};
}

}  // namespace

Dims w_strides(const ProblemKey& key) {
  return key.w_is_vh ? Dims{1, key.shape.h} : Dims{key.shape.v, 1};
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

Data make_data(const ProblemKey& key, int threads) {
  const auto [b, h, v] = key.shape;
  Data data;
  data.key = key;
  data.labels = zipf_labels(b, v, 3);
  for (std::int64_t row = 0; row < b; ++row) {
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
  constexpr float spread = 2.0f;  // of the logits, about
  if (key.trained) {
    make_trained(data);
  } else if (key.op == Operator::linear_cross_entropy) {
    data.x = random_tensor(key.x, {b, h}, {h, 1}, 1, 1.0f);
    for (std::int64_t row = 0; row < b; ++row) {
      for (std::int64_t i = outlier_every / 2; i < h; i += outlier_every) {
        const auto at = row * h + i;
        store(data.x.data(), key.x, at,
              outlier * static_cast<float>(element(data.x.data(), key.x, at)));
      }
    }
    const float strong = outlier * outlier / static_cast<float>(outlier_every);
    data.w = random_tensor(key.w, {h, v}, w_strides(key), 2,
                           spread / std::sqrt(static_cast<float>(h) * (1.0f + strong)));
  } else {
    data.logits = random_tensor(key.x, {b, v}, {v, 1}, 4, spread);
  }
  data.lse = lse_by_streaming(data, threads);
  return data;
}

Arrays::Arrays(Context& context, const Data& data, const Row& row, bool on_device, bool borrow)
    : context_(context), on_device_(on_device) {
  const auto& key = row.problem;
  const auto [b, h, v] = key.shape;
  try {
    labels = place(data.labels.data(), DType::i32, {b}, {1}, borrow);
    if (row.linear()) {
      x = place(data.x.data(), key.x, {b, h}, {h, 1}, borrow);
      w = place(data.w.data(), key.w, {h, v}, w_strides(key), borrow);
    } else {
      logits = place(data.logits.data(), key.x, {b, v}, {v, 1}, borrow && !row.in_place);
      if (row.in_place) {
        grad_logits = on_device ? MutableView::device(logits.device_memory(), 0, key.x, {b, v})
                                : host_.back()->mutable_view();
      }
    }
    loss = make(DType::f32, {});
    statistics = make(DType::f32, {b, 2});
    if (row.gradients() && row.linear()) {
      if (row.grad_x) grad_x = make(key.x, {b, h});
      if (row.grad_w) grad_w = make(key.w, {h, v}, w_strides(key));
    } else if (row.gradients() && !row.in_place) {
      grad_logits = make(key.x, {b, v});
    }
  } catch (...) {
    for (cl_mem memory : device_) release_memory(memory);
    throw;
  }
}

Arrays::~Arrays() {
  for (cl_mem memory : device_) release_memory(memory);
}

View Arrays::place(const void* data, DType type, const Dims& extents, const Dims& strides,
                   bool borrow) {
  if (borrow && !on_device_) return View::host(data, type, extents, strides);
  const auto bytes = static_cast<std::size_t>(extents.product()) * size_of(type);
  const MutableView view = make(type, extents, strides);
  if (on_device_) {
    write_memory(context_, view.device_memory(), data, bytes);
  } else {
    std::memcpy(view.host_data(), data, bytes);
  }
  return view;
}

MutableView Arrays::make(DType type, const Dims& extents, const Dims& strides) {
  if (!on_device_) {
    host_.push_back(std::make_unique<HostTensor>(
        type, extents, strides.empty() ? contiguous_strides(extents) : strides));
    return host_.back()->mutable_view();
  }
  const auto bytes = static_cast<std::size_t>(extents.product()) * size_of(type);
  device_.push_back(create_memory(context_, bytes));
  return MutableView::device(device_.back(), 0, type, extents, strides);
}

void Arrays::restore_logits(const Data& data) {
  const auto bytes = static_cast<std::size_t>(logits.size()) * size_of(logits.dtype());
  if (on_device_) {
    write_memory(context_, logits.device_memory(), data.logits.data(), bytes);
  } else {
    std::memcpy(grad_logits.host_data(), data.logits.data(), bytes);
  }
}

void Arrays::poison() {
  for (const MutableView* view : {&loss, &grad_x, &grad_w, &grad_logits}) {
    if (!*view) continue;
    const auto bytes = static_cast<std::size_t>(view->size()) * size_of(view->dtype());
    // Bits of all ones are a NaN in every floating type.
    if (on_device_) {
      fill_memory(context_, view->device_memory(), 0xff, bytes);
    } else {
      std::memset(view->host_data(), 0xff, bytes);
    }
  }
}

HostTensor Arrays::fetch(const MutableView& view) const {
  HostTensor result(view.dtype(), view.extents(), view.strides());
  const auto bytes = static_cast<std::size_t>(view.size()) * size_of(view.dtype());
  if (on_device_) {
    read_memory(context_, view.device_memory(), result.data(), bytes);
  } else {
    std::memcpy(result.data(), view.host_data(), bytes);
  }
  return result;
}

std::int64_t Arrays::bytes(const Row& row) {
  const auto& key = row.problem;
  const auto [b, h, v] = key.shape;
  const auto of = [](DType type, std::int64_t count) {
    return count * static_cast<std::int64_t>(size_of(type));
  };
  if (!row.linear()) return of(key.x, b * v) * (row.gradients() && !row.in_place ? 2 : 1);
  std::int64_t sum = of(key.x, b * h) + of(key.w, h * v);
  if (row.gradients() && row.grad_x) sum += of(key.x, b * h);
  if (row.gradients() && row.grad_w) sum += of(key.w, h * v);
  return sum;
}

}  // namespace tessera::bench
