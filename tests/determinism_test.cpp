// SPDX-License-Identifier: Apache-2.0
// Same call, same bits: twice in a row, and from eight threads on one context at once.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

class Determinism : public ImplementationTest {
 protected:
  // The smallest problem of all is not one of whole blocks.
  void SetUp() override {
    if (GetParam() != "tpu_tile") ImplementationTest::SetUp();
  }
};

/// A problem of several blocks in every direction, so that there is an order to get wrong.
Case large(const std::string& implementation, const std::string& name, DType type) {
  Case c;
  c.name = "determinism_" + name + to_string(type);
  c.b = tiny() ? 5 : 333;
  c.h = tiny() ? 7 : 65;
  c.v = tiny() ? 37 : 3001;
  c.x_type = c.w_type = type;
  c.bias = true;
  c.labels = Labels::some_ignored;
  c.options.logsumexp_weight = 1e-3f;
  c.options.label_smoothing = 0.1f;
  if (implementation == "tpu_tile") {
    c.name += "_tile";
    c.b = 256;
    c.h = 128;
    c.v = 1001;
  }
  return c;
}

/// Every byte of every result of one pass.
std::vector<std::byte> bytes_of(const std::string& implementation, Pass pass, const Case& c,
                                const Expected& e, Arguments& arguments) {
  Context& context = shared_context();
  Results results(context, c, e, pass, implementation);
  lce::ExecutionOptions execution;
  execution.implementation = implementation;
  const lce::Inputs in = arguments.linear(pass);
  if (pass == Pass::forward) {
    lce::forward(context, in, results.outputs(), c.options, execution).wait();
  } else if (pass == Pass::backward) {
    lce::backward(context, in, results.linear_gradients(), c.options, execution).wait();
  } else {
    lce::value_and_grad(context, in, results.outputs(), results.linear_gradients(), c.options,
                        execution)
        .wait();
  }
  std::vector<std::byte> bytes;
  for (Argument* a : {&results.loss, &results.lse, &results.argmax, &results.entropy,
                      &results.statistics, &results.grad_x, &results.grad_w, &results.grad_bias}) {
    if (!*a) continue;
    a->storage->download();
    const auto n = static_cast<std::size_t>(a->storage->elements()) * size_of(a->storage->type());
    bytes.insert(bytes.end(), a->storage->bytes(), a->storage->bytes() + n);
  }
  return bytes;
}

constexpr Pass passes[] = {Pass::forward, Pass::backward, Pass::value_and_grad};

TEST_P(Determinism, TwoRunsGiveTheSameBits) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const Case c = large(GetParam(), "twice", type);
    const Expected& e = expected_of(c);
    Arguments arguments(shared_context(), c, e.problem);
    arguments.add_statistics(shared_context(), e.values);
    for (const Pass pass : passes) {
      const auto first = bytes_of(GetParam(), pass, c, e, arguments);
      for (int run = 0; run < 3; ++run) {
        EXPECT_TRUE(first == bytes_of(GetParam(), pass, c, e, arguments))
            << to_string(pass) << " " << to_string(type);
      }
    }
  }
}

TEST_P(Determinism, EightThreadsGiveTheBitsOfOne) {
  if (tiny()) GTEST_SKIP() << "the interpreter runs one thread";
  const Case c = large(GetParam(), "threads", DType::f32);
  const Expected& e = expected_of(c);
  // All threads read the same host arrays: a range used by concurrent calls is wrapped once.
  Arguments arguments(shared_context(), c, e.problem);
  arguments.add_statistics(shared_context(), e.values);
  std::vector<std::vector<std::byte>> serial;
  for (const Pass pass : passes) {
    serial.push_back(bytes_of(GetParam(), pass, c, e, arguments));
  }
  std::atomic<int> wrong = 0;
  std::vector<std::string> errors(8);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      try {
        for (std::size_t run = 0; run < 6; ++run) {
          const std::size_t pass = (run + t) % 3;
          if (bytes_of(GetParam(), passes[pass], c, e, arguments) != serial[pass]) ++wrong;
        }
      } catch (const std::exception& error) {
        errors[t] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

INSTANTIATE_TEST_SUITE_P(All, Determinism, testing::ValuesIn(linear_implementations()),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Determinism);

}  // namespace
}  // namespace tessera::test
