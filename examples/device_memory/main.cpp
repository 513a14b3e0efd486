// SPDX-License-Identifier: Apache-2.0
// Training steps of a last layer whose arrays stay on the device: x, w, labels, loss and gradients
// are the caller's buffers, and tessera's commands stand between the caller's kernels on the
// caller's queue, ordered by events. Then the same steps with arrays in host memory, timed beside.
#include <fmt/format.h>

#include <CL/opencl.hpp>
#include <CLI/CLI.hpp>
#include <Eigen/Core>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "tessera/tessera.hpp"

namespace {

namespace lce = tessera::linear_cross_entropy;
using tessera::DType;
using tessera::MutableView;
using tessera::View;

struct Options {
  std::int64_t tokens = 256, hidden = 512, vocabulary = 8192, steps = 20;
  float rate = 1.0f;  // of gradient descent
  lce::ExecutionOptions execution{};
};

/// What training starts from.
struct Arrays {
  std::vector<float> x;              // [tokens, hidden]
  std::vector<float> w;              // [vocabulary, hidden], as PyTorch stores it
  std::vector<std::int32_t> labels;  // [tokens]
};

struct Training {
  std::vector<float> losses;  // before each step
  double seconds_per_step = 0.0;
  std::int64_t staged_bytes = 0;  // of a step
  tessera::Dispatch dispatch;
};

Arrays make_arrays(const Options& o) {
  std::srand(1);  // Eigen's Random
  Arrays arrays{std::vector<float>(static_cast<std::size_t>(o.tokens * o.hidden)),
                std::vector<float>(static_cast<std::size_t>(o.vocabulary * o.hidden)),
                std::vector<std::int32_t>(static_cast<std::size_t>(o.tokens))};
  Eigen::Map<Eigen::ArrayXf>(arrays.x.data(), o.tokens * o.hidden).setRandom();
  Eigen::Map<Eigen::ArrayXf>(arrays.w.data(), o.vocabulary * o.hidden).setRandom() *= 0.05f;
  for (std::int64_t i = 0; i < o.tokens; ++i) {
    arrays.labels[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * 37 % o.vocabulary);
  }
  return arrays;
}

/// The time of a step, without the first, which compiles kernels.
class Clock {
 public:
  void first_step_is_done() { start_ = std::chrono::steady_clock::now(); }
  double seconds_per_step(std::int64_t steps) const {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    return passed.count() / static_cast<double>(steps - 1);
  }

 private:
  std::chrono::steady_clock::time_point start_{};
};

constexpr const char* descend_source = R"(
__kernel void descend(__global float* values, __global const float* gradient, float rate) {
  const size_t i = get_global_id(0);
  values[i] -= rate * gradient[i];
})";

/// What a program has that uses OpenCL already: a queue, its arrays and a kernel.
class OnDevice {
 public:
  OnDevice(const cl::Device& device, const Options& o, Arrays arrays)
      : o_(o),
        context_(device),
        queue_(context_, device, properties(device)),
        tessera_(tessera::Context::from_queue(queue_())),
        descend_(built(context_), "descend"),
        x_(context_, arrays.x.begin(), arrays.x.end(), false),
        w_(context_, arrays.w.begin(), arrays.w.end(), false),
        labels_(context_, arrays.labels.begin(), arrays.labels.end(), true),
        grad_x_(context_, CL_MEM_READ_WRITE, arrays.x.size() * sizeof(float)),
        grad_w_(context_, CL_MEM_READ_WRITE, arrays.w.size() * sizeof(float)),
        losses_(context_, CL_MEM_READ_WRITE, static_cast<std::size_t>(o.steps) * sizeof(float)) {}

