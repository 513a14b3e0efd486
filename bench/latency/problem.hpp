// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/cl.h>

#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tessera/tessera.hpp"

namespace tessera::bench::latency {

/// One kind of call.
struct Case {
  std::string op = "linear";  ///< linear, softmax or custom, a sum of two arrays
  bool gradients = false;
  bool device = false;  ///< views of device memory, else of host memory
  std::int64_t b = 1, h = 64, v = 256;

  std::string name() const {
    return op + (gradients ? "/value_and_grad/" : "/forward/") + (device ? "device" : "host") +
           "/B" + std::to_string(b);
  }
};

/// The arrays of a call, f32, and the call.
class Problem {
 public:
  Problem(Context& context, const Case& wanted) : context_(context), case_(wanted) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0f, 0.3f);
    const auto fill = [&](std::int64_t count) {
      std::vector<float> values(static_cast<std::size_t>(count));
      for (auto& value : values) value = normal(random);
      return values;
    };
    const auto [b, h, v] = std::tuple(wanted.b, wanted.h, wanted.v);
    std::vector<std::int32_t> labels;
    for (std::int64_t i = 0; i < b; ++i) labels.push_back(static_cast<std::int32_t>(i * 37 % v));
    labels_ = place(labels.data(), DType::i32, {b});
    if (wanted.op == "linear") {
      x_ = place(fill(b * h).data(), DType::f32, {b, h});
      w_ = place(fill(h * v).data(), DType::f32, {h, v}, {1, h});
      grad_x_ = make({b, h});
      grad_w_ = make({h, v}, {1, h});
    } else {
      x_ = place(fill(b * v).data(), DType::f32, {b, v});
      grad_x_ = make({b, v});
    }
    if (wanted.op == "custom") w_ = place(fill(b * v).data(), DType::f32, {b, v});
    loss_ = make(wanted.op == "custom" ? Dims{b, v} : Dims{});
  }
  ~Problem() {
    for (auto memory : memories_) clReleaseMemObject(memory);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  /// Blocks until the results are there.
  Dispatch call() {
    const Outputs outputs{.loss = loss_};
    Completion completion;
    if (case_.op == "custom") {
      completion = sum_.run(context_, {x_, w_}, {loss_});
    } else if (case_.op == "linear") {
      const linear_cross_entropy::Inputs in{.x = x_, .labels = labels_, .w = w_};
      completion = case_.gradients
                       ? linear_cross_entropy::value_and_grad(
                             context_, in, outputs, {.grad_x = grad_x_, .grad_w = grad_w_}, {})
                       : linear_cross_entropy::forward(context_, in, outputs, {});
    } else {
      const softmax_cross_entropy::Inputs in{.logits = x_, .labels = labels_};
      completion = case_.gradients ? softmax_cross_entropy::value_and_grad(
                                         context_, in, outputs, {.grad_logits = grad_x_}, {})
                                   : softmax_cross_entropy::forward(context_, in, outputs, {});
    }
    completion.wait();
    return want_dispatch_ ? completion.dispatch() : Dispatch{};
  }
  /// The report of one call.
  Dispatch describe() {
    want_dispatch_ = true;
    auto dispatch = call();
    want_dispatch_ = false;
    return dispatch;
  }

  /// Fills what the call writes with NaN.
  void poison() {
    for (const auto& view : written()) {
      std::vector<float> nan(static_cast<std::size_t>(view.size()),
                             std::numeric_limits<float>::quiet_NaN());
      copy(view, nan.data(), true);
    }
  }
  /// Every word that the call wrote.
  std::vector<float> results() {
    std::vector<float> all;
    for (const auto& view : written()) {
      std::vector<float> values(static_cast<std::size_t>(view.size()));
      copy(view, values.data(), false);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

 private:
  std::vector<MutableView> written() const {
    if (!case_.gradients) return {loss_};
    if (case_.op != "linear") return {loss_, grad_x_};
    return {loss_, grad_x_, grad_w_};
  }
  MutableView make(const Dims& extents, const Dims& strides = {}) {
    const std::vector<float> zeros(static_cast<std::size_t>(extents.product()));
    return place(zeros.data(), DType::f32, extents, strides);
  }
  MutableView place(const void* data, DType type, const Dims& extents, const Dims& strides = {}) {
    const auto bytes = static_cast<std::size_t>(extents.product()) * size_of(type);
    if (!case_.device) {
      auto& copied = host_.emplace_back(static_cast<const char*>(data),
                                        static_cast<const char*>(data) + bytes);
      return MutableView::host(static_cast<void*>(copied.data()), type, extents, strides);
    }
    cl_int status = CL_SUCCESS;
    cl_mem memory =
        clCreateBuffer(context_.native_context(), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes,
                       const_cast<void*>(data), &status);
    if (status != CL_SUCCESS) throw std::runtime_error("clCreateBuffer failed");
    memories_.push_back(memory);
    return MutableView::device(memory, 0, type, extents, strides);
  }
  void copy(const MutableView& view, float* values, bool to_view) {
    const auto bytes = static_cast<std::size_t>(view.size()) * sizeof(float);
    if (!view.is_device()) {
      auto* data = static_cast<float*>(view.host_data());
      std::copy_n(to_view ? values : data, view.size(), to_view ? data : values);
      return;
    }
    const auto queue = context_.native_queue();
    const cl_int status = to_view ? clEnqueueWriteBuffer(queue, view.device_memory(), CL_TRUE, 0,
                                                         bytes, values, 0, nullptr, nullptr)
                                  : clEnqueueReadBuffer(queue, view.device_memory(), CL_TRUE, 0,
                                                        bytes, values, 0, nullptr, nullptr);
    if (status != CL_SUCCESS) throw std::runtime_error("copying device memory failed");
  }

  Context& context_;
  Case case_;
  CustomKernel sum_ = custom_kernel(
      {.source = "kernel void add_vectors(global const float* x, global const float* y,"
                 "                        global float* sum) {"
                 "  const size_t i = get_global_id(0);"
                 "  sum[i] = x[i] + y[i];"
                 "}",
       .entry = "add_vectors",
       .shape = [](const auto& in) { return std::vector<TensorSpec>{in[0]}; }});
  bool want_dispatch_ = false;
  std::vector<std::vector<char>> host_{};
  std::vector<cl_mem> memories_{};
  View x_{}, w_{}, labels_{};
  MutableView loss_{}, grad_x_{}, grad_w_{};
};

}  // namespace tessera::bench::latency
