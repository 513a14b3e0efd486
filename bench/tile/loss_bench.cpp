// SPDX-License-Identifier: Apache-2.0
// The fused loss on the tile machine beside the bare multiplications that it makes
// (bare_products.hpp), which are timed before and after every call. Benchmarks are named
// loss/PASS/CHIP/TYPE/BLOCKS/threads:N/races:0 or 1 (threads 0: all), and give
//   seconds, gflops   of the fastest call
//   bare_seconds      of the fastest bare multiplications with as many threads
//   ratio             of the two
//   bracketed_ratio   of a call to the mean of the two next to it, the median of all
#include <benchmark/benchmark.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "bench/tile/bare_products.hpp"
#include "host/linear_cross_entropy/tile/kernel.hpp"

namespace lce = tessera::linear_cross_entropy;
namespace loss = tessera::linear_cross_entropy::tpu_tile;
namespace tile = tessera::tile;
using tessera::bf16;
using tessera::DType;
using tessera::MutableView;
using tessera::Pass;
using tessera::View;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// jax_programs.loss_arrays, of any extents.
struct Problem {
  std::int64_t b, h, v;
  std::vector<float> x, w;
  std::vector<bf16> x16, w16;
  std::vector<std::int32_t> labels;
  std::vector<float> max, sum, label_logit;  // forward
  std::vector<float> gain, hit, dx, dw;      // backward, of the mean loss

  Problem(std::int64_t rows, std::int64_t depth, std::int64_t columns)
      : b(rows), h(depth), v(columns), x(numbers(b * h, 0)), w(numbers(h * v, 1)) {
    for (std::int64_t i = 0; i < b; ++i) labels.push_back(static_cast<std::int32_t>(i * 31 % v));
    const auto size = static_cast<std::size_t>(b);
    for (auto* row : {&max, &sum, &label_logit, &gain, &hit}) row->resize(size);
  }
  static std::vector<float> numbers(std::int64_t count, std::int64_t salt) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      const auto number = static_cast<float>((37 * i + 5 * salt) % 17) - 8.0f;
      values[static_cast<std::size_t>(i)] = number / 64.0f;
    }
    return values;
  }
  double logit(std::int64_t row, std::int64_t column) const {
    double total = 0;
    for (std::int64_t k = 0; k < h; ++k) {
      total += static_cast<double>(x[static_cast<std::size_t>(row * h + k)]) *
               static_cast<double>(w[static_cast<std::size_t>(k * v + column)]);
    }
    return total;
  }
  double dz(std::int64_t row, std::int64_t column) const {
    const auto r = static_cast<std::size_t>(row);
    const double lse = static_cast<double>(max[r]) + std::log(static_cast<double>(sum[r]));
    const double p = std::exp(logit(row, column) - lse);
    return (p - (labels[r] == column ? 1.0 : 0.0)) / static_cast<double>(b);
  }
};

struct Setting {
  Pass pass = Pass::forward;
  std::string chip{};
  DType type = DType::f32;
  lce::BlockSizes blocks{};
  int threads = 0;
  bool races = false;
};

class Loss {
 public:
  Loss(Problem& problem, const Setting& setting) : p_(problem), s_(setting) {
    if (s_.type == DType::bf16) {  // what numbers() gives is exact in bf16
      p_.x16.reserve(p_.x.size());
      p_.w16.reserve(p_.w.size());
      for (const float value : p_.x) p_.x16.emplace_back(value);
      for (const float value : p_.w) p_.w16.emplace_back(value);
    }
    if (s_.pass == Pass::forward) return;
    forward();
    for (std::size_t i = 0; i < p_.gain.size(); ++i) {
      p_.hit[i] = 1.0f / static_cast<float>(p_.b);
      p_.gain[i] = p_.hit[i] / p_.sum[i];
    }
    p_.dx.resize(p_.x.size() * static_cast<std::size_t>(shares()));
    p_.dw.resize(p_.w.size());
  }

