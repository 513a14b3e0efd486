// SPDX-License-Identifier: Apache-2.0
#include "bench/row_measurement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "bench/operator.hpp"
#include "bench/profile.hpp"

namespace tessera::bench {
namespace {

/// Beyond the last cache of any processor so far, for the most part.
constexpr std::int64_t default_rotation = std::int64_t{256} << 20;
/// Tiny problems would need thousands of sets; a call of theirs finds its arrays in a cache all the
/// same.
constexpr std::int64_t most_sets = 16;

std::string join(const std::vector<NamedValue>& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

/// What a call at least takes on a machine of these peaks, and which of them says so.
struct Bound {
  double seconds = 0.0;
  const char* by = "";
};
Bound bound_of(Peaks& peaks, const Row& row, const CostEstimate& cost, peaks::Kind multiply) {
  // A loss is a number; what others write is as large as what they read.
  const bool copies = row.gradients() || !row.problem.op->has_labels();
  const auto memory = copies ? peaks::Kind::copy : peaks::Kind::read;
  Bound bound;
  const auto consider = [&](double work, peaks::Kind kind, const char* name) {
    const double seconds = work / peaks.best(kind);
    if (seconds > bound.seconds) bound = {seconds, name};
  };
  consider(static_cast<double>(cost.flops), multiply, "multiplying");
  if (row.in_place) {
    // One update of every logit, and where its own statistics come first one look before it.
    const auto bytes = static_cast<double>(Arrays::bytes(row));
    const double update = 2.0 * bytes / peaks.best(peaks::Kind::read_modify_write);
    const double look = row.values() ? bytes / peaks.best(peaks::Kind::read) : 0.0;
    if (update + look > bound.seconds) bound = {update + look, "memory"};
  } else {
    consider(static_cast<double>(cost.bytes_ideal), memory, "memory");
  }
  consider(static_cast<double>(cost.transcendentals), peaks::Kind::exp, "exp");
  return bound;
}

/// What the row's calls write.
Outcome fetch(const Row& row, const Arrays& arrays) {
  Outcome outcome;
  const auto add = [&](const char* name) {
    outcome.set(name, arrays.fetch(arrays.views().outputs[name]));
  };
  const auto& op = *row.problem.op;
  if (row.values()) add(op.result(row.problem).name);
  if (row.pass == Pass::forward) {
    for (const auto& array : op.saved(row.problem)) add(array.name);
  }
  for (const auto& gradient : op.gradients(row.problem)) {
    if (row.forms(gradient)) add(gradient.name);
  }
  return outcome;
}

bool same_bits(const HostTensor& a, const HostTensor& b) {
  return std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * size_of(a.dtype())) ==
         0;
}

bool same_bits(const Outcome& a, const Outcome& b) {
  return std::all_of(a.begin(), a.end(),
                     [&](const auto& each) { return same_bits(each.second, b[each.first]); });
}

/// The median of the time of one call over that of the exact one right before it: what a shared
/// machine does in between is then in both.
double time_of_exact(int samples, const std::function<void(std::int64_t)>& filtered,
                     const std::function<void(std::int64_t)>& exact) {
  std::vector<double> ratios;
  for (int i = 0; i < samples; ++i) {
    const double start = now();
    exact(i);
    const double between = now();
    filtered(i);
    ratios.push_back((now() - between) / (between - start));
  }
  return quantile(std::move(ratios), 0.5);
}

}  // namespace

RowMeasurement::RowMeasurement(Context context, const Options& options, const Data& data,
                               Peaks& peaks, const Row& row)
    : context_(std::move(context)),
      options_(options),
      data_(data),
      peaks_(peaks),
      row_(row),
      multiply_(peaks::multiplication(peaks.meter(), row.problem.x, row.problem.w)) {
  const bool on_device =
      row.implementation.starts_with("opencl") && !context_.device_info().shares_host_memory;
  const std::int64_t rotation = options.rotate_bytes.value_or(default_rotation);
  const auto count = std::clamp<std::int64_t>(
      rotation / std::max<std::int64_t>(Arrays::bytes(row), 1), 1, most_sets);
  for (std::int64_t i = 0; i < count; ++i) {
    arrays_.push_back(std::make_unique<Arrays>(context_, data, row, on_device, i == 0));
  }
  if (row.implementation == eigen_gemm) products_.emplace(row, context_.threads());
}

void RowMeasurement::call_once(std::int64_t turn) {
  if (is_gemm()) {
    products_->run(arrays_of(turn).views());
  } else {
    dispatch_ = row_.problem.op->call(context_, row_, options_, arrays_of(turn).views());
  }
}

void RowMeasurement::first_call() {
  const auto& op = *row_.problem.op;
  // `plan` compiles what the call needs. It goes before all other calls, since forward compiles
  // some of the programs of backward.
  if (row_.implementation.starts_with("opencl")) {
    const double start = now();
    op.compile(context_, row_, options_, arrays_of(0).views());
    first_.compile_seconds = now() - start;
  }
  if (row_.pass == Pass::backward && !is_gemm()) {
    Row forward = row_;
    forward.pass = Pass::forward;
    for (const auto& a : arrays_) op.call(context_, forward, options_, a->views());
  }
  const double start = now();
  call_once(0);
  first_.seconds = first_.compile_seconds + now() - start;
  for (const auto& a : arrays_) a->poison();
}

double RowMeasurement::timed_call() {
  const std::int64_t turn = turns_++;
  if (row_.in_place) arrays_of(turn).restore_inputs(data_);
  const double start = now();
  call_once(turn);
  return now() - start;
}

CallTimes RowMeasurement::profiled_call() {
  const Profile recording(context_);
  CallTimes times{timed_call()};
  for (const auto& row : recording.kernels()) {
    if (row.kind == ProfileKind::kernel) {
      times.kernels[row.name] += 1e-9 * static_cast<double>(row.total_ns);
    }
  }
  return times;
}

void RowMeasurement::take_samples(double min_seconds) {
  // In place, every call needs its inputs back.
  std::function<void(std::int64_t)> prepare;
  if (row_.in_place) {
    prepare = [this](std::int64_t turn) { arrays_of(turn).restore_inputs(data_); };
  }
  const auto bracket = row_.problem.op->multiplies() ? multiply_
                       : row_.in_place               ? peaks::Kind::read_modify_write
                       : row_.gradients()            ? peaks::Kind::copy
                                                     : peaks::Kind::read;
  const Patience patience{options_.samples, min_seconds, options_.max_seconds};
  timing_ = measure(
      peaks_, bracket, patience,
      [this](std::int64_t turn) {
        call_once(turn);
        ++turns_;
      },
      prepare, row_.in_place ? static_cast<std::int64_t>(sets()) : most_repeats);
}

void RowMeasurement::check() {
  if (is_gemm()) {
    deviation_ = judge_products(data_, products_->logits());
  } else {
    // The first set is judged, the others must be bitwise the same.
    const Outcome outcome = fetch(row_, *arrays_.front());
    deviation_ =
        row_.problem.op->judge(data_, outcome, static_cast<double>(row_.gradient_filter_eps));
    for (std::int64_t i = 1; i < std::min(static_cast<std::int64_t>(sets()), turns_); ++i) {
      if (!same_bits(outcome, fetch(row_, arrays_of(i)))) {
        throw WrongResults("two calls on the same inputs differ in their bits");
      }
    }
    if (row_.gradient_filter_eps > 0.0f) measure_filter(outcome);
  }
  if (!(deviation_.worst <= 1.0)) throw WrongResults(deviation_.where);
}

void RowMeasurement::measure_filter(const Outcome& outcome) {
  Row exact = row_;
  exact.gradient_filter_eps = 0.0f;
  const auto& op = *row_.problem.op;
  op.call(context_, exact, options_, arrays_.front()->views());
  const Outcome exact_outcome = fetch(row_, *arrays_.front());
  for (const auto& gradient : op.gradients(row_.problem)) {
    filter_errors_.set(gradient.name,
                       compare_gradients(outcome[gradient.name], exact_outcome[gradient.name]));
  }
  filter_time_ = time_of_exact(
      options_.samples, [&](std::int64_t turn) { call_once(turn); },
      [&](std::int64_t turn) { op.call(context_, exact, options_, arrays_of(turn).views()); });
}

void report_timing(benchmark::State& state, const Timing& timing, const FirstCall& first) {
  for (auto _ : state) state.SetIterationTime(timing.median);
  auto& c = state.counters;
  c["first_call_seconds"] = first.seconds;
  c["compile_seconds"] = first.compile_seconds;
  c["median_seconds"] = timing.median;
  c["spread"] = timing.spread;
  c["samples"] = timing.samples;
  c["samples_counted"] = timing.counted;
  c["noisy"] = timing.noisy ? 1 : 0;
}

void RowMeasurement::report(benchmark::State& state) {
  report_timing(state, timing_, first_);
  add_cost_counters(state);
  add_check_counters(state);
  const auto tokens = row_.problem.op->tokens_of(row_.problem.shape);
  state.counters["tokens_per_second"] = static_cast<double>(tokens) / timing_.median;
}

CostEstimate RowMeasurement::cost() {
  Row costed = row_;
  if (is_gemm()) costed.implementation = "eigen";
  return row_.problem.op->cost_of(context_, costed, options_);
}

std::string RowMeasurement::profile(const std::string& path) {
  if (is_gemm()) return row_.name() + "\n    no profile: products alone are no calls\n";
  constexpr int calls = 3;
  const Profile recording(context_);
  double seconds = 0.0;
  for (int i = 0; i < calls; ++i) seconds += timed_call();
  const auto plan = row_.problem.op->compile(context_, row_, options_, arrays_of(0).views());
  recording.write(path);
  const Work work = work_of(row_, plan, cost());
  return row_.name() + "\n" +
         profile_table(recording, {calls, seconds, context_.threads()}, work, peaks_, multiply_) +
         "    trace: " + path + "\n";
}

/// What the row is credited with, against the peaks; and the label, which names its bound.
void RowMeasurement::add_cost_counters(benchmark::State& state) {
  CostEstimate cost = this->cost();
  std::int64_t extra = dispatch_.workspace_bytes + dispatch_.staged_bytes;
  if (is_gemm()) {
    // The logits are written once and read by each gradient's product.
    extra = products_->extra_bytes();
    const auto gradients = row_.problem.op->gradients(row_.problem);
    const auto readers = std::count_if(gradients.begin(), gradients.end(),
                                       [&](const auto& gradient) { return row_.forms(gradient); });
    cost.bytes_moved = cost.bytes_ideal + extra * (1 + readers);
    cost.executed_flops = cost.flops;
    cost.transcendentals = 0;
  }
  const double flops = static_cast<double>(cost.flops);
  const double per_second = flops / timing_.median;
  const double peak = peaks_.best(multiply_);
  auto& c = state.counters;
  c["flops"] = flops;
  c["flops_per_second"] = per_second;
  c["peak_flops_per_second"] = peak;
  c["fraction_of_peak"] = per_second / peak;
  // Against the peaks that bracket each sample.
  c["fraction_of_bracket"] =
      (row_.problem.op->multiplies() ? flops : static_cast<double>(cost.bytes_ideal)) /
      timing_.median_work;
  c["executed_flops"] = static_cast<double>(cost.executed_flops);
  c["transcendentals"] = static_cast<double>(cost.transcendentals);
  c["bytes_ideal"] = static_cast<double>(cost.bytes_ideal);
  c["bytes_moved"] = static_cast<double>(cost.bytes_moved);
  c["extra_bytes_peak"] = static_cast<double>(extra);
  const std::string what =
      is_gemm() ? std::string("products only; logits in memory")
                : fmt::format("{}; {} ({}); {}", dispatch_.schedule, join(dispatch_.block_sizes),
                              to_string(dispatch_.block_source), join(dispatch_.knobs));
  std::string bound_by;
  if (options_.lists_peaks) {
    const Bound bound = bound_of(peaks_, row_, cost, multiply_);
    c["fraction_of_bound"] = bound.seconds / timing_.median;
    bound_by = fmt::format("; bound by {}", bound.by);
  }
  state.SetLabel(fmt::format("{}{}{}", what, bound_by,
                             timing_.noisy ? fmt::format("; noisy: {} of {} samples count",
                                                         timing_.counted, timing_.samples)
                                           : ""));
}

void report_deviation(benchmark::State& state, const Deviation& deviation) {
  auto& c = state.counters;
  c["max_abs_deviation"] = deviation.max_abs;
  c["mean_abs_deviation"] = deviation.mean_abs();
  c["deviation_in_tolerances"] = deviation.worst;
}

void RowMeasurement::add_check_counters(benchmark::State& state) const {
  report_deviation(state, deviation_);
  auto& c = state.counters;
  if (filter_errors_.begin() == filter_errors_.end()) return;
  for (const auto& [name, error] : filter_errors_) {
    c[name + "_filter_max"] = error.max;
    c[name + "_filter_norm"] = error.norm;
  }
  c["filter_time"] = filter_time_;
}

}  // namespace tessera::bench
