// SPDX-License-Identifier: Apache-2.0
// Every OpenCL call of an operator's run fails once (tests/layer): the run ends in a clear Error or
// in the right result, reported as a fallback where another implementation gave it, and no OpenCL
// object is left behind.
#include <CL/cl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>

#include "tessera/tessera.hpp"
#include "tests/layer/layer_control.hpp"

namespace tessera {
namespace {

constexpr std::int64_t b = 5;
constexpr std::int64_t h = 7;
constexpr std::int64_t v = 11;

std::vector<float> waves(std::int64_t count, float step) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(step * static_cast<float>(i + 1));
  }
  return values;
}

void append(std::vector<float>& all, const HostTensor& tensor) {
  if (!tensor || tensor.dtype() != DType::f32) return;
  for (float value : tensor.as<float>()) all.push_back(value);
}

/// One call and what it gives. `run` is what fails; `values` is read afterwards.
struct Case {
  std::string name;
  std::function<Dispatch(Context&, const ImplementationList&)> run;
  std::function<std::vector<float>()> values;
};

struct Data {
  std::vector<float> x = waves(b * h, 0.37f);
  std::vector<float> w = waves(h * v, 0.71f);
  std::vector<float> bias = waves(v, 1.3f);
  std::vector<float> logits = waves(b * v, 0.53f);
  std::vector<std::int32_t> labels{3, 0, -100, 10, 5};
  std::vector<float> statistics;  // of logits = x w + bias
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
};

/// Calls on host memory that return owned results.
std::vector<Case> host_cases(const std::shared_ptr<Data>& data) {
  const auto last = std::make_shared<std::vector<float>>();
  const auto values = [last] { return *last; };
  const auto keep = [last](const LossResult& result,
                           std::initializer_list<const HostTensor*> more) {
    last->clear();
    for (const auto* tensor : {&result.loss, &result.lse, &result.entropy, &result.statistics}) {
      append(*last, *tensor);
    }
    for (const auto* tensor : more) append(*last, *tensor);
    return result.dispatch;
  };
  LossOptions wanting = data->options;
  wanting.wants.lse = true;
  wanting.wants.entropy = true;
  wanting.wants.argmax = true;
  return {
      {"linear.forward",
       [=](Context& context, const ImplementationList& names) {
         return keep(linear_cross_entropy::forward(context, data->linear(), wanting,
                                                   {.implementation = names}),
                     {});
       },
       values},
      {"linear.backward",
       [=](Context& context, const ImplementationList& names) {
         auto inputs = data->linear();
         inputs.statistics = View::host(data->statistics.data(), {b, 2});
         const auto result = linear_cross_entropy::backward(context, inputs, data->options,
                                                            {.implementation = names});
         return keep(result, {&result.grad_x, &result.grad_w, &result.grad_bias});
       },
       values},
      {"linear.value_and_grad",
       [=](Context& context, const ImplementationList& names) {
         const auto result = linear_cross_entropy::value_and_grad(context, data->linear(), wanting,
                                                                  {.implementation = names});
         return keep(result, {&result.grad_x, &result.grad_w, &result.grad_bias});
       },
       values},
      {"softmax.forward",
       [=](Context& context, const ImplementationList& names) {
         return keep(softmax_cross_entropy::forward(context, data->softmax(), wanting,
                                                    {.implementation = names}),
                     {});
       },
       values},
      {"softmax.value_and_grad",
       [=](Context& context, const ImplementationList& names) {
         const auto result = softmax_cross_entropy::value_and_grad(
             context, data->softmax(), wanting, {.implementation = names});
         return keep(result, {&result.grad_logits});
       },
       values},
  };
}

/// The caller's own buffers, made before anything fails.
class Buffers {
 public:
  explicit Buffers(const Context& context) : context_(context) {}
  ~Buffers() {
    for (auto& [memory, count] : all_) clReleaseMemObject(memory);
  }
  template <class T>
  cl_mem add(const std::vector<T>& values) {
    cl_int status = CL_SUCCESS;
    const cl_mem memory =
        clCreateBuffer(context_.native_context(), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                       values.size() * sizeof(T), const_cast<T*>(values.data()), &status);
    EXPECT_EQ(status, CL_SUCCESS);
    all_.emplace_back(memory, values.size());
    return memory;
  }
  cl_mem add(std::int64_t count) {
    outputs_.push_back(all_.size());
    return add(std::vector<float>(static_cast<std::size_t>(count), NAN));
  }
  /// Everything in the output buffers.
  std::vector<float> outputs() const {
    std::vector<float> values;
    for (auto index : outputs_) {
      const auto [memory, count] = all_[index];
      std::vector<float> part(count);
      EXPECT_EQ(clEnqueueReadBuffer(context_.native_queue(), memory, CL_TRUE, 0, count * 4,
                                    part.data(), 0, nullptr, nullptr),
                CL_SUCCESS);
      values.insert(values.end(), part.begin(), part.end());
    }
    return values;
  }

 private:
  const Context& context_;
  std::vector<std::pair<cl_mem, std::size_t>> all_;
  std::vector<std::size_t> outputs_;
};

