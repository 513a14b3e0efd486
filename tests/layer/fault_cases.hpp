// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/cl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tessera.hpp"

/// Whole calls of the operators, small enough to be run thousands of times while one OpenCL call of
/// each fails.
namespace tessera::test {

/// One call and what it gives. `run` is what fails; `values` is read afterwards.
struct FaultCase {
  std::string name;
  std::function<Dispatch(Context&, const ImplementationList&)> run;
  std::function<std::vector<float>()> values;
};

/// Inputs of every case: 9 tokens, one of them ignored, of 7 elements, against 11 words. (Those
/// that count are one narrow tile, which is less than all.)
struct FaultData {
  static constexpr std::int64_t b = 9, h = 7, v = 11;
  std::vector<float> x = waves(b * h, 0.37f);
  std::vector<float> w = waves(h * v, 0.71f);
  std::vector<float> bias = waves(v, 1.3f);
  std::vector<float> logits = waves(b * v, 0.53f);
  std::vector<std::int32_t> labels{3, 0, -100, 10, 5, 1, 7, 2, 9};
  std::vector<float> statistics = statistics_on_the_host();  ///< of logits = x w + bias
  LossOptions options{.logsumexp_weight = 1e-2f, .label_smoothing = 0.1f};

  linear_cross_entropy::Inputs linear() const {
    return {.x = View::host(x.data(), {b, h}),
            .labels = View(labels),
            .w = View::host(w.data(), {h, v}),
            .bias = View(bias)};
  }
  softmax_cross_entropy::Inputs softmax() const {
    return {.logits = View::host(logits.data(), {b, v}), .labels = View(labels)};
  }

 private:
  static std::vector<float> waves(std::int64_t count, float step) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sin(step * static_cast<float>(i + 1));
    }
    return values;
  }
  std::vector<float> statistics_on_the_host() const {
    Context host({.host_only = true});
    const auto result = linear_cross_entropy::forward(
        host, linear(), {.wants = {.statistics = true}}, {.implementation = "reference"});
    const auto values = result.statistics.as<float>();
    return {values.begin(), values.end()};
  }
};

/// Calls on host memory that return owned results.
inline std::vector<FaultCase> host_fault_cases(const std::shared_ptr<const FaultData>& data) {
  namespace lce = linear_cross_entropy;
  namespace sce = softmax_cross_entropy;
  const auto last = std::make_shared<std::vector<float>>();
  const auto values = [last] { return *last; };
  const auto keep = [last](const LossResult& result,
                           std::initializer_list<const HostTensor*> gradients) {
    std::vector<const HostTensor*> all{&result.loss, &result.lse, &result.entropy};
    all.insert(all.end(), gradients);
    last->clear();
    for (const HostTensor* tensor : all) {
      if (!*tensor || tensor->dtype() != DType::f32) continue;
      for (float value : tensor->as<float>()) last->push_back(value);
    }
    return result.dispatch;
  };
  LossOptions wanting = data->options;
  wanting.wants.lse = true;
  wanting.wants.entropy = true;
  wanting.wants.argmax = true;
  return {
      {"linear.forward",
       [=](Context& context, const ImplementationList& names) {
         return keep(lce::forward(context, data->linear(), wanting, {.implementation = names}), {});
       },
       values},
      {"linear.backward",
       [=](Context& context, const ImplementationList& names) {
         auto inputs = data->linear();
         inputs.statistics = View::host(data->statistics.data(), {data->b, 2});
         const auto result =
             lce::backward(context, inputs, data->options, {.implementation = names});
         return keep(result, {&result.grad_x, &result.grad_w, &result.grad_bias});
       },
       values},
      {"linear.value_and_grad",
       [=](Context& context, const ImplementationList& names) {
         const auto result =
             lce::value_and_grad(context, data->linear(), wanting, {.implementation = names});
         return keep(result, {&result.grad_x, &result.grad_w, &result.grad_bias});
       },
       values},
      {"softmax.forward",
       [=](Context& context, const ImplementationList& names) {
         return keep(sce::forward(context, data->softmax(), wanting, {.implementation = names}),
                     {});
       },
       values},
      {"softmax.value_and_grad",
       [=](Context& context, const ImplementationList& names) {
         const auto result =
             sce::value_and_grad(context, data->softmax(), wanting, {.implementation = names});
         return keep(result, {&result.grad_logits});
       },
       values},
  };
}

