// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "host/arguments/offsets.hpp"
#include "host/arguments/workspace.hpp"
#include "host/operators/host_implementation.hpp"
#include "host/rms_norm/request.hpp"

namespace tessera::rms_norm {
namespace {

using Row = Eigen::Map<Eigen::ArrayXf>;
using ConstRow = Eigen::Map<const Eigen::ArrayXf>;

/// Rows of a host view [..., H] in f32: where they lie, or by way of a buffer.
class Rows {
 public:
  Rows() = default;
  explicit Rows(const View& view)
      : view_(view),
        offsets_(view, view.rank() - 1),
        h_(view.extents().back()),
        stride_(view.strides().back()),
        lies_in_f32_(view.dtype() == DType::f32 && (stride_ == 1 || h_ == 1)) {}

  ConstRow read(std::int64_t row, float* buffer) const {
    if (lies_in_f32_) return {static_cast<const float*>(view_.host_data()) + offsets_(row), h_};
    with_type(view_.dtype(), [&](auto* null) {
      using T = std::remove_pointer_t<decltype(null)>;
      const auto* from = static_cast<const T*>(view_.host_data()) + offsets_(row);
      for (std::int64_t i = 0; i < h_; ++i) buffer[i] = static_cast<float>(from[i * stride_]);
    });
    return {buffer, h_};
  }

  /// Writes values, or adds them to what is there.
  template <class Values>
  void write(std::int64_t row, const Values& values, bool add) const {
    with_type(view_.dtype(), [&](auto* null) {
      using T = std::remove_pointer_t<decltype(null)>;
      auto* to = const_cast<T*>(static_cast<const T*>(view_.host_data())) + offsets_(row);
      for (std::int64_t i = 0; i < h_; ++i) {
        T& element = to[i * stride_];
        element = T(add ? static_cast<float>(element) + values[i] : values[i]);
      }
    });
  }

 private:
  View view_{};
  arguments::RowOffsets offsets_{};
  std::int64_t h_ = 0, stride_ = 1;
  bool lies_in_f32_ = false;
};

/// How the rows are shared out: each task has so many, and sums of its own for grad_scale.
struct Split {
  std::int64_t tasks = 1, rows = 0, workspace_bytes = 0;
};

/// Buffers of a task: a row of x, dy and the result, and its sums; scale is shared.
std::int64_t words_of_task(const Request& r) { return (r.grad_scale ? 4 : 3) * r.h; }

Split split_of(const Request& r, int threads) {
  const auto bytes = [&](std::int64_t tasks) {
    return (tasks * words_of_task(r) + r.h) * 4 + dispatch::workspace_slack;
  };
  const auto& given = r.base.call.workspace_bytes;
  const std::int64_t limit = given ? static_cast<std::int64_t>(*given)
                                   : std::max(arguments::default_workspace_bytes(0), bytes(1));
  if (limit < bytes(1)) {
    throw Error(ErrorCode::workspace_too_small,
                fmt::format("workspace_bytes (or the lent workspace) is {} bytes, the minimum of "
                            "eigen for H = {} is {}; give at least that",
                            limit, r.h, bytes(1)));
  }
  Split split;
  split.tasks = std::clamp<std::int64_t>(r.b, 1, threads);
  while (bytes(split.tasks) > limit) --split.tasks;
  split.rows = (r.b + split.tasks - 1) / split.tasks;
  split.workspace_bytes = bytes(split.tasks);
  return split;
}

/// One task's rows, begin to end.
struct Task {
  const Request& r;  ///< over host views
  Rows x, dy, y, grad_x;
  const float* scale;  ///< null: 1
  float* buffer;       ///< 3 H, then H of sums where grad_scale is given

  float inverse_root(const ConstRow& row) const {
    return 1.0f / std::sqrt(row.square().mean() + r.epsilon);
  }

  void forward(std::int64_t begin, std::int64_t end) const {
    for (std::int64_t i = begin; i < end; ++i) {
      const ConstRow in = x.read(i, buffer);
      Row out(buffer + 2 * r.h, r.h);
      out = in * inverse_root(in);
      if (scale != nullptr) out *= ConstRow(scale, r.h);
      y.write(i, out, false);
    }
  }

