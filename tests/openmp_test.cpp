// SPDX-License-Identifier: Apache-2.0
// Calls beside the threads of an OpenMP runtime, for which this program stands.
#include "host/dispatch/openmp.hpp"

#include <unistd.h>

#include "tessera/tessera.hpp"
#include "tests/support/forked.hpp"

namespace {

int pauses = 0;
int last_kind = 0;
bool is_in_parallel = false;

}  // namespace

// As OpenMP 5.0 declares them.
extern "C" __attribute__((visibility("default"))) int omp_pause_resource_all(int kind) {
  ++pauses;
  last_kind = kind;
  return 0;
}
extern "C" __attribute__((visibility("default"))) int omp_in_parallel() {
  return is_in_parallel ? 1 : 0;
}

namespace tessera::dispatch {
namespace {

int pauses_of(std::int64_t flops, std::int64_t bytes, std::int64_t threads) {
  pauses = 0;
  rest_openmp([&] { return CostEstimate{.flops = flops, .bytes_ideal = bytes}; }, threads);
  return pauses;
}

TEST(OpenMp, RestsForLongCallsAlone) {
#ifndef __linux__
  GTEST_SKIP() << "nothing is looked up here";
#endif
  constexpr std::int64_t giga = 1'000'000'000;
  EXPECT_EQ(pauses_of(giga, 0, 2), 1);
  EXPECT_EQ(last_kind, 1) << "omp_pause_soft";
  EXPECT_EQ(pauses_of(0, giga, 2), 1);
  EXPECT_EQ(pauses_of(giga, giga, 64), 0) << "so many threads are soon done";
  EXPECT_EQ(pauses_of(giga / 100, giga / 1000, 1), 0);
  is_in_parallel = true;
  EXPECT_EQ(pauses_of(giga, 0, 2), 0) << "a team at work";
  is_in_parallel = false;
  pauses = 0;
  rest_openmp([]() -> CostEstimate { throw Error(ErrorCode::invalid_argument, ""); }, 1);
  EXPECT_EQ(pauses, 0);
  // The team's threads are the parent's.
  EXPECT_EQ(test::status_of_child([&] { return pauses_of(giga, 0, 2); }), 0);
  EXPECT_EQ(pauses_of(giga, 0, 2), 1);
}

/// On the device and on the host.
TEST(OpenMp, IsAskedByCalls) {
#ifndef __linux__
  GTEST_SKIP() << "nothing is looked up here";
#endif
  namespace sce = softmax_cross_entropy;
  Context context{ContextOptions{.threads = 1, .warning_handler = [](const std::string&) {}}};
  // Enough bytes for one thread; of labels that do not count, so that no time goes into the rest.
  constexpr std::int64_t rows = 64, columns = 100'000;
  const std::vector<float> logits(static_cast<std::size_t>(rows * columns));
  const std::vector<std::int32_t> labels(static_cast<std::size_t>(rows), -100);
  for (const char* implementation : {"opencl", "eigen"}) {
    const auto call = [&](std::int64_t count) {
      pauses = 0;
      sce::forward(context,
                   {.logits = View::host(logits.data(), {count, columns}),
                    .labels = View::host(labels.data(), {count})},
                   LossOptions{}, sce::ExecutionOptions{.implementation = implementation});
      return pauses;
    };
    if (implementation == std::string("opencl") &&
        (context.device_info().type != "cpu" || context.device_info().compute_units != 1)) {
      continue;
    }
    EXPECT_EQ(call(rows), 1) << implementation;
    EXPECT_EQ(call(1), 0) << implementation;
  }
}

}  // namespace
}  // namespace tessera::dispatch