  void run() { s_.pass == Pass::forward ? forward() : backward(); }

  /// What is wrong with the results, or null.
  const char* judge() const {
    for (const std::int64_t row : {std::int64_t{0}, p_.b / 2 + 3, p_.b - 1}) {
      double lse = 0;
      for (std::int64_t c = 0; c < p_.v; ++c) lse += std::exp(p_.logit(row, c));
      const auto r = static_cast<std::size_t>(row);
      const double got = static_cast<double>(p_.max[r]) + std::log(static_cast<double>(p_.sum[r]));
      if (!(std::abs(std::log(lse) - got) < 1e-4)) return "wrong log-sum-exp";
      const double label = p_.logit(row, p_.labels[r]);
      if (!(std::abs(label - static_cast<double>(p_.label_logit[r])) < 1e-4)) return "wrong logit";
    }
    if (s_.pass == Pass::forward) return nullptr;
    const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    const std::int64_t row = p_.b / 3, k = p_.h - 5, column = p_.v - 3;
    double dx = 0, dw = 0, got = 0;
    for (std::int64_t c = 0; c < p_.v; ++c) {
      dx += p_.dz(row, c) * static_cast<double>(p_.w[at(k * p_.v + c)]);
    }
    for (std::int64_t i = 0; i < p_.b; ++i) {
      dw += static_cast<double>(p_.x[at(i * p_.h + k)]) * p_.dz(i, column);
    }
    for (std::int64_t share = 0; share < shares(); ++share) {
      got += static_cast<double>(p_.dx[at((share * p_.b + row) * p_.h + k)]);
    }
    if (!(std::abs(got - dx) < 1e-6)) return "wrong dx";
    if (!(std::abs(static_cast<double>(p_.dw[at(k * p_.v + column)]) - dw) < 1e-6))
      return "wrong dw";
    return nullptr;
  }

  std::int64_t shares() const { return loss::splits(tile::find_chip(s_.chip), kernel()); }
  std::int64_t operand_bytes() const {
    const auto element = static_cast<std::int64_t>(s_.type == DType::f32 ? 4 : 2);
    const std::int64_t x_size = p_.b * p_.h, w_size = p_.h * p_.v;
    return (x_size + w_size) * element +
           (s_.pass == Pass::forward ? 0 : (shares() * x_size + w_size) * 4);
  }
  /// What the last run's kernel held at a time, on all cores.
  std::int64_t vmem_bytes() const {
    const auto& chip = tile::find_chip(s_.chip);
    return vmem_ * (chip.megacore ? chip.cores : 1);
  }
  /// Of the operands that the kernel does not read.
  void drop_others() {
    if (s_.type == DType::f32) return;
    p_.x = std::vector<float>();  // {} would keep the memory
    p_.w = std::vector<float>();
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
  }

 private:
  loss::Kernel kernel() const { return {.b = p_.b, .h = p_.h, .v = p_.v, .blocks = s_.blocks}; }
  tile::Machine machine() const {
    return tile::Machine({.chip = tile::find_chip(s_.chip),
                          .detect_races = s_.races,
                          .threads = s_.threads,
                          .model_time = false});
  }
  loss::Matrix matrix(tile::Machine& m, const char* name, const std::vector<float>& wide,
                      const std::vector<bf16>& narrow, std::int64_t rows, std::int64_t columns) {
    if (s_.type == DType::f32) {
      return m.array<float>(name, View::host(wide.data(), DType::f32, {rows, columns}));
    }
    return m.array<bf16>(name, View::host(narrow.data(), DType::bf16, {rows, columns}));
  }
  static loss::Floats floats(tile::Machine& m, const char* name, std::vector<float>& values) {
    return m.array<float>(name, MutableView::host(values.data(), DType::f32,
                                                  {static_cast<std::int64_t>(values.size())}));
  }
  loss::Integers labels(tile::Machine& m) {
    return m.array<std::int32_t>("labels", View::host(p_.labels.data(), DType::i32, {p_.b}));
  }

