// SPDX-License-Identifier: Apache-2.0
// Same call, same bits: twice in a row, and from eight threads on one context at once.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {

class Determinism : public OperatorTest {};

/// A problem of several blocks in every direction, so that there is an order to get wrong.
Case large(const OperatorParameter& on, const std::string& name, DType type) {
  Case c;
  c.op = on.op;
  c.name = "determinism_" + name + to_string(type);
  c.b = tiny() ? 5 : 333;
  c.h = tiny() ? 7 : 65;
  c.v = tiny() ? 37 : 3001;
  c.x_type = c.w_type = type;
  c.bias = true;
  c.labels = Labels::some_ignored;
  c.options.logsumexp_weight = 1e-3f;
  c.options.label_smoothing = 0.1f;
  if (on.implementation == "tpu_tile") {
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
  c.op->run({context, implementation, pass, c, arguments, results});
  std::vector<std::byte> bytes;
  std::vector<std::string> names;
  for (const auto& output : c.op->outputs()) names.emplace_back(output.name);
  for (const auto& gradient : c.op->gradients()) names.emplace_back(gradient.name);
  for (const auto& name : names) {
    const Argument& a = results[name];
    if (!a) continue;
    a.storage->download();
    const auto n = static_cast<std::size_t>(a.storage->elements()) * size_of(a.storage->type());
    bytes.insert(bytes.end(), a.storage->bytes(), a.storage->bytes() + n);
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
      const auto first = bytes_of(GetParam().implementation, pass, c, e, arguments);
      for (int run = 0; run < 3; ++run) {
        EXPECT_TRUE(first == bytes_of(GetParam().implementation, pass, c, e, arguments))
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
    serial.push_back(bytes_of(GetParam().implementation, pass, c, e, arguments));
  }
  std::atomic<int> wrong = 0;
  std::vector<std::string> errors(8);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      try {
        for (std::size_t run = 0; run < 6; ++run) {
          const std::size_t pass = (run + t) % 3;
          if (bytes_of(GetParam().implementation, passes[pass], c, e, arguments) != serial[pass])
            ++wrong;
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

INSTANTIATE_TEST_SUITE_P(All, Determinism, testing::ValuesIn(operators_and_implementations()),
                         operator_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Determinism);

}  // namespace
}  // namespace tessera::test
