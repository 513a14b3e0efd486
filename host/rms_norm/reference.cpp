// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "host/arguments/offsets.hpp"
#include "host/operators/host_implementation.hpp"
#include "host/rms_norm/request.hpp"

/// The implementation `reference`: the textbook in double, element by element.
namespace tessera::rms_norm {
namespace {

/// The elements of a view in row-major order; empty where it is not given.
std::vector<double> read(const View& view) {
  std::vector<double> values(view ? static_cast<std::size_t>(view.size()) : 0);
  const arguments::RowOffsets offsets(view, view.rank());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(
        arguments::load_f32(view.host_data(), view.dtype(), offsets(static_cast<std::int64_t>(i))));
  }
  return values;
}

void write(const MutableView& view, const std::vector<double>& values, bool add) {
  if (!view) return;
  const arguments::RowOffsets offsets(view, view.rank());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t at = offsets(static_cast<std::int64_t>(i));
    const float before = add ? arguments::load_f32(view.host_data(), view.dtype(), at) : 0.0f;
    arguments::store_f32(view.host_data(), view.dtype(), at,
                         before + static_cast<float>(values[i]));
  }
}

std::int64_t workspace_bytes(const Request& r) { return 4 * r.b * r.h * 8 + 2 * r.h * 8; }

void compute(const Request& r) {
  const auto x = read(r.x), scale = read(r.scale), dy = read(r.dy);
  const auto h = static_cast<std::size_t>(r.h), b = static_cast<std::size_t>(r.b);
  std::vector<double> y(b * h), grad_x(b * h), grad_scale(h);
  const auto factor = [&](std::size_t i) {
    return scale.empty() ? 1.0 : static_cast<double>(r.offset) + scale[i];
  };
  for (std::size_t row = 0; row < b; ++row) {
    const double* in = x.data() + row * h;
    double squares = 0.0;
    for (std::size_t i = 0; i < h; ++i) squares += in[i] * in[i];
    const double root =
        1.0 / std::sqrt(squares / static_cast<double>(h) + static_cast<double>(r.epsilon));
    for (std::size_t i = 0; i < h; ++i) y[row * h + i] = in[i] * root * factor(i);
    if (!r.is_backward()) continue;
    const double* g = dy.data() + row * h;
    double projection = 0.0;
    for (std::size_t i = 0; i < h; ++i) projection += g[i] * factor(i) * in[i];
    projection *= root * root / static_cast<double>(h);
    for (std::size_t i = 0; i < h; ++i) {
      grad_x[row * h + i] = root * (g[i] * factor(i) - in[i] * projection);
      grad_scale[i] += g[i] * in[i] * root;
    }
  }
  write(r.y, y, false);
  write(r.grad_x, grad_x, r.accumulate);
  write(r.grad_scale, grad_scale, r.accumulate);
}

class Textbook final : public operators::HostImplementation {
 public:
  Textbook() : HostImplementation({"reference", "textbook, in double; B * H up to 2^26", false}) {}

  std::optional<std::string> why_unsupported(ContextState&,
                                             const dispatch::Request& request) const override {
    const auto r = request_of(request);
    if (r.b <= (std::int64_t{1} << 26) / r.h) return std::nullopt;
    return "it holds everything in double, and B * H = " + std::to_string(r.b) + " * " +
           std::to_string(r.h) + " is more than 2^26; use eigen";
  }
  CostEstimate cost(ContextState&, const dispatch::Request& request) const override {
    return rms_norm::cost(request_of(request));
  }

 private:
  void describe(const ContextState&, const operators::Request& request,
                Dispatch& dispatch) const override {
    dispatch.device = "host";
    dispatch.schedule = "textbook";
    dispatch.workspace_bytes = workspace_bytes(request_of(request));
    // The textbook has no blocks; any are legal and none is used.
    std::tie(dispatch.block_sizes, dispatch.block_source) =
        operators::given_or_default_blocks(request.call);
  }
  void compute(ContextState&, const operators::Request& request, Dispatch&, void*) const override {
    rms_norm::compute(request_of(request));
  }
};

}  // namespace

std::unique_ptr<dispatch::Implementation> reference_implementation() {
  return std::make_unique<Textbook>();
}

}  // namespace tessera::rms_norm
