// SPDX-License-Identifier: Apache-2.0
// gradient_filter_eps and what surrounds the kernels: which programs a call compiles, and where the
// marks of the tiles lie.
#include <gtest/gtest.h>

#include "host/linear_cross_entropy/opencl/run.hpp"
#include "host/linear_cross_entropy/request.hpp"
#include "host/opencl/runtime.hpp"
#include "tests/support/matrix.hpp"
#include "tests/support/schedules.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

class OpenclFilter : public ImplementationTest {};

Case problem() {
  Case c;
  c.name = "opencl_filter";
  c.b = 70;
  c.h = 33;
  c.v = 1001;
  c.bias = true;
  return c;
}

using linear::Prepared;

Prepared prepared(const std::string& implementation, float eps) {
  Context& context = shared_context();
  const auto shape = [](DType type, const Dims& extents) {
    return View::host(nullptr, type, extents);
  };
  const lce::Inputs in{.x = shape(DType::f32, {70, 33}),
                       .labels = shape(DType::i32, {70}),
                       .w = shape(DType::f32, {33, 1001}),
                       .bias = shape(DType::f32, {1001})};
  LossOptions options;
  options.wants.grad_x = options.wants.grad_w = options.wants.grad_bias = true;
  const auto call = operators::bind<lce::Operator>(Pass::value_and_grad, in, {}, {}, options,
                                                   {.gradient_filter_eps = eps});
  auto& runtime = *opencl::runtime_of(context.state());
  return operators::with_checked(
      context, call, operators::Form::question, [&](const auto& checked) {
        const auto request = lce::request_of(checked);
        std::vector<std::string> notes;
        const auto shapes = engines::shapes_with(
            engines::engine_entry(implementation.substr(std::string("opencl.").size())),
            runtime.facts(), {.n = 70, .filtered = eps > 0.0f}, {}, &runtime, notes);
        auto choice = schedule_of<lce::Problem>(request, shapes, runtime.facts());
        Prepared made;
        made.schedule = std::move(choice.schedule);
        made.programs = linear::programs_of(lce::Problem(request, choice.problem->shared_engine()),
                                            made.schedule);
        return made;
      });
}

TEST_P(OpenclFilter, OnlyItsOwnKernelsAreOthers) {
  const auto without = prepared(GetParam(), 0.0f);
  const auto with = prepared(GetParam(), 0.25f);
  const auto& a = without.programs;
  const auto& b = with.programs;
  EXPECT_TRUE(a[linear::mark].file.empty());
  EXPECT_NE(b[linear::mark].file, "");
  for (const int kernel : {linear::pack_rows, linear::pack_columns, linear::forward,
                           linear::write_bias, linear::write_x, linear::gradient}) {
    EXPECT_NE(a[kernel].file, "") << kernel;
    EXPECT_EQ(a[kernel].options, b[kernel].options);
  }
  for (const int kernel : {linear::grad_w, linear::grad_x}) {
    EXPECT_EQ(a[kernel].options.find("FILTER"), std::string::npos);
    EXPECT_EQ(a[kernel].options + " -DFILTER=64", b[kernel].options);
  }
  EXPECT_EQ(without.schedule.name, with.schedule.name);
  // A GPU's ranges are cut anew, and may come to less.
  if (with.schedule.at.columns == without.schedule.at.columns) {
    EXPECT_LT(without.schedule.scratch_words, with.schedule.scratch_words);
  }
}

TEST_P(OpenclFilter, TheLeastWorkspaceHoldsItsMarks) {
  Context& context = shared_context();
  for (const Pass pass : {Pass::backward, Pass::value_and_grad}) {
    Case c = problem();
    c.gradient_filter_eps = 0x1p-7f;
    const Expected& e = expected_of(c);
    Arguments arguments(context, c, e.problem);
    arguments.add_statistics(context, e.values);
    Results results(context, c, e, pass, GetParam());
    lce::ExecutionOptions execution;
    execution.implementation = GetParam();
    execution.gradient_filter_eps = c.gradient_filter_eps;
    const auto plan =
        lce::plan(context, pass, arguments.inputs<lce::Operator>(pass), results.outputs(),
                  results.gradients<lce::Operator>(arguments), c.options, execution);
    c.workspace_bytes = static_cast<std::size_t>(plan.minimum_workspace_bytes);
    run_case(GetParam(), pass, c);
    // And a lent block of what the plan says: there are canaries behind it.
    Argument block =
        make_argument(context, Place::device, DType::f32, {(plan.workspace_bytes + 3) / 4});
    block.storage->upload();
    execution.workspace = block.mutable_view();
    run_views<lce::Operator>(context, pass, arguments.inputs<lce::Operator>(pass),
                             results.outputs(), results.gradients<lce::Operator>(arguments),
                             c.options, execution)
        .wait();
    EXPECT_EQ(block.storage->download(), "") << "beside the lent block";
    results.check(arguments);
  }
}

INSTANTIATE_TEST_SUITE_P(All, OpenclFilter,
                         testing::ValuesIn(implementations_of<lce::Operator>(is_on_opencl)),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpenclFilter);

}  // namespace
}  // namespace tessera::test
