// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tessera/tessera.hpp"

/// Calls that are wrong: each is refused at the door with a message that names the argument, its
/// value and the limit, before any output is touched.
namespace tessera::misuse {

namespace lce = linear_cross_entropy;
namespace sce = softmax_cross_entropy;

inline constexpr std::int64_t B = 4;
inline constexpr std::int64_t H = 3;
inline constexpr std::int64_t V = 5;
inline constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();
inline constexpr unsigned char poison = 0xa5;

/// Memory for every argument of a call, with outputs poisoned, and a correct call over it.
struct Arrays {
  Arrays() : outputs(512, poison) {}

  template <class T = float>
  T* out(std::size_t byte) {
    return reinterpret_cast<T*>(outputs.data() + byte);
  }
  MutableView out_view(std::size_t byte, const Dims& extents, DType type = DType::f32) {
    return MutableView::host(static_cast<void*>(outputs.data() + byte), type, extents);
  }
  bool untouched() const {
    for (auto byte : outputs) {
      if (byte != poison) return false;
    }
    return true;
  }

  std::vector<float> x = std::vector<float>(B * H, 0.5f);
  std::vector<float> w = std::vector<float>(H * V, 0.25f);
  std::vector<float> z = std::vector<float>(B * V, 0.25f);
  std::vector<float> per_row = std::vector<float>(B * 2, 1.0f);
  std::vector<float> per_word = std::vector<float>(V * 4, 1.0f);
  std::vector<std::int32_t> labels = {0, 1, 2, 4};
  std::vector<unsigned char> outputs;
};

/// Everything a call takes; a case breaks one thing.
struct Call {
  Arrays a;
  Pass pass = Pass::value_and_grad;
  lce::Inputs in{};
  sce::Inputs soft{};
  Outputs out{};
  lce::Gradients grad{};
  sce::Gradients soft_grad{};
  LossOptions options{};
  lce::ExecutionOptions execution{};
  sce::ExecutionOptions soft_execution{};

  Call() {
    in = {.x = View::host(a.x.data(), {B, H}),
          .labels = View::host(a.labels.data(), {B}),
          .w = View::host(a.w.data(), {H, V})};
    soft = {.logits = View::host(a.z.data(), {B, V}), .labels = in.labels};
    out.loss = a.out_view(0, {});
    out.lse = a.out_view(16, {B});
    grad.grad_x = a.out_view(64, {B, H});
    grad.grad_w = a.out_view(128, {H, V});
    soft_grad.grad_logits = a.out_view(192, {B, V});
  }
  Call(const Call&) = delete;

  void to_backward() {
    pass = Pass::backward;
    out = {};
    in.lse = soft.lse = View::host(a.per_row.data(), {B});
  }
  void to_forward() {
    pass = Pass::forward;
    grad = {};
    soft_grad = {};
  }

  void run(Context& context, bool softmax) {
    if (softmax) {
      if (pass == Pass::forward) {
        sce::forward(context, soft, out, options, soft_execution).wait();
      } else if (pass == Pass::backward) {
        sce::backward(context, soft, soft_grad, options, soft_execution).wait();
      } else if (pass == Pass::forward_partial) {
        sce::forward_partial(context, soft, options, soft_execution);
      } else {
        sce::value_and_grad(context, soft, out, soft_grad, options, soft_execution).wait();
      }
      return;
    }
    if (pass == Pass::forward) {
      lce::forward(context, in, out, options, execution).wait();
    } else if (pass == Pass::backward) {
      lce::backward(context, in, grad, options, execution).wait();
    } else if (pass == Pass::forward_partial) {
      lce::forward_partial(context, in, options, execution);
    } else {
      lce::value_and_grad(context, in, out, grad, options, execution).wait();
    }
  }
};

struct Case {
  const char* name;
  std::function<void(Call&)> breaks;
  std::vector<std::string> says;
  ErrorCode code = ErrorCode::invalid_argument;
};

inline void PrintTo(const Case& c, std::ostream* stream) { *stream << c.name; }

inline void expect_refused(const Case& c, bool softmax) {
  // Host only: whatever could run would come after the door.
  Context context(ContextOptions{.host_only = true, .warning_handler = [](const auto&) {}});
  Call call;
  c.breaks(call);
  const auto labels = call.a.labels;
  try {
    call.run(context, softmax);
    FAIL() << c.name << ": nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), std::string(to_string(c.code))) << error.what();
    for (const auto& part : c.says) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "\"" << part << "\" in \"" << error.what() << "\"";
    }
  }
  EXPECT_TRUE(call.a.untouched());
  EXPECT_EQ(call.a.labels, labels);
}

template <class T>
T* misaligned(T* pointer) {
  return reinterpret_cast<T*>(reinterpret_cast<char*>(pointer) + 1);
}

/// A cl_mem that is never looked at: the context has no device.
inline cl_mem some_memory() {
  static int token;
  return reinterpret_cast<cl_mem>(&token);
}

}  // namespace tessera::misuse