  Training train() {
    Training result;
    Clock clock;
    std::vector<cl::Event> updated;              // what the next call waits for
    std::optional<tessera::Completion> earlier;  // of the step before
    for (std::int64_t step = 0; step < o_.steps; ++step) {
      tessera::Completion done = value_and_grad(step, updated);
      result.staged_bytes = std::max(result.staged_bytes, done.dispatch().staged_bytes);
      result.dispatch = done.dispatch();
      updated = {descend(w_, grad_w_, o_.vocabulary * o_.hidden, done),
                 descend(x_, grad_x_, o_.tokens * o_.hidden, done)};
      queue_.flush();
      // Waiting for the step before leaves the device busy, and two workspaces are enough.
      if (earlier) earlier->wait();
      earlier = std::move(done);
      if (step == 0) {
        queue_.finish();
        clock.first_step_is_done();
      }
    }
    earlier->wait();
    queue_.finish();
    result.seconds_per_step = clock.seconds_per_step(o_.steps);
    result.losses.resize(static_cast<std::size_t>(o_.steps));
    cl::copy(queue_, losses_, result.losses.begin(), result.losses.end());
    return result;
  }

 private:
  /// Commands in any order that events allow, where the device can.
  static cl::QueueProperties properties(const cl::Device& device) {
    const auto supported = device.getInfo<CL_DEVICE_QUEUE_PROPERTIES>();
    return (supported & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0
               ? cl::QueueProperties::OutOfOrder
               : cl::QueueProperties::None;
  }
  static cl::Program built(const cl::Context& context) {
    cl::Program program(context, descend_source);
    program.build();
    return program;
  }

  /// Enqueues the layer behind `after`; returns at once.
  tessera::Completion value_and_grad(std::int64_t step, const std::vector<cl::Event>& after) {
    const tessera::Dims x{o_.tokens, o_.hidden}, w{o_.vocabulary, o_.hidden};
    auto execution = o_.execution;
    for (const auto& event : after) execution.wait_for.push_back(event());
    return lce::value_and_grad(
        tessera_,
        {.x = View::device(x_(), 0, DType::f32, x),
         .labels = View::device(labels_(), 0, DType::i32, {o_.tokens}),
         .w = View::device(w_(), 0, DType::f32, w).transposed()},
        {.loss = MutableView::device(losses_(), step * 4, DType::f32, {})},
        {.grad_x = MutableView::device(grad_x_(), 0, DType::f32, x),
         .grad_w = MutableView::device(grad_w_(), 0, DType::f32, w).transposed()},
        {}, execution);
  }

  /// Enqueues values -= rate * gradient behind a call of tessera's.
  cl::Event descend(const cl::Buffer& values, const cl::Buffer& gradient, std::int64_t count,
                    const tessera::Completion& call) {
    std::vector<cl::Event> after;
    if (call.event() != nullptr) after.emplace_back(call.event(), true);  // retained
    descend_.setArg(0, values);
    descend_.setArg(1, gradient);
    descend_.setArg(2, o_.rate);
    cl::Event event;
    queue_.enqueueNDRangeKernel(descend_, cl::NullRange,
                                cl::NDRange(static_cast<std::size_t>(count)), cl::NullRange, &after,
                                &event);
    return event;
  }

  const Options& o_;
  cl::Context context_;
  cl::CommandQueue queue_;
  tessera::Context tessera_;
  cl::Kernel descend_;
  cl::Buffer x_, w_, labels_, grad_x_, grad_w_, losses_;
};

/// The same with arrays in host memory, on the same device: each call waits until it is done.
Training train_on_host(const cl::Device& device, const Options& o, Arrays arrays) {
  const cl::Context handles(device);
  tessera::Context context(handles(), device());
  std::vector<float> grad_x(arrays.x.size()), grad_w(arrays.w.size());
  const tessera::Dims x{o.tokens, o.hidden}, w{o.vocabulary, o.hidden};
  const auto descend = [&](std::vector<float>& values, const std::vector<float>& gradient) {
    const auto count = static_cast<Eigen::Index>(values.size());
    Eigen::Map<Eigen::ArrayXf>(values.data(), count) -=
        o.rate * Eigen::Map<const Eigen::ArrayXf>(gradient.data(), count);
  };
  Training result;
  Clock clock;
  for (std::int64_t step = 0; step < o.steps; ++step) {
    float loss = 0.0f;
    auto done = lce::value_and_grad(context,
                                    {.x = View::host(arrays.x.data(), x),
                                     .labels = View(arrays.labels),
                                     .w = View::host(arrays.w.data(), w).transposed()},
                                    {.loss = MutableView::host(&loss, {})},
                                    {.grad_x = MutableView::host(grad_x.data(), x),
                                     .grad_w = MutableView::host(grad_w.data(), w).transposed()},
                                    {}, o.execution);
    done.wait();
    result.losses.push_back(loss);
    result.staged_bytes = std::max(result.staged_bytes, done.dispatch().staged_bytes);
    result.dispatch = done.dispatch();
    descend(arrays.w, grad_w);
    descend(arrays.x, grad_x);
    if (step == 0) clock.first_step_is_done();
  }
  result.seconds_per_step = clock.seconds_per_step(o.steps);
  return result;
}

void print(const char* where, const Training& t) {
  fmt::print("{:<14} loss {:.4f} -> {:.4f}, {:.2f} ms a step, bytes staged: {}\n", where,
             t.losses.front(), t.losses.back(), 1e3 * t.seconds_per_step, t.staged_bytes);
  for (const auto& note : t.dispatch.notes) fmt::print("{:<14} note: {}\n", "", note);
}

int run(const Options& o) {
  // The device that tessera would take (TESSERA_DEVICE). All else is this program's own.
  const tessera::Context chosen;
  if (!chosen.has_device()) {
    fmt::print(stderr, "device_memory: no OpenCL device was found\n");
    return 2;
  }
  const cl::Device device(chosen.native_device(), true);
  const Arrays arrays = make_arrays(o);
  const Training on_device = OnDevice(device, o, arrays).train();
  const Training on_host = train_on_host(device, o, arrays);
  fmt::print("{} tokens, hidden size {}, {} words, {} steps: {} on {}\n", o.tokens, o.hidden,
             o.vocabulary, o.steps, on_device.dispatch.implementation, on_device.dispatch.device);
  print("device memory", on_device);
  print("host arrays", on_host);

  double deviation = 0.0;
  for (std::size_t i = 0; i < on_host.losses.size(); ++i) {
    deviation = std::max(deviation,
                         std::abs(double{on_device.losses[i]} / double{on_host.losses[i]} - 1.0));
  }
  fmt::print("largest deviation of a loss: {:.1e}\n", deviation);
  // The same kernels of the same numbers: only the descent may round otherwise, by 2^-24 a step.
  const bool same = deviation <= static_cast<double>(100 * o.steps) * 0x1p-24;
  const bool learns = on_device.losses.back() < on_device.losses.front();
  return same && learns && on_device.staged_bytes == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Training steps whose arrays stay on the device, beside the same with host arrays");
  Options options;
  std::string implementation = "opencl";
  app.add_option("--tokens", options.tokens)->check(CLI::PositiveNumber);
  app.add_option("--hidden", options.hidden)->check(CLI::PositiveNumber);
  app.add_option("--vocabulary", options.vocabulary)->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "the first is not timed")->check(CLI::Range(2, 1 << 20));
  app.add_option("--implementation", implementation, "default: opencl");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    fmt::print(stderr, "device_memory: {}\n", error.what());
    return 2;
  }
  try {
    options.execution.implementation = implementation;
    return run(options);
  } catch (const cl::Error& error) {
    fmt::print(stderr, "device_memory: {} failed with {}\n", error.what(), error.err());
  } catch (const std::exception& error) {
    fmt::print(stderr, "device_memory: {}\n", error.what());
  }
  return 1;
}
