// SPDX-License-Identifier: Apache-2.0
// What share of a machine the launches of a call keep busy, by the plans for machines that are not
// here: a table on stdout, weighted by FLOPs over calls of 512 rows and more, and exit code 1 where
// they come to less than asked, or one has more launches of products.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>

#include "host/engines/shares.hpp"
#include "host/linear_cross_entropy/opencl/run.hpp"
#include "host/linear_cross_entropy/request.hpp"
#include "host/linear_distillation/opencl/run.hpp"
#include "host/opencl/machines.hpp"
#include "host/opencl/runtime.hpp"
#include "tessera/tessera.hpp"
#include "tests/support/schedules.hpp"

namespace tessera::test {
namespace {
namespace norm = rms_norm;

struct Model {
  const char* name;
  std::int64_t h, v;
};
constexpr Model models[] = {
    {"gpt2", 768, 50257},          {"gemma2-2b", 2304, 256000}, {"gemma2-9b", 3584, 256000},
    {"gemma3-4b", 2560, 262144},   {"llama3-8b", 4096, 128256}, {"qwen3-8b", 4096, 151936},
    {"deepseek-v3", 7168, 129280}, {"gpt-oss", 2880, 201088},   {"minilm", 384, 30522}};

View array(DType type, const Dims& extents, const Dims& strides = {}) {
  return View::host(nullptr, type, extents, strides);
}
View labels(std::int64_t b) { return array(DType::i32, {b}); }
/// Of a loss's backward alone.
View statistics(Pass pass, std::int64_t b) {
  return pass == Pass::backward ? array(DType::f32, {b, 2}) : View();
}

/// The schedule that is taken for arrays in host memory, w as [V,H], f32.
using Ask = std::function<ConsideredSchedule(Context&, Pass, std::int64_t, const Model&)>;

/// Without the other schedules, which `plan` takes seconds to explain.
template <class Problem, class Request>
ConsideredSchedule plan_of(const Request& request, const opencl::DeviceFacts& facts) {
  std::vector<std::string> notes;
  const auto shapes = engines::engine_entry(facts.is_cpu ? "cpu" : "simt")
                          .shapes(facts, {.n = request.loss.b}, nullptr, notes);
  const auto choice = schedule_of<Problem>(request, shapes, facts);
  ConsideredSchedule taken{.name = choice.schedule.name};
  taken.launches = cost_of(choice).products;
  taken.predicted_share = engines::machine_share(taken.launches);
  return taken;
}

LossOptions with_gradients() {
  LossOptions options;
  options.wants.grad_x = options.wants.grad_w = true;
  return options;
}

ConsideredSchedule linear(Context& context, Pass pass, std::int64_t b, const Model& model) {
  using Operator = linear_cross_entropy::Operator;
  const auto& facts = opencl::runtime_of(context.state())->facts();
  const auto call =
      operators::bind<Operator>(pass,
                                {.x = array(DType::f32, {b, model.h}),
                                 .labels = labels(b),
                                 .w = array(DType::f32, {model.h, model.v}, {1, model.h}),
                                 .statistics = statistics(pass, b)},
                                {}, {}, with_gradients(), {});
  return operators::with_checked(context, call, operators::Form::question,
                                 [&](const auto& checked) {
                                   return plan_of<linear_cross_entropy::Problem>(
                                       linear_cross_entropy::request_of(checked), facts);
                                 });
}

/// A student and a teacher of the same depth, without labels.
ConsideredSchedule distillation(Context& context, Pass pass, std::int64_t b, const Model& model) {
  using Operator = linear_distillation::Operator;
  const auto& facts = opencl::runtime_of(context.state())->facts();
  const View x = array(DType::f32, {b, model.h});
  const View w = array(DType::f32, {model.h, model.v}, {1, model.h});
  const auto call = operators::bind<Operator>(
      pass,
      {.x = x,
       .w = w,
       .teacher_x = x,
       .teacher_w = w,
       .statistics = statistics(pass, b),
       .divergence_statistics = pass == Pass::backward ? array(DType::f32, {b, 5}) : View()},
      {}, {}, {.alpha = 1.0f, .loss = with_gradients()}, {});
  return operators::with_checked(context, call, operators::Form::question,
                                 [&](const auto& checked) {
                                   return plan_of<linear_distillation::Problem>(
                                       linear_distillation::request_of(checked), facts);
                                 });
}

ConsideredSchedule taken(const Plan& plan) {
  const auto& all = plan.considered;
  return *std::find_if(all.begin(), all.end(), [](const auto& one) { return one.is_taken; });
}

ConsideredSchedule softmax(Context& context, Pass pass, std::int64_t b, const Model& model) {
  return taken(softmax_cross_entropy::plan(context, pass,
                                           {.logits = array(DType::f32, {b, model.v}),
                                            .labels = labels(b),
                                            .statistics = statistics(pass, b)},
                                           {}, {}, {}, {.implementation = "opencl"}));
}

ConsideredSchedule rms(Context& context, Pass pass, std::int64_t b, const Model& model) {
  norm::Options options;
  options.wants.grad_x = options.wants.grad_scale = true;
  const View x = array(DType::f32, {b, model.h});
  return taken(norm::plan(
      context, pass,
      {.x = x, .scale = array(DType::f32, {model.h}), .dy = pass == Pass::backward ? x : View()},
      {}, {}, options, {.implementation = "opencl"}));
}

struct Operator {
  const char* name;
  std::vector<Pass> passes;
  Ask plan;
  bool multiplies = false;
  double at_least = 0.0;  ///< of each call of 512 rows and more; of products on CPUs alone
  double together = 0.0;  ///< of all calls
  /// Of products in a call, on a GPU of 100 units and 64 GiB and more.
  std::int64_t most_launches = 0;
};

const std::vector<Operator>& all_operators() {
  static const auto& all = *new std::vector<Operator>{
      // Of 192 cores a product of 427 strips, H 2560, leaves a quarter idle in its last round.
      {"linear_cross_entropy",
       {Pass::forward, Pass::backward, Pass::value_and_grad},
       linear,
       true,
       0.88,
       0.0,
       300},
      // A launch more for each range, whose two logits leave less room for wide ones.
      {"linear_distillation",
       {Pass::forward, Pass::backward, Pass::value_and_grad},
       distillation,
       true,
       0.85,
       0.89,
       400},
      // An MI300X runs 4864 groups at once: to fill the second round of 512 rows of V 30522, their
      // slices would be so many that merging them takes longer.
      {"softmax_cross_entropy",
       {Pass::forward, Pass::backward, Pass::value_and_grad},
       softmax,
       false,
       0.78},
      // Rows are whole there: up to 4096 of them are too few for the largest machines.
      {"rms_norm", {Pass::forward, Pass::backward}, rms, false, 0.0, 0.71}};
  return all;
}

std::string kernels_of(const ConsideredSchedule& schedule) {
  std::string text;
  for (const auto& launch : schedule.launches) {
    text += fmt::format("{}{} {} times {} groups {:.0f}%", text.empty() ? "" : "; ", launch.kernel,
                        launch.times, launch.groups, 100 * launch.share);
  }
  return text;
}

/// What calls of 512 rows and more come to on one machine in one pass.
struct Total {
  double flops = 0.0, time = 0.0, least = 1.0;
  std::int64_t most_launches = 0;
  std::string least_case{};
  void add(const std::string& name, const ConsideredSchedule& schedule) {
    std::int64_t times = 0;
    double own = 0.0;
    for (const auto& launch : schedule.launches) {
      times += launch.times;
      own += launch.flops;
    }
    flops += own;
    time += own / schedule.predicted_share;
    most_launches = std::max(most_launches, times);
    if (schedule.predicted_share >= least) return;
    least = schedule.predicted_share;
    least_case = name + ": " + kernels_of(schedule);
    if (!schedule.reason.empty()) least_case += " (" + schedule.reason + ")";
  }
};

/// Whether the plans are as good as is asked.
bool holds(const Operator& op, const opencl::Machine& machine, const Total& total) {
  if (total.flops / total.time < op.together) return false;
  if (total.least < op.at_least && (machine.facts.is_cpu || !op.multiplies)) return false;
  // With little memory there are many chunks of few rows.
  const bool is_large_gpu = machine.facts.is_gpu && machine.facts.compute_units >= 100 &&
                            machine.facts.global_memory_bytes >= std::int64_t{64} << 30;
  return !op.multiplies || !is_large_gpu || total.most_launches <= op.most_launches;
}

int run(bool every_call) {
  bool all_hold = true;
  std::puts(every_call ? "machine,operator,pass,b,model,schedule,share,kernels"
                       : "machine,operator,pass,share,least,most launches,least of");
  for (const opencl::Machine& machine : opencl::machines()) {
    Context context{{.plan_for = machine.info.name, .warning_handler = [](const auto&) {}}};
    for (const Operator& op : all_operators()) {
      for (const Pass pass : op.passes) {
        Total total;
        for (const Model& model : models) {
          for (const std::int64_t b : {64, 512, 2048, 4096, 8192, 16384}) {
            const auto schedule = op.plan(context, pass, b, model);
            if (every_call) {
              fmt::print("{},{},{},{},{},{},{:.3f},{}\n", machine.info.name, op.name,
                         to_string(pass), b, model.name, schedule.name, schedule.predicted_share,
                         kernels_of(schedule));
            }
            if (b >= 512) total.add(fmt::format("{} B {}", model.name, b), schedule);
          }
        }
        if (!every_call) {
          fmt::print("{},{},{},{:.3f},{:.3f},{},{}\n", machine.info.name, op.name, to_string(pass),
                     total.flops / total.time, total.least, total.most_launches, total.least_case);
        }
        all_hold = all_hold && holds(op, machine, total);
      }
    }
  }
  return all_hold ? 0 : 1;
}

}  // namespace
}  // namespace tessera::test

int main(int argc, char** argv) {
  CLI::App app("The share of machines that plans keep busy.");
  bool every_call = false;
  app.add_flag("--every-call", every_call, "a row for each call, of 64 rows too");
  CLI11_PARSE(app, argc, argv);
  try {
    return tessera::test::run(every_call);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "machine_shares: %s\n", error.what());
    return 2;
  }
}
