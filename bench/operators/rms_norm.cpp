// SPDX-License-Identifier: Apache-2.0
#include "tessera/rms_norm.hpp"

#include <fmt/format.h>

#include <cmath>

#include "bench/judge.hpp"
#include "bench/operator.hpp"

namespace tessera::bench {
namespace {

class Benched final : public BenchOperator {
 public:
  Benched() : BenchOperator("rms_norm") {}

  void make_arrays(Data& data) const override {
    const std::int64_t b = data.key.shape['B'], h = data.key.shape['H'];
    data.arrays.set("x", random_tensor(data.key.x, {b, h}, {h, 1}, 4, 1.0f));
    data.arrays.set("dy", random_tensor(data.key.x, {b, h}, {h, 1}, 5, 1.0f));
    data.arrays.set("scale", random_tensor(data.key.w, {h}, {1}, 6, 1.0f));
  }

  /// The textbook in double: sampled rows of y and grad_x, sampled columns of grad_scale.
  Deviation judge(const Data& data, const Outcome& outcome, double) const override {
    const std::int64_t b = data.key.shape['B'], h = data.key.shape['H'];
    const HostTensor &x = data.arrays["x"], &dy = data.arrays["dy"], &scale = data.arrays["scale"];
    // Of 1 / root, relative: a sum of squares in f32, of which the root takes half.
    const double root_error = (2 * root(h) + 4) * unit_roundoff;
    Deviation deviation;
    const auto hold = [&](const std::string& where, double off, double tolerance) {
      deviation.add(off);
      deviation.hold(where, off, tolerance);
    };
    const auto inverse_root = [&](std::int64_t row) {
      double squares = 0.0;
      for (std::int64_t i = 0; i < h; ++i) squares += std::pow(element(x, row * h + i), 2);
      const double epsilon = static_cast<double>(rms_norm::Options().epsilon);
      return 1.0 / std::sqrt(squares / static_cast<double>(h) + epsilon);
    };
    for (const auto row : sample(b, sampled_rows, 0)) {
      const double r = inverse_root(row);
      double along = 0.0, magnitude = 0.0;
      for (std::int64_t i = 0; i < h; ++i) {
        const double term = element(dy, row * h + i) * element(scale, i) * element(x, row * h + i);
        along += term;
        magnitude += std::abs(term);
      }
      for (std::int64_t i = 0; i < h; ++i) {
        const double in = element(x, row * h + i), factor = element(scale, i);
        if (const auto& y = outcome["y"]) {
          const double wanted = in * r * factor;
          hold(fmt::format("y, row {}", row), element(y, row * h + i) - wanted,
               (root_error + 4 * unit_roundoff + roundoff(y.dtype())) * std::abs(wanted) +
                   smallest(y.dtype()));
        }
        if (const auto& grad_x = outcome["grad_x"]) {
          const double share = r * r * r / static_cast<double>(h);
          const double direct = element(dy, row * h + i) * factor * r;
          const double wanted = direct - along * in * share;
          const double tolerance = (root_error + 4 * unit_roundoff) * std::abs(direct) +
                                   (3 * root_error + (4 * root(h) + 8) * unit_roundoff) *
                                       magnitude * std::abs(in) * share +
                                   roundoff(grad_x.dtype()) * std::abs(wanted) +
                                   smallest(grad_x.dtype());
          hold(fmt::format("grad_x, row {}", row), element(grad_x, row * h + i) - wanted,
               tolerance);
        }
      }
    }
    const auto& grad_scale = outcome["grad_scale"];
    if (!grad_scale) return deviation;
    const auto columns = sample(h, sampled_columns, 0);
    std::vector<double> sums(columns.size()), magnitudes(columns.size());
    for (std::int64_t row = 0; row < b; ++row) {
      const double r = inverse_root(row);
      for (std::size_t k = 0; k < columns.size(); ++k) {
        const double term =
            element(dy, row * h + columns[k]) * element(x, row * h + columns[k]) * r;
        sums[k] += term;
        magnitudes[k] += std::abs(term);
      }
    }
    for (std::size_t k = 0; k < columns.size(); ++k) {
      hold(fmt::format("grad_scale, column {}", columns[k]),
           element(grad_scale, columns[k]) - sums[k],
           (root_error + (4 * root(b) + 4) * unit_roundoff) * magnitudes[k] +
               smallest(grad_scale.dtype()));
    }
    return deviation;
  }

 protected:
  bool gives(std::string_view input) const override { return input == "dy" || input == "scale"; }
};

}  // namespace

const BenchOperator& rms_norm_in_bench() {
  static const Benched benched;
  return benched;
}

}  // namespace tessera::bench