  void forward() {
    auto m = machine();
    loss::forward(m, kernel(),
                  {.x = matrix(m, "x", p_.x, p_.x16, p_.b, p_.h),
                   .w = matrix(m, "w", p_.w, p_.w16, p_.h, p_.v),
                   .labels = labels(m),
                   .bias = {},
                   .class_weight = {},
                   .max = floats(m, "max", p_.max),
                   .sum = floats(m, "sum", p_.sum),
                   .label_logit = floats(m, "label_logit", p_.label_logit),
                   .class_logit = {},
                   .exp_logit = {},
                   .argmax = {}});
    vmem_ = m.report().vmem_high_water_bytes;
  }
  void backward() {
    auto m = machine();
    loss::backward(
        m, kernel(),
        {.x = matrix(m, "x", p_.x, p_.x16, p_.b, p_.h),
         .w = matrix(m, "w", p_.w, p_.w16, p_.h, p_.v),
         .labels = labels(m),
         .bias = {},
         .class_weight = {},
         .max = floats(m, "max", p_.max),
         .gain = floats(m, "gain", p_.gain),
         .hit = floats(m, "hit", p_.hit),
         .smooth = {},
         .grad_x = m.array<float>(
             "dx", MutableView::host(p_.dx.data(), DType::f32, {shares(), p_.b, p_.h})),
         .grad_w = m.array<float>("dw", MutableView::host(p_.dw.data(), DType::f32, {p_.h, p_.v})),
         .grad_bias = {}});
    vmem_ = m.report().vmem_high_water_bytes;
  }

