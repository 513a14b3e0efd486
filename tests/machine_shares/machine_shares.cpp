// SPDX-License-Identifier: Apache-2.0
// What share of a machine the products of linear_cross_entropy keep busy, by the plans for machines
// that are not here: a table on stdout, weighted by FLOPs over calls of 512 tokens and more, and
// exit code 1 where one of those on a CPU is below --at-least, or has more launches than asked.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <limits>

#include "host/linear/opencl/shares.hpp"
#include "host/linear_cross_entropy/request.hpp"
#include "host/opencl/machines.hpp"
#include "tests/support/runner.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

struct Model {
  const char* name;
  std::int64_t h, v;
};
constexpr Model models[] = {
    {"gpt2", 768, 50257},          {"gemma2-2b", 2304, 256000}, {"gemma2-9b", 3584, 256000},
    {"gemma3-4b", 2560, 262144},   {"llama3-8b", 4096, 128256}, {"qwen3-8b", 4096, 151936},
    {"deepseek-v3", 7168, 129280}, {"gpt-oss", 2880, 201088},   {"minilm", 384, 30522}};

/// The schedule of a call whose arrays are in host memory, w as [V,H], f32.
struct Planned {
  linear::Schedule schedule;
  std::vector<linear::ProductLaunches> launches;
};
Planned plan(Context& context, const opencl::Machine& machine, Pass pass, std::int64_t b,
             const Model& model) {
  const auto shape = [](DType type, const Dims& extents, const Dims& strides = {}) {
    return View::host(nullptr, type, extents, strides);
  };
  LossOptions options;
  options.wants.grad_x = options.wants.grad_w = true;
  const auto call = operators::bind<lce::Operator>(
      pass,
      {.x = shape(DType::f32, {b, model.h}),
       .labels = shape(DType::i32, {b}),
       .w = shape(DType::f32, {model.h, model.v}, {1, model.h}),
       .statistics = pass == Pass::backward ? shape(DType::f32, {b, 2}) : View()},
      {}, {}, options, {});
  return operators::with_checked(
      context, call, operators::Form::question, [&](const auto& checked) {
        const lce::Request request = lce::request_of(checked);
        std::vector<std::string> notes;
        const auto shapes = engines::engine_entry(machine.facts.is_cpu ? "cpu" : "simt")
                                .shapes(machine.facts, {.n = b}, nullptr, notes);
        const auto choice = linear::make_schedule(request, shapes, machine.facts);
        return Planned{choice.schedule,
                       linear::product_launches(request, *choice.engine, choice.schedule)};
      });
}

std::string kernels_of(const std::vector<linear::ProductLaunches>& launches) {
  std::string text;
  for (const auto& launch : launches) {
    text += fmt::format("{}{} {} times {} groups {:.0f}%", text.empty() ? "" : "; ", launch.kernel,
                        launch.times, launch.groups, 100 * launch.share);
  }
  return text;
}

/// What calls of 512 tokens and more come to on one machine in one pass.
struct Total {
  double flops = 0.0, time = 0.0, least = 1.0;
  std::int64_t most_launches = 0;
  std::string least_case{};
  void add(const std::string& name, const std::vector<linear::ProductLaunches>& launches) {
    const double share = linear::machine_share(launches);
    std::int64_t times = 0;
    double own = 0.0;
    for (const auto& launch : launches) {
      times += launch.times;
      own += launch.flops;
    }
    flops += own;
    time += own / share;
    most_launches = std::max(most_launches, times);
    if (share >= least) return;
    least = share;
    least_case = name + ": " + kernels_of(launches);
  }
};

int run(double at_least, std::int64_t most_launches, bool every_call) {
  Context context{{.host_only = true, .warning_handler = [](const std::string&) {}}};
  bool all_reach = true;
  std::puts(every_call ? "machine,pass,b,model,schedule,chunk_rows,v_range,share,kernels"
                       : "machine,pass,share,least,most launches,least of");
  for (const opencl::Machine& machine : opencl::machines()) {
    for (const Pass pass : {Pass::forward, Pass::backward, Pass::value_and_grad}) {
      Total total;
      for (const Model& model : models) {
        for (const std::int64_t b : {64, 512, 2048, 4096, 8192, 16384}) {
          const auto [schedule, launches] = plan(context, machine, pass, b, model);
          if (every_call) {
            fmt::print("{},{},{},{},{},{},{},{:.3f},{}\n", machine.info.name, to_string(pass), b,
                       model.name, schedule.name, schedule.chunk_rows, schedule.v_range,
                       linear::machine_share(launches), kernels_of(launches));
          }
          if (b >= 512) total.add(fmt::format("{} B {}", model.name, b), launches);
        }
      }
      if (!every_call) {
        fmt::print("{},{},{:.3f},{:.3f},{},{}\n", machine.info.name, to_string(pass),
                   total.flops / total.time, total.least, total.most_launches, total.least_case);
      }
      if (machine.facts.is_cpu && total.least < at_least) all_reach = false;
      const bool is_large_gpu = machine.facts.is_gpu && machine.facts.compute_units >= 100;
      if (is_large_gpu && total.most_launches > most_launches) all_reach = false;
    }
  }
  return all_reach ? 0 : 1;
}

}  // namespace
}  // namespace tessera::test

int main(int argc, char** argv) {
  CLI::App app("The share of machines that plans keep busy.");
  double at_least = 0.0;
  app.add_option("--at-least", at_least, "of every CPU, for 512 tokens and more")
      ->check(CLI::Range(0.0, 1.0));
  std::int64_t most_launches = std::numeric_limits<std::int64_t>::max();
  app.add_option("--most-launches", most_launches,
                 "that multiply in a call on a GPU of 100 units and more");
  bool every_call = false;
  app.add_flag("--every-call", every_call, "a row for each call, of 64 tokens too");
  CLI11_PARSE(app, argc, argv);
  try {
    return tessera::test::run(at_least, most_launches, every_call);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "machine_shares: %s\n", error.what());
    return 2;
  }
}
