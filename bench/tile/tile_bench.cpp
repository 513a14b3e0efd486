// SPDX-License-Identifier: Apache-2.0
// The schedule-bound programs of jax_programs.py on the tile machine: how long the host takes for
// them, without and with race detection. Benchmarks are named PROGRAM/races:0 or 1; `per_step` is
// the time of one step or DMA.
#include <benchmark/benchmark.h>

#include <cmath>
#include <optional>

#include "bench/folders.hpp"
#include "tessera/tile/call.hpp"
#include "tessera/tile/ops.hpp"

using namespace tessera::tile;
using tessera::DType;
using tessera::MutableView;
using tessera::View;

namespace {

// As in jax_programs.py, whose programs these are.
constexpr std::int64_t n = 512;

/// jax_programs.numbers.
std::vector<float> numbers(std::size_t count, std::size_t salt) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = (static_cast<float>((37 * i + 5 * salt) % 17) - 8.0f) / 8.0f;
  return values;
}

MachineOptions options(const benchmark::State& state) {
  MachineOptions result;
  result.detect_races = state.range(0) != 0;
  // Blocks of 64 columns are no TPU's; the comparison is of equal steps.
  result.check_layout = false;
  // The interpreter knows no time.
  result.model_time = false;
  return result;
}

void done(benchmark::State& state, std::int64_t steps) {
  state.counters["per_step"] =
      benchmark::Counter(static_cast<double>(steps) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

struct Blocks {
  std::int64_t m, n, k;
};

PipelineSpec matmul_spec(const Blocks& b) {
  using enum Semantics;
  return {.grid = {n / b.m, n / b.n, n / b.k},
          .in = {BlockSpec::blocks({b.m, b.k}, [](auto& g) { return ix(g[0], g[2]); }),
                 BlockSpec::blocks({b.k, b.n}, [](auto& g) { return ix(g[2], g[1]); })},
          .out = {BlockSpec::blocks({b.m, b.n}, [](auto& g) { return ix(g[0], g[1]); })},
          .semantics = {parallel, parallel, arbitrary}};
}

void matmul_step(const Ref<float>& x, const Ref<float>& y, const Ref<float>& o) {
  dot(x, y, o, {.accumulate = program_id(2) > 0, .exact_f32 = true});
}

/// 512^3; cores 0: by call on one core, else by emit_pipeline.
void matmul(benchmark::State& state, Blocks blocks, int cores) {
  const auto x = numbers(n * n, 0);
  const auto y = numbers(n * n, 1);
  std::vector<float> o(n * n);
  const auto spec = matmul_spec(blocks);
  for (auto _ : state) {
    Machine machine(options(state));
    const auto a = machine.array<float>("x", View::host(x.data(), DType::f32, {n, n}));
    const auto b = machine.array<float>("y", View::host(y.data(), DType::f32, {n, n}));
    const auto c = machine.array<float>("o", MutableView::host(o.data(), DType::f32, {n, n}));
    if (cores == 0) {
      call(machine, "matmul", {.grid = spec.grid, .in = spec.in, .out = spec.out}, matmul_step)(
          a, b, c);
    } else {
      kernel(machine, "matmul", tensorcore_mesh(machine, cores), [&](auto xs, auto ys, auto os) {
        PipelineSpec shared = spec;
        shared.over_cores = cores > 1;
        emit_pipeline(shared, matmul_step, xs, ys, os);
      })(a, b, c);
    }
  }
  done(state, (n / blocks.m) * (n / blocks.n) * (n / blocks.k));
  for (const std::size_t at : {std::size_t{0}, std::size_t{70000}, o.size() - 1}) {
    double sum = 0;
    for (std::size_t k = 0; k < n; ++k)
      sum += static_cast<double>(x[at / n * n + k]) * static_cast<double>(y[k * n + at % n]);
    if (std::abs(sum - static_cast<double>(o[at])) > 1e-3) state.SkipWithError("wrong product");
  }
}

void add(benchmark::State& state) {
  const auto x = numbers(2048 * 128, 0);
  std::vector<float> o(x.size());
  const auto rows = BlockSpec::blocks({8, 128}, [](auto& g) { return ix(g[0], 0); });
  for (auto _ : state) {
    Machine machine(options(state));
    call(machine, "add", {.grid = {256}, .in = {rows}, .out = {rows}},
         [](auto in, auto out) {
           map(
               out, [](float v) { return v + 1; }, in);
         })(machine.array<float>("x", View::host(x.data(), DType::f32, {2048, 128})),
            machine.array<float>("o", MutableView::host(o.data(), DType::f32, {2048, 128})));
  }
  done(state, 256);
  if (o.back() != x.back() + 1) state.SkipWithError("wrong sum");
}

void copies(benchmark::State& state) {
  const auto x = numbers(2048 * 128, 0);
  std::vector<float> o(x.size());
  for (auto _ : state) {
    Machine machine(options(state));
    kernel(
        machine, "copies", tensorcore_mesh(machine, 1),
        [](auto from, auto to, auto scratch, auto arrived) {
          for (int i = 0; i < 256; ++i) {
            async_copy(from.at(ds(8 * i, 8)), scratch, arrived).wait();
            async_copy(scratch, to.at(ds(8 * i, 8)), arrived).wait();
          }
        },
        Vmem<float>{{8, 128}, "scratch"}, DmaSem{"arrived"})(
        machine.array<float>("x", View::host(x.data(), DType::f32, {2048, 128})),
        machine.array<float>("o", MutableView::host(o.data(), DType::f32, {2048, 128})));
  }
  done(state, 512);
  if (o != x) state.SkipWithError("not copied");
}

constexpr Blocks cube{64, 64, 64};

BENCHMARK_CAPTURE(matmul, call, cube, 0)->ArgName("races")->Arg(0)->Arg(1)->UseRealTime();
BENCHMARK_CAPTURE(matmul, pipeline_1, cube, 1)->ArgName("races")->Arg(0)->Arg(1)->UseRealTime();
BENCHMARK_CAPTURE(matmul, pipeline_2, cube, 2)->ArgName("races")->Arg(0)->Arg(1)->UseRealTime();
BENCHMARK_CAPTURE(matmul, call_16, (Blocks{16, 128, 128}), 0)
    ->ArgName("races")
    ->Arg(0)
    ->Arg(1)
    ->UseRealTime();
BENCHMARK(add)->ArgName("races")->Arg(0)->Arg(1)->UseRealTime();
BENCHMARK(copies)->ArgName("races")->Arg(0)->Arg(1)->UseRealTime();

}  // namespace

// As BENCHMARK_MAIN, without the folder of this program in what it writes.
int main(int argc, char** argv) {
  argv[0] = tessera::bench::last_part(argv[0]);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