/// The same calls in flight, on device memory.
std::vector<Case> device_cases(const Data& data, Buffers& buffers) {
  const auto on = [](cl_mem memory, const Dims& extents, DType type = DType::f32) {
    return MutableView::device(memory, 0, type, extents);
  };
  const View labels = on(buffers.add(data.labels), {b}, DType::i32);
  linear_cross_entropy::Inputs linear{.x = on(buffers.add(data.x), {b, h}),
                                      .labels = labels,
                                      .w = on(buffers.add(data.w), {h, v}),
                                      .bias = on(buffers.add(data.bias), {v})};
  softmax_cross_entropy::Inputs softmax{.logits = on(buffers.add(data.logits), {b, v}),
                                        .labels = labels};
  const Outputs outputs{.loss = on(buffers.add(1), Dims()), .lse = on(buffers.add(b), {b})};
  const linear_cross_entropy::Gradients gradients{.grad_x = on(buffers.add(b * h), {b, h}),
                                                  .grad_w = on(buffers.add(h * v), {h, v})};
  const softmax_cross_entropy::Gradients grad_logits{.grad_logits = on(buffers.add(b * v), {b, v})};
  const auto options = data.options;
  const auto values = [&buffers] { return buffers.outputs(); };
  const auto finish = [](Completion completion) {
    completion.wait();
    return completion.dispatch();
  };
  return {
      {"linear.value_and_grad in flight",
       [=](Context& context, const ImplementationList& names) {
         return finish(linear_cross_entropy::value_and_grad(context, linear, outputs, gradients,
                                                            options, {.implementation = names}));
       },
       values},
      {"softmax.value_and_grad in flight",
       [=](Context& context, const ImplementationList& names) {
         return finish(softmax_cross_entropy::value_and_grad(context, softmax, outputs, grad_logits,
                                                             options, {.implementation = names}));
       },
       values},
  };
}

class FaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!layer_.loaded()) GTEST_SKIP() << "this OpenCL loader takes no layers";
    layer_.reset();
    if (devices().empty()) GTEST_SKIP() << "no OpenCL device";
    layer_.reset();
    before_ = layer_.live();
    Context host({.host_only = true});
    auto inputs = data_->linear();
    LossOptions options = data_->options;
    options.wants.statistics = true;
    const auto result =
        linear_cross_entropy::forward(host, inputs, options, {.implementation = "reference"});
    const auto statistics = result.statistics.as<float>();
    data_->statistics.assign(statistics.begin(), statistics.end());
  }
  void TearDown() override {
    if (!layer_.loaded()) return;
    layer_.reset();
    EXPECT_EQ(layer_.live(), before_);
  }

  static ContextOptions quiet() {
    return {.warning_handler = [](const std::string&) {}};
  }

  /// True where some implementation of the default order needs no device.
  static bool has_host_default() {
    for (const auto& row : linear_cross_entropy::implementations()) {
      if (row.by_default && row.name == "eigen") return true;
    }
    return false;
  }

  /// Runs the case while the k-th call of `kind` fails.
  void run_failing(const Case& one, Context& context, const ImplementationList& names,
                   const std::vector<float>& expected, const test::Layer::Kind& kind, long k) {
    SCOPED_TRACE(one.name + ": " + kind.name + " " + std::to_string(k));
    layer_.fail(kind.name, k, kind.code);
    const long failed_before = layer_.failed();
    ++runs_;
    try {
      const Dispatch dispatch = one.run(context, names);
      layer_.fail("", 0, 0);
      const auto values = one.values();
      ASSERT_EQ(values.size(), expected.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        // Another implementation sums in another order; these few terms differ by far less.
        EXPECT_NEAR(values[i], expected[i], 1e-5) << i;
      }
      if (!dispatch.implementation.starts_with("opencl")) {
        ++fallbacks_;
        EXPECT_FALSE(dispatch.refused.empty()) << "a silent fallback";
      }
    } catch (const Error& error) {
      ++errors_;
      layer_.fail("", 0, 0);
      const std::string text = error.what();
      EXPECT_TRUE(error.code() == ErrorCode::execution_failed ||
                  error.code() == ErrorCode::out_of_memory ||
                  error.code() == ErrorCode::build_failed)
          << to_string(error.code()) << ": " << text;
      EXPECT_NE(text.find("cl"), std::string::npos) << text;
      // With somewhere to go, only a call that may have written something can fail. (What is asked
      // at the door of a call, before it has an implementation, is not the dispatcher's.)
      const bool at_the_door = std::string(kind.name).starts_with("get_");
      if (names.names().empty() && has_host_default() && !at_the_door) {
        EXPECT_EQ(to_string(error.code()), std::string(to_string(ErrorCode::execution_failed)))
            << text;
      }
    } catch (const std::exception& error) {
      ADD_FAILURE() << "not a tessera::Error: " << error.what();
    }
    EXPECT_LE(layer_.failed(), failed_before + 1);
    EXPECT_EQ(layer_.live("event"), before_["event"]);
  }

  /// Every call of a run on a context whose programs are built.
  void sweep_warm(const std::vector<Case>& cases, Context& context) {
    for (const auto& one : cases) {
      for (const ImplementationList& names : {ImplementationList(), ImplementationList("opencl")}) {
        std::vector<float> expected;
        try {
          one.run(context, names);
          expected = one.values();
        } catch (const Error& error) {
          // No row of that name for this operator.
          ASSERT_TRUE(error.code() == ErrorCode::invalid_argument) << error.what();
          continue;
        }
        layer_.reset();
        one.run(context, names);
        std::map<std::string, long> calls;
        for (const auto& kind : test::Layer::kinds) calls[kind.name] = layer_.calls(kind.name);
        for (const auto& kind : test::Layer::kinds) {
          for (long k = 1; k <= calls[kind.name]; ++k) {
            run_failing(one, context, names, expected, kind, k);
          }
        }
        // The context is usable after all that.
        one.run(context, names);
        EXPECT_EQ(one.values(), expected) << one.name;
      }
    }
  }

  test::Layer& layer_ = test::Layer::get(TESSERA_TEST_LAYER);
  std::map<std::string, long> before_;
  std::shared_ptr<Data> data_ = std::make_shared<Data>();
  long runs_ = 0;
  long errors_ = 0;
  long fallbacks_ = 0;

  void report() {
    RecordProperty("runs", std::to_string(runs_));
    RecordProperty("errors", std::to_string(errors_));
    RecordProperty("fallbacks", std::to_string(fallbacks_));
    std::printf("%ld calls failed: %ld errors, %ld fallbacks, %ld not needed\n", runs_, errors_,
                fallbacks_, runs_ - errors_ - fallbacks_);
  }
};

