// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/cl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/small_call.hpp"

/// Whole calls of the operators, small enough to be run thousands of times while one OpenCL call of
/// each fails.
namespace tessera::test {

/// One call and what it gives. `run` is what fails; `values` is read afterwards.
struct FaultCase {
  std::string name;
  std::function<Dispatch(Context&, const ImplementationList&)> run;
  std::function<std::vector<float>()> values;
};

/// What every operator computes: of 9 tokens, one of them ignored, of 7 elements, against 11 words.
/// (Those that count are one narrow tile, which is less than all.)
template <class Operator>
std::shared_ptr<const SmallCall<Operator>> fault_call() {
  const auto call = std::make_shared<SmallCall<Operator>>(
      Dims{9}, 7, 11, std::vector<std::int32_t>{3, 0, -100, 10, 5, 1, 7, 2, 9});
  call->options = {.logsumexp_weight = 1e-2f, .label_smoothing = 0.1f};
  call->compute_statistics(Given::own);
  return call;
}

/// Calls on host memory that return owned results: "OPERATOR.PASS".
template <class Operator>
void add_host_fault_cases(std::vector<FaultCase>& cases) {
  const auto call = fault_call<Operator>();
  const auto last = std::make_shared<std::vector<float>>();
  const auto keep = [last](const typename Operator::Result& result) {
    std::vector<const HostTensor*> all{&result.loss, &result.lse, &result.entropy};
    for (const auto& gradient : OperatorTraits<Operator>::gradients) {
      all.push_back(&(result.*gradient.owned));
    }
    last->clear();
    for (const HostTensor* tensor : all) {
      if (!*tensor || tensor->dtype() != DType::f32) continue;
      for (float value : tensor->template as<float>()) last->push_back(value);
    }
    return result.dispatch;
  };
  const auto execution = [](const ImplementationList& names) {
    typename Operator::ExecutionOptions options;
    options.implementation = names;
    return options;
  };
  auto wanting = call->all_options();
  loss_options(wanting).wants.lse = true;
  loss_options(wanting).wants.entropy = true;
  loss_options(wanting).wants.argmax = true;
  const auto add = [&](Pass pass, auto run) {
    cases.push_back({std::string(OperatorTraits<Operator>::name) + "." + to_string(pass),
                     [=](Context& context, const ImplementationList& names) {
                       return keep(run(context, call->inputs(pass, Given::own), execution(names)));
                     },
                     [last] { return *last; }});
  };
  add(Pass::forward, [=](Context& context, const auto& inputs, const auto& options) {
    return forward(context, inputs, wanting, options);
  });
  add(Pass::backward, [=](Context& context, const auto& inputs, const auto& options) {
    return backward(context, inputs, call->all_options(), options);
  });
  add(Pass::value_and_grad, [=](Context& context, const auto& inputs, const auto& options) {
    return value_and_grad(context, inputs, wanting, options);
  });
  // Pairs have kernels of their own.
  cases.push_back({std::string(OperatorTraits<Operator>::name) + ".value_and_grad_of_pairs",
                   [=](Context& context, const ImplementationList& names) {
                     auto inputs = call->inputs(Pass::value_and_grad, Given::own);
                     for (const auto& input : OperatorTraits<Operator>::inputs) {
                       if (input.name == std::string_view("target_indices") ||
                           input.name == std::string_view("target_probs")) {
                         inputs.*input.view = call->view(input);
                       }
                     }
                     inputs.labels = {};
                     return keep(value_and_grad(context, inputs, wanting, execution(names)));
                   },
                   [last] { return *last; }});
}

inline std::vector<FaultCase> host_fault_cases() {
  std::vector<FaultCase> cases;
  for_each_loss([&]<class Operator>(std::type_identity<Operator>) {
    if (runs_on_opencl(test_operator<Operator>())) add_host_fault_cases<Operator>(cases);
  });
  return cases;
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

/// Calls in flight, on device memory: loss, lse, and the gradients of what the operator must have.
template <class Operator>
void add_device_fault_cases(std::vector<FaultCase>& cases, FaultBuffers& buffers) {
  using Traits = OperatorTraits<Operator>;
  const auto call = fault_call<Operator>();
  typename Operator::Inputs inputs;
  for (const auto& input : Traits::inputs) {
    if (input.reads == Reads::in_place_of_labels) continue;
    if (input.reads == Reads::in_place_of_usual) continue;
    if (!reads_in(Pass::value_and_grad, input.reads)) continue;
    if (input.types == ElementTypes::integer) {
      inputs.*input.view = buffers.input(call->labels, call->extents(input.shape));
    } else if (!is_of_every_loss(input.name)) {
      inputs.*input.view = buffers.input(call->numbers.at(input.name), call->extents(input.shape));
    }
  }
  std::vector<FaultBuffers::Part> parts;
  typename Operator::Outputs outputs;
  outputs.loss = buffers.output(parts, Dims());
  outputs.lse = buffers.output(parts, call->leading);
  typename Operator::Gradients gradients;
  for (const auto& gradient : Traits::gradients) {
    const auto& input = input_of(gradient);
    if (!is_needed(input.reads)) continue;
    gradients.*gradient.view = buffers.output(parts, call->extents(input.shape));
  }
  cases.push_back({Traits::name + std::string(".value_and_grad in flight"),
                   [=](Context& context, const ImplementationList& names) {
                     typename Operator::ExecutionOptions execution;
                     execution.implementation = names;
                     Completion done = value_and_grad(context, inputs, outputs, gradients,
                                                      call->all_options(), execution);
                     done.wait();
                     return done.dispatch();
                   },
                   [&buffers, parts] { return buffers.values(parts); }});
}

inline std::vector<FaultCase> device_fault_cases(FaultBuffers& buffers) {
  std::vector<FaultCase> cases;
  for_each_loss([&]<class Operator>(std::type_identity<Operator>) {
    if (runs_on_opencl(test_operator<Operator>())) add_device_fault_cases<Operator>(cases, buffers);
  });
  return cases;
}

}  // namespace tessera::test