/// The caller's own buffers, made before anything fails.
class FaultBuffers {
 public:
  using Part = std::pair<cl_mem, std::size_t>;  // its f32 elements

  explicit FaultBuffers(const Context& context) : context_(context) {}
  ~FaultBuffers() {
    for (cl_mem memory : all_) clReleaseMemObject(memory);
  }
  FaultBuffers(const FaultBuffers&) = delete;
  FaultBuffers& operator=(const FaultBuffers&) = delete;

  template <class T>
  View input(const std::vector<T>& values, const Dims& extents) {
    return View::device(add(values), 0,
                        sizeof(T) == 4 && std::is_integral_v<T> ? DType::i32 : DType::f32, extents);
  }
  /// An output of NaNs, which `values` of the same list will read.
  MutableView output(std::vector<Part>& parts, const Dims& extents) {
    const std::vector<float> poison(static_cast<std::size_t>(extents.product()), NAN);
    parts.emplace_back(add(poison), poison.size());
    return MutableView::device(parts.back().first, 0, DType::f32, extents);
  }
  std::vector<float> values(const std::vector<Part>& parts) const {
    std::vector<float> all;
    for (const auto& [memory, count] : parts) {
      std::vector<float> part(count);
      EXPECT_EQ(clEnqueueReadBuffer(context_.native_queue(), memory, CL_TRUE, 0,
                                    count * sizeof(float), part.data(), 0, nullptr, nullptr),
                CL_SUCCESS);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

 private:
  template <class T>
  cl_mem add(const std::vector<T>& values) {
    cl_int status = CL_SUCCESS;
    all_.push_back(
        clCreateBuffer(context_.native_context(), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                       values.size() * sizeof(T), const_cast<T*>(values.data()), &status));
    EXPECT_EQ(status, CL_SUCCESS);
    return all_.back();
  }

  const Context& context_;
  std::vector<cl_mem> all_;
};

/// Calls in flight, on device memory.
inline std::vector<FaultCase> device_fault_cases(const FaultData& data, FaultBuffers& buffers) {
  namespace lce = linear_cross_entropy;
  namespace sce = softmax_cross_entropy;
  constexpr auto b = FaultData::b, h = FaultData::h, v = FaultData::v;
  const View labels = buffers.input(data.labels, {b});
  const lce::Inputs linear{.x = buffers.input(data.x, {b, h}),
                           .labels = labels,
                           .w = buffers.input(data.w, {h, v}),
                           .bias = buffers.input(data.bias, {v})};
  const sce::Inputs softmax{.logits = buffers.input(data.logits, {b, v}), .labels = labels};
  std::vector<FaultBuffers::Part> of_linear, of_softmax;
  const auto outputs = [&](std::vector<FaultBuffers::Part>& parts) -> Outputs {
    return {.loss = buffers.output(parts, Dims()), .lse = buffers.output(parts, {b})};
  };
  const Outputs linear_outputs = outputs(of_linear);
  const Outputs softmax_outputs = outputs(of_softmax);
  const lce::Gradients gradients{.grad_x = buffers.output(of_linear, {b, h}),
                                 .grad_w = buffers.output(of_linear, {h, v})};
  const sce::Gradients grad_logits{.grad_logits = buffers.output(of_softmax, {b, v})};
  const auto options = data.options;
  const auto finish = [](Completion completion) {
    completion.wait();
    return completion.dispatch();
  };
  return {
      {"linear.value_and_grad in flight",
       [=](Context& context, const ImplementationList& names) {
         return finish(lce::value_and_grad(context, linear, linear_outputs, gradients, options,
                                           {.implementation = names}));
       },
       [&buffers, of_linear] { return buffers.values(of_linear); }},
      {"softmax.value_and_grad in flight",
       [=](Context& context, const ImplementationList& names) {
         return finish(sce::value_and_grad(context, softmax, softmax_outputs, grad_logits, options,
                                           {.implementation = names}));
       },
       [&buffers, of_softmax] { return buffers.values(of_softmax); }},
  };
}

}  // namespace tessera::test
