// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "host/arguments/offsets.hpp"
#include "host/attention/request.hpp"
#include "host/operators/host_implementation.hpp"

/// The implementation `reference`: the textbook in double, row by row.
namespace tessera::attention {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Elements [first, first + count) of a view in row-major order.
std::vector<double> read(const View& view, std::int64_t first, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  const arguments::RowOffsets offsets(view, view.rank());
  for (double& value : values) {
    value =
        static_cast<double>(arguments::load_f32(view.host_data(), view.dtype(), offsets(first++)));
  }
  return values;
}
/// All of them; empty where it is not given.
std::vector<double> read(const View& view) { return read(view, 0, view.size()); }

/// The textbook of a call.
class Textbook {
 public:
  explicit Textbook(const Request& request)
      : r_(request),
        q_(read(r_.q)),
        sinks_(read(r_.sinks)),
        slopes_(read(r_.alibi_slopes)),
        sums_(static_cast<std::size_t>(r_.e)) {}

  void run() {
    const arguments::RowOffsets lengths(r_.kv_lengths, r_.kv_lengths.rank());
    for (std::int64_t b = 0; b < r_.b; ++b) {
      const std::int64_t n = r_.kv_lengths ? arguments::load_int(r_.kv_lengths.host_data(),
                                                                 r_.kv_lengths.dtype(), lengths(b))
                                           : r_.t;
      for (std::int64_t head = 0; head < r_.heads; ++head) {
        // Keys beyond the length are not read.
        const std::int64_t first = (b * r_.heads + head) * r_.t;
        k_ = read(r_.k, first * r_.d, n * r_.d);
        v_ = read(r_.v, first * r_.e, n * r_.e);
        const std::int64_t group = r_.q_heads / r_.heads;
        for (std::int64_t h = head * group; h < (head + 1) * group; ++h) {
          for (std::int64_t i = 0; i < r_.s; ++i) row(b, h, i, n);
        }
      }
    }
  }

 private:
  /// The bias of row `row` and key j; 0 where there is none.
  double bias(std::int64_t row, std::int64_t j) const {
    if (!r_.bias) return 0.0;
    const arguments::RowOffsets offsets(r_.bias, r_.bias.rank());
    return static_cast<double>(
        arguments::load_f32(r_.bias.host_data(), r_.bias.dtype(), offsets(row * r_.t + j)));
  }

  /// The logit of a key at `distance` from the query's place.
  double logit(std::int64_t row, std::int64_t head, std::int64_t j, std::int64_t distance) const {
    const double* q = q_.data() + row * r_.d;
    const double* k = k_.data() + j * r_.d;
    double z = 0.0;
    for (std::int64_t c = 0; c < r_.d; ++c) z += q[c] * k[c];
    z *= static_cast<double>(r_.scale);
    const auto cap = static_cast<double>(r_.options.logit_soft_cap);
    if (cap != 0.0) z = cap * std::tanh(z / cap);
    z += bias(row, j);
    if (slopes_.empty()) return z;
    return z - slopes_[static_cast<std::size_t>(head)] * static_cast<double>(distance);
  }

  void row(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t n) {
    const std::int64_t at = (b * r_.q_heads + head) * r_.s + i;
    const Keys keys = keys_of(r_, i, n);
    const double sink = sinks_.empty() ? -infinity : sinks_[static_cast<std::size_t>(head)];
    double highest = -infinity;
    bool is_bad = std::isnan(sink) || sink == infinity;
    seen_.clear();
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      if (bias(at, j) == -infinity) continue;
      const double z = logit(at, head, j, std::abs(place_of(r_, i, n) - j));
      seen_.emplace_back(j, z);
      is_bad = is_bad || std::isnan(z) || z == infinity;
      highest = std::max(highest, z);
    }
    std::fill(sums_.begin(), sums_.end(), is_bad ? std::nan("") : 0.0);
    double lse = is_bad ? std::nan("") : sink;
    if (!is_bad && highest > -infinity) {
      const double max = std::max(highest, sink);
      double sum = std::exp(sink - max);
      for (const auto& [j, z] : seen_) {
        const double p = std::exp(z - max);
        sum += p;
        const double* v = v_.data() + j * r_.e;
        for (std::size_t c = 0; c < sums_.size(); ++c) sums_[c] += p * v[c];
      }
      for (double& each : sums_) each /= sum;
      lse = max + std::log(sum);
    }
    write(r_.y, at, sums_);
    write(r_.lse, at, {lse});
  }

  static void write(const MutableView& view, std::int64_t row, const std::vector<double>& values) {
    if (!view) return;
    const arguments::RowOffsets offsets(view, view.rank());
    const auto count = static_cast<std::int64_t>(values.size());
    for (std::int64_t c = 0; c < count; ++c) {
      arguments::store_f32(view.host_data(), view.dtype(), offsets(row * count + c),
                           static_cast<float>(values[static_cast<std::size_t>(c)]));
    }
  }

  const Request& r_;
  std::vector<double> q_, sinks_, slopes_;
  std::vector<double> k_, v_;                          ///< of one head, up to the length
  std::vector<std::pair<std::int64_t, double>> seen_;  ///< keys that a row sees, with their logits
  std::vector<double> sums_;                           ///< [E], of a row
};

std::int64_t elements(const Request& r) {
  using arguments::saturating_sum;
  return saturating_sum(saturating_sum(r.q.size(), r.k.size()), r.v.size());
}

class Reference final : public operators::HostImplementation {
 public:
  Reference()
      : HostImplementation({"reference", "textbook, in double; q, k and v up to 2^26", false}) {}

  std::optional<std::string> why_unsupported(ContextState&,
                                             const dispatch::Request& request) const override {
    const std::int64_t count = elements(request_of(request));
    if (count <= std::int64_t{1} << 26) return std::nullopt;
    return "it holds q, k and v in double, and their " + std::to_string(count) +
           " elements are more than 2^26; use eigen";
  }
  CostEstimate cost(ContextState&, const dispatch::Request& request) const override {
    return attention::cost(request_of(request));
  }

 private:
  void describe(const ContextState&, const operators::Request& request,
                Dispatch& dispatch) const override {
    const Request r = request_of(request);
    dispatch.device = "host";
    dispatch.schedule = "textbook";
    dispatch.workspace_bytes = (elements(r) + 2 * r.q_heads + 2 * r.t + r.e) * 8;
    // The textbook has no blocks; any are legal and none is used.
    std::tie(dispatch.block_sizes, dispatch.block_source) =
        operators::given_or_default_blocks(request.call);
  }
  void check_values(const ContextState& state, const operators::Request& request) const override {
    attention::check_values(state, request);
  }
  void compute(ContextState&, const operators::Request& request, Dispatch&, void*) const override {
    Textbook(request_of(request)).run();
  }
};

}  // namespace

std::unique_ptr<dispatch::Implementation> reference_implementation() {
  return std::make_unique<Reference>();
}

}  // namespace tessera::attention
