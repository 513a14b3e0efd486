// SPDX-License-Identifier: Apache-2.0
// What is planned for a device that is not here, without running anything.
#include <gtest/gtest.h>

#include <algorithm>

#include "host/operators/bind.hpp"
#include "host/rms_norm/opencl_plan.hpp"
#include "tests/support/test_engines.hpp"

namespace tessera::test {
namespace {

/// The test engine `plain` runs one group of 16 work-items at once. Sums of grad_scale take groups
/// of 64, of which that is less than one: a division by it ends a process, where PoCL does not hide
/// it.
TEST(OpenclRmsNormPlan, OneSmallGroup) {
  const auto engines = test_engines();
  const auto plain = std::ranges::find(engines, "plain", &engines::EngineEntry::name);
  ASSERT_NE(plain, engines.end());
  const opencl::DeviceFacts facts{.max_allocation_bytes = std::int64_t{2} << 30};
  std::vector<std::string> notes;
  const auto shapes = plain->shapes(facts, {.n = 40}, nullptr, notes);
  ASSERT_LT(shapes.at(0)->row_pass().slots * shapes[0]->row_pass().items, 64);
  const auto shape = [](const Dims& extents) { return View::host(nullptr, DType::f32, extents); };
  const auto call = operators::bind<rms_norm::Operator>(
      Pass::backward, {.x = shape({40, 70}), .scale = shape({70}), .dy = shape({40, 70})}, {}, {},
      {}, {});
  Context context({.host_only = true, .warning_handler = [](const std::string&) {}});
  const auto explained =
      operators::with_checked(context, call, operators::Form::question, [&](const auto& checked) {
        const auto request = rms_norm::request_of(checked);
        std::shared_ptr<const engines::Engine> engine;
        const auto schedule = rms_norm::make_schedule(request, shapes, facts, engine);
        return rms_norm::explain(request, *engine, schedule);
      });
  for (const auto& launch : explained.launches) {
    EXPECT_GT(launch.share, 0.0) << launch.kernel;
    EXPECT_LE(launch.share, 1.0) << launch.kernel;
  }
}

}  // namespace
}  // namespace tessera::test