TEST_F(FaultTest, HostMemoryInPlace) {
  Context context(quiet());
  sweep_warm(host_cases(data_), context);
  report();
}

TEST_F(FaultTest, HostMemoryStaged) {
  layer_.limit("device_type", CL_DEVICE_TYPE_GPU);
  Context context(quiet());
  sweep_warm(host_cases(data_), context);
  report();
}

TEST_F(FaultTest, DeviceMemoryInFlight) {
  Context context(quiet());
  Buffers buffers(context);
  sweep_warm(device_cases(*data_, buffers), context);
  report();
}

// Everything from the first question to the driver on: contexts, builds and kernels. Device queries
// are many and alike, so one in seven fails.
TEST_F(FaultTest, FromTheFirstCallOn) {
  const auto cases = host_cases(data_);
  for (const auto& one : cases) {
    if (one.name != "linear.value_and_grad" && one.name != "softmax.value_and_grad") continue;
    std::vector<float> expected;
    layer_.reset();
    {
      Context context(quiet());
      one.run(context, {});
      expected = one.values();
    }
    std::map<std::string, long> calls;
    for (const auto& kind : test::Layer::kinds) calls[kind.name] = layer_.calls(kind.name);
    for (const auto& kind : test::Layer::kinds) {
      const std::string name = kind.name;
      // These are the warm sweeps' own.
      if (name == "set_kernel_arg" || name.starts_with("enqueue_") || name == "get_event_info") {
        continue;
      }
      const long step = name == "get_device_info" || name == "get_platform_info" ? 7 : 1;
      for (long k = 1; k <= calls[name]; k += step) {
        layer_.reset();
        layer_.fail(kind.name, k, kind.code);
        std::unique_ptr<Context> context;
        try {
          context = std::make_unique<Context>(quiet());
        } catch (const Error& error) {
          ++runs_;
          ++errors_;
          EXPECT_FALSE(std::string(error.what()).empty());
        }
        // What failed while the context was made has failed; what is left fails in the call.
        const long left = layer_.failed() > 0 ? 0 : k - layer_.calls(kind.name);
        if (context != nullptr) run_failing(one, *context, {}, expected, kind, left);
        context.reset();
        layer_.reset();
        EXPECT_EQ(layer_.live(), before_) << kind.name << " " << k;
      }
    }
  }
  report();
}

TEST_F(FaultTest, ADriverWhoseBuildsFailIsAReportedFallback) {
  if (!has_host_default()) GTEST_SKIP() << "eigen is not compiled in";
  layer_.fail_builds(true);
  std::vector<std::string> warnings;
  Context context({.warning_handler = [&](const std::string& text) { warnings.push_back(text); }});
  const auto cases = host_cases(data_);
  const Dispatch dispatch = cases[2].run(context, {});
  EXPECT_EQ(dispatch.implementation, "eigen");
  ASSERT_FALSE(dispatch.refused.empty());
  for (const auto& refusal : dispatch.refused) {
    EXPECT_TRUE(refusal.implementation.starts_with("opencl"));
    EXPECT_NE(refusal.reason.find("failed by the test layer"), std::string::npos) << refusal.reason;
  }
  EXPECT_FALSE(warnings.empty());
  try {
    cases[2].run(context, "opencl");
    ADD_FAILURE() << "it ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::build_failed) << error.what();
  }
}

}  // namespace
}  // namespace tessera