  void backward(std::int64_t begin, std::int64_t end) const {
    Row sums(buffer + 3 * r.h, r.grad_scale ? r.h : 0);
    sums.setZero();
    for (std::int64_t i = begin; i < end; ++i) {
      const ConstRow in = x.read(i, buffer);
      const ConstRow cotangent = dy.read(i, buffer + r.h);
      const float root = inverse_root(in);
      if (r.grad_scale) sums += cotangent * in * root;
      if (!r.grad_x) continue;
      Row g(buffer + 2 * r.h, r.h);
      g = cotangent;
      if (scale != nullptr) g *= ConstRow(scale, r.h);
      const float projection = (g * in).mean() * root * root;
      g = root * (g - in * projection);
      grad_x.write(i, g, r.accumulate);
    }
  }
};

class EigenRows final : public operators::HostImplementation {
 public:
  EigenRows() : HostImplementation({"eigen", "row by row, on the host's threads", true}) {}

  CostEstimate cost(ContextState&, const dispatch::Request& request) const override {
    return rms_norm::cost(request_of(request));
  }

 private:
  std::optional<std::int64_t> minimum_workspace_bytes(
      const ContextState&, const operators::Request& request) const override {
    return split_of(request_of(request), 1).workspace_bytes;
  }
  void describe(const ContextState& state, const operators::Request& request,
                Dispatch& dispatch) const override {
    const auto r = request_of(request);
    const Split split = split_of(r, state.threads.size());
    dispatch.device = "host";
    dispatch.schedule = "row_by_row";
    dispatch.workspace_bytes = split.workspace_bytes;
    dispatch.knobs = {{"tasks", split.tasks}};
    const auto& given = request.call.block_sizes;
    // Any blocks are legal; rows are shared out by threads.
    dispatch.block_source = given ? BlockSource::caller : BlockSource::heuristic;
    dispatch.block_sizes = given ? operators::blocks_by_name(*request.call.op, *given)
                                 : to_named(BlockSizes{std::max<std::int64_t>(split.rows, 1)});
  }
  void compute(ContextState& state, const operators::Request& request, Dispatch&,
               void* workspace) const override {
    const auto r = request_of(request);
    run_tasks(r, split_of(r, state.threads.size()), static_cast<float*>(workspace), state.threads);
  }

  static void run_tasks(const Request& r, const Split& split, float* memory,
                        dispatch::ThreadPool& threads) {
    const auto rows = [](const View& view) { return view ? Rows(view) : Rows(); };
    const Rows x(r.x), dy = rows(r.dy), y = rows(r.y), grad_x = rows(r.grad_x);
    float* scale = r.scale ? memory : nullptr;
    if (r.scale) Row(scale, r.h) = Rows(r.scale).read(0, scale) + r.offset;
    float* buffers = memory + r.h;
    const std::int64_t words = words_of_task(r);
    const char* phase = r.is_backward() ? "backward" : "forward";
    dispatch::parallel_for(threads, phase, split.tasks, [&](std::int64_t at, int) {
      const Task task{r, x, dy, y, grad_x, scale, buffers + at * words};
      const std::int64_t begin = std::min(r.b, at * split.rows);
      const std::int64_t end = std::min(r.b, begin + split.rows);
      r.is_backward() ? task.backward(begin, end) : task.forward(begin, end);
    });
    if (!r.grad_scale) return;
    Row total(buffers + 3 * r.h, r.h);
    for (std::int64_t at = 1; at < split.tasks; ++at) {
      total += ConstRow(buffers + at * words + 3 * r.h, r.h);
    }
    Rows(r.grad_scale).write(0, total, r.accumulate);
  }
};

}  // namespace

std::unique_ptr<dispatch::Implementation> eigen_implementation() {
  return std::make_unique<EigenRows>();
}

}  // namespace tessera::rms_norm
