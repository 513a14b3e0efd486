// SPDX-License-Identifier: Apache-2.0
// What share of a machine the products of linear_cross_entropy keep busy, by the plans for machines
// that are not here: a table on stdout, and exit code 1 where a CPU's share is below --at-least for
// 512 tokens and more.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "host/linear/opencl/shares.hpp"
#include "host/linear_cross_entropy/request.hpp"
#include "tests/support/runner.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

struct Machine {
  std::string name;
  std::string engine;
  opencl::DeviceFacts facts;
};

constexpr std::int64_t kib = 1024, mib = 1024 * kib, gib = 1024 * mib;

/// A CPU with vectors of 16, 16 MiB of cache for every 8 cores, as a driver may report it, and room
/// for everything.
Machine cpu(std::int64_t cores) {
  opencl::DeviceFacts facts;
  facts.is_cpu = facts.zero_copy = true;
  facts.native_float_vector = 16;
  facts.compute_units = cores;
  facts.cache_bytes = 16 * mib * std::max<std::int64_t>(1, cores / 8);
  facts.max_work_group_size = 4096;
  facts.global_memory_bytes = 256 * gib;
  facts.max_allocation_bytes = 64 * gib;
  return {fmt::format("cpu-{}", cores), "cpu", facts};
}

Machine gpu(const char* name, std::int64_t units, std::int64_t local_kib, std::int64_t cache_mib,
            std::int64_t memory_gib) {
  opencl::DeviceFacts facts;
  facts.is_gpu = true;
  facts.compute_units = units;
  facts.local_memory_bytes = local_kib * kib;
  facts.cache_bytes = cache_mib * mib;
  facts.max_work_group_size = 1024;
  facts.global_memory_bytes = memory_gib * gib;
  facts.max_allocation_bytes = memory_gib * gib / 4;
  return {name, "simt", facts};
}

std::vector<Machine> machines() {
  std::vector<Machine> list;
  for (const std::int64_t cores : {2, 8, 16, 32, 64, 128, 192}) list.push_back(cpu(cores));
  // Units and memory of data sheets; local memory and cache as OpenCL drivers report them.
  list.push_back(gpu("h100", 132, 48, 50, 80));
  list.push_back(gpu("mi300x", 304, 64, 4, 192));
  list.push_back(gpu("arc-a770", 32, 64, 16, 16));
  list.push_back(gpu("8-units", 8, 32, 1, 4));
  return list;
}

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
Planned plan(Context& context, const Machine& machine, Pass pass, std::int64_t b,
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
        const auto shapes =
            engines::engine_entry(machine.engine).shapes(machine.facts, {.n = b}, nullptr, notes);
        const auto choice = linear::make_schedule(request, shapes, machine.facts, {});
        return Planned{choice.schedule,
                       linear::product_launches(request, *choice.engine, choice.schedule)};
      });
}

int run(double at_least) {
  Context context{{.host_only = true, .warning_handler = [](const std::string&) {}}};
  bool all_reach = true;
  std::puts("machine,pass,b,model,schedule,chunk_rows,v_range,launches,share,kernels");
  for (const Machine& machine : machines()) {
    for (const Pass pass : {Pass::forward, Pass::backward, Pass::value_and_grad}) {
      for (const Model& model : models) {
        for (const std::int64_t b : {64, 512, 2048, 4096, 8192, 16384}) {
          const auto [schedule, launches] = plan(context, machine, pass, b, model);
          std::int64_t times = 0;
          std::string kernels;
          for (const auto& launch : launches) {
            times += launch.times;
            kernels += fmt::format("{}{} {}x{} {:.0f}%", kernels.empty() ? "" : "; ", launch.kernel,
                                   launch.times, launch.groups, 100 * launch.share);
          }
          const double share = linear::machine_share(launches);
          fmt::print("{},{},{},{},{},{},{},{},{:.3f},{}\n", machine.name, to_string(pass), b,
                     model.name, schedule.name, schedule.chunk_rows, schedule.v_range, times, share,
                     kernels);
          if (machine.facts.is_cpu && b >= 512 && share < at_least) all_reach = false;
        }
      }
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
  CLI11_PARSE(app, argc, argv);
  try {
    return tessera::test::run(at_least);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "machine_shares: %s\n", error.what());
    return 2;
  }
}