  Problem& p_;
  Setting s_;
  std::int64_t vmem_ = 0;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

/// Times `run` between two runs of the bare multiplications, again and again.
void beside_bare(benchmark::State& state, const Problem& p, Pass pass, int threads,
                 const std::function<void()>& run) {
  tessera::bench::BareProducts bare(p.b, p.h, p.v, threads);
  std::vector<float> dx(pass == Pass::forward ? 0 : p.x.size());
  std::vector<float> dw(pass == Pass::forward ? 0 : p.w.size());
  const auto multiply = [&] {
    const double start = now();
    if (pass == Pass::forward) {
      bare.forward(p.x.data(), p.w.data());
    } else {
      bare.backward(p.x.data(), p.w.data(), dx.data(), dw.data());
    }
    benchmark::DoNotOptimize(bare.logits());
    return now() - start;
  };
  multiply();
  double best = 1e300, best_bare = 1e300;
  std::vector<double> ratios;
  for (auto _ : state) {
    const double before = multiply();
    const double start = now();
    run();
    const double taken = now() - start;
    const double after = multiply();
    state.SetIterationTime(taken);
    best = std::min(best, taken);
    best_bare = std::min({best_bare, before, after});
    ratios.push_back(2 * taken / (before + after));
  }
  const double flops = (pass == Pass::forward ? 2.0 : 6.0) * static_cast<double>(p.b) *
                       static_cast<double>(p.h) * static_cast<double>(p.v);
  state.counters["seconds"] = best;
  state.counters["per_step"] = best;  // compare.py: of a call
  state.counters["gflops"] = flops / best * 1e-9;
  state.counters["bare_seconds"] = best_bare;
  state.counters["bare_gflops"] = flops / best_bare * 1e-9;
  state.counters["ratio"] = best / best_bare;
  state.counters["bracketed_ratio"] = median(ratios);
}

void through_the_machine(benchmark::State& state, Setting setting) {
  setting.threads = static_cast<int>(state.range(0));
  setting.races = state.range(1) != 0;
  Problem problem(1024, 512, 4096);
  Loss loss(problem, setting);
  beside_bare(state, problem, setting.pass, setting.threads, [&] { loss.run(); });
  if (const char* wrong = loss.judge()) state.SkipWithError(wrong);
}

/// As a user calls it: on a v5p, with race checks and all threads.
void through_the_api(benchmark::State& state, Pass pass) {
  Problem p(1024, 512, 4096);
  tessera::Context context({.device = "v5p", .warning_handler = [](const std::string&) {}});
  lce::Inputs inputs;
  inputs.x = View::host(p.x.data(), DType::f32, {p.b, p.h});
  inputs.w = View::host(p.w.data(), DType::f32, {p.h, p.v});
  inputs.labels = View::host(p.labels.data(), DType::i32, {p.b});
  lce::ExecutionOptions execution;
  execution.implementation = "tpu_tile";
  execution.block_sizes = lce::BlockSizes{1024, 512, 2048};
  std::vector<float> lse(p.labels.size()), dx(p.x.size()), dw(p.w.size());
  lce::forward(context, inputs, {.lse = MutableView::host(lse.data(), DType::f32, {p.b})}, {},
               execution);
  if (pass == Pass::backward) inputs.lse = View::host(lse.data(), DType::f32, {p.b});
  float value = 0;
  beside_bare(state, p, pass, 0, [&] {
    if (pass == Pass::forward) {
      lce::forward(context, inputs, {.loss = MutableView::host(&value, DType::f32, {})}, {},
                   execution);
    } else {
      lce::backward(context, inputs,
                    {.grad_x = MutableView::host(dx.data(), DType::f32, {p.b, p.h}),
                     .grad_w = MutableView::host(dw.data(), DType::f32, {p.h, p.v})},
                    {}, execution);
    }
  });
}

/// VmRSS, or VmHWM: the largest since the last call of reset_peak.
std::int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

/// memory/PASS/CHIP/TYPE: what one call needs beside its operands (Linux). peak_bytes is the whole
/// process's, idle_bytes what it holds before the call without the operands.
void memory(benchmark::State& state, Setting setting) {
  const std::int64_t none = status_bytes("VmRSS");
  Problem problem(2048, 1024, 8192);
  Loss loss(problem, setting);
  loss.drop_others();
  reset_peak();
  for (auto _ : state) loss.run();
  const auto operands = static_cast<double>(loss.operand_bytes());
  const auto peak = static_cast<double>(status_bytes("VmHWM"));
  state.counters["operand_bytes"] = operands;
  state.counters["vmem_bytes"] = static_cast<double>(loss.vmem_bytes());
  state.counters["idle_bytes"] = static_cast<double>(none);
  state.counters["peak_bytes"] = peak;
  state.counters["peak_over_operands"] = peak / operands;
}

const bool registered = [] {
  const lce::BlockSizes all_blocks[] = {{1024, 512, 2048}, {1024, 128, 256}};
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const std::string pass_name = pass == Pass::forward ? "forward" : "backward";
    for (const std::string chip : {"v5e", "v5p"}) {
      for (const DType type : {DType::f32, DType::bf16}) {
        const std::string name = pass_name + "/" + chip + "/" + tessera::to_string(type);
        for (const auto& blocks : all_blocks) {
          const std::string text = std::to_string(blocks.b_block_size) + "_" +
                                   std::to_string(blocks.h_block_size) + "_" +
                                   std::to_string(blocks.v_block_size);
          benchmark::RegisterBenchmark(("loss/" + name + "/" + text).c_str(), through_the_machine,
                                       Setting{pass, chip, type, blocks})
              ->ArgNames({"threads", "races"})
              ->ArgsProduct({{1, 0}, {0, 1}})
              ->UseManualTime();
        }
        benchmark::RegisterBenchmark(("memory/" + name).c_str(), memory,
                                     Setting{pass, chip, type, all_blocks[0]})
            ->Iterations(1);
      }
    }
    benchmark::RegisterBenchmark(("loss/api/" + pass_name).c_str(), through_the_api, pass)
        ->UseManualTime();
  }
  return true;
}();

}  // namespace
