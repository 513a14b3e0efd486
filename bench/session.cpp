// SPDX-License-Identifier: Apache-2.0
#include "bench/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "bench/calls.hpp"
#include "bench/check.hpp"
#include "bench/eigen_gemm.hpp"
#include "bench/folders.hpp"
#include "programs/report.hpp"

namespace tessera::bench {
namespace {

/// Beyond the last cache of any processor so far, for the most part.
constexpr std::int64_t default_rotation = std::int64_t{256} << 20;
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
  const auto memory = row.gradients() ? peaks::Kind::copy : peaks::Kind::read;
  Bound bound;
  const auto consider = [&](double work, peaks::Kind kind, const char* name) {
    const double seconds = work / peaks.best(kind);
    if (seconds > bound.seconds) bound = {seconds, name};
  };
  consider(static_cast<double>(cost.flops), multiply, "multiplying");
  if (row.in_place) {
    // One update of every logit, and where its own statistics come first one look before it.
    const auto logits = static_cast<double>(Arrays::bytes(row));
    const double update = 2.0 * logits / peaks.best(peaks::Kind::read_modify_write);
    const double look = row.values() ? logits / peaks.best(peaks::Kind::read) : 0.0;
    if (update + look > bound.seconds) bound = {update + look, "memory"};
  } else {
    consider(static_cast<double>(cost.bytes_ideal), memory, "memory");
  }
  consider(static_cast<double>(cost.transcendentals), peaks::Kind::exp, "exp");
  return bound;
}

Outcome fetch(const Row& row, const Arrays& a) {
  Outcome o;
  if (row.values()) o.loss = a.fetch(a.loss);
  if (row.pass == Pass::forward) o.statistics = a.fetch(a.statistics);
  if (a.grad_x) o.grad_x = a.fetch(a.grad_x);
  if (a.grad_w) o.grad_w = a.fetch(a.grad_w);
  if (a.grad_logits) o.grad_logits = a.fetch(a.grad_logits);
  return o;
}

bool same_bits(const HostTensor& a, const HostTensor& b) {
  return std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * size_of(a.dtype())) ==
         0;
}

bool same_bits(const Outcome& a, const Outcome& b) {
  return same_bits(a.loss, b.loss) && same_bits(a.statistics, b.statistics) &&
         same_bits(a.grad_x, b.grad_x) && same_bits(a.grad_w, b.grad_w) &&
         same_bits(a.grad_logits, b.grad_logits);
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
  const auto middle = ratios.begin() + samples / 2;
  std::nth_element(ratios.begin(), middle, ratios.end());
  return *middle;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace

Session::Session(const Options& options, double min_seconds)
    : options_(options), min_seconds_(min_seconds), context_(make_context()) {}

Context Session::make_context() const {
  ContextOptions o;
  o.device = options_.device;
  o.threads = static_cast<int>(options_.threads.value_or(0));
  o.warning_handler = [](const std::string&) {};  // a row says itself what ran
  o.host_only = options_.device.empty() &&
                std::none_of(options_.implementations.begin(), options_.implementations.end(),
                             [](const auto& name) { return name.starts_with("opencl"); });
  return Context(o);
}

Peaks& Session::peaks_of(const std::string& implementation) {
  if (implementation.starts_with("opencl")) {
    if (!device_peaks_) device_peaks_ = std::make_unique<Peaks>(peaks::device_meter(context_));
    return *device_peaks_;
  }
  if (!host_peaks_) host_peaks_ = std::make_unique<Peaks>(peaks::host_meter(context_.threads()));
  return *host_peaks_;
}

const Data& Session::data_of(const ProblemKey& key) {
  if (!data_ || data_->key != key) {
    data_.reset();  // two large problems at a time may not fit
    data_ = make_data(key, context_.threads());
  }
  return *data_;
}

std::vector<Session::Planned> Session::plan() {
  std::vector<Planned> rows;
  std::vector<std::string> names;
  const auto add = [&](Planned planned) {
    const auto name = planned.row.name();
    if (std::find(names.begin(), names.end(), name) != names.end()) return;
    names.push_back(name);
    rows.push_back(std::move(planned));
  };
  const auto add_implementation = [&](Row row, const std::string& name) {
    row.implementation = name;
    if (name == eigen_gemm) return add({row, EigenGemm::why_not(row)});
    if (name != "opencl") return add({row, why_not(context_, row, options_).value_or("")});
    // A family's name means its first member that runs, as in the library's own order.
    std::string reasons;
    for (const auto& info : implementations_of(row.problem.op)) {
      if (!info.name.starts_with("opencl")) continue;
      row.implementation = info.name;
      const auto reason = why_not(context_, row, options_);
      if (!reason) return add({row, ""});
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", info.name, *reason);
    }
    row.implementation = name;
    add({row, reasons.empty() ? "no such implementation" : reasons});
  };
  for (const auto op : options_.operators) {
    for (const auto& shape : options_.shapes) {
      for (const auto& [x, w] : options_.dtypes) {
        for (const bool vh : options_.layouts) {
          for (const auto pass : options_.passes) {
            for (const auto& name : options_.implementations) {
              Row row;
              row.problem = {op, x, w, vh, shape, options_.ignored, options_.trained};
              if (!row.linear())
                row.problem.w = x, row.problem.w_is_vh = true, row.problem.trained = false;
              if (!row.linear()) row.problem.shape.h = 0;
              row.pass = pass;
              row.grad_x = options_.grad_x, row.grad_w = options_.grad_w;
              if (row.linear() && row.gradients()) {
                row.gradient_filter_eps = options_.gradient_filter_eps;
              }
              row.in_place = options_.in_place && !row.linear() && row.gradients();
              add_implementation(row, name);
            }
          }
        }
      }
    }
  }
  return rows;
}

void Session::run(benchmark::State& state, const Planned& planned) {
  if (!planned.refusal.empty()) {
    state.SkipWithError(("refused: " + planned.refusal).c_str());
    return;
  }
  try {
    measure_row(state, planned.row);
  } catch (const std::exception& error) {
    failed_ = true;
    state.SkipWithError(error.what());
  }
}

void Session::measure_row(benchmark::State& state, const Row& row) {
  const Data& data = data_of(row.problem);
  Peaks& peaks = peaks_of(row.implementation);
  const bool gemm = row.implementation == eigen_gemm;
  // A fresh context has compiled nothing and pooled nothing.
  Context context = make_context();
  const bool on_device =
      row.implementation.starts_with("opencl") && !context.device_info().shares_host_memory;
  const std::int64_t rotation = options_.rotate_bytes.value_or(default_rotation);
  const auto sets = std::clamp<std::int64_t>(
      rotation / std::max<std::int64_t>(Arrays::bytes(row), 1), 1, most_sets);
  std::vector<std::unique_ptr<Arrays>> arrays;
  for (std::int64_t i = 0; i < sets; ++i) {
    arrays.push_back(std::make_unique<Arrays>(context, data, row, on_device, i == 0));
  }
  std::optional<EigenGemm> products;
  if (gemm) products.emplace(row, context.threads());

  const double start = now();
  if (row.pass == Pass::backward && !gemm) {
    for (const auto& a : arrays) call_forward(context, row, options_, *a);
  }
  const double backward_starts = now();
  Dispatch dispatch;
  const auto body = [&](std::int64_t turn) {
    const Arrays& a = *arrays[static_cast<std::size_t>(turn % sets)];
    if (gemm) {
      products->run(a);
    } else {
      dispatch = call(context, row, options_, a);
    }
  };
  body(0);
  const double first = now() - (row.pass == Pass::backward ? backward_starts : start);
  for (const auto& a : arrays) a->poison();
  // In place, every call needs its logits back.
  std::function<void(std::int64_t)> prepare;
  if (row.in_place) {
    prepare = [&](std::int64_t turn) {
      arrays[static_cast<std::size_t>(turn % sets)]->restore_logits(data);
    };
  }

  const auto multiply = peaks::multiplication(peaks.meter(), row.problem.x, row.problem.w);
  const auto bracket = row.linear()      ? multiply
                       : row.in_place    ? peaks::Kind::read_modify_write
                       : row.gradients() ? peaks::Kind::copy
                                         : peaks::Kind::read;
  const Patience patience{options_.samples, min_seconds_, options_.max_seconds};
  std::int64_t turns = 0;
  const Timing timing = measure(
      peaks, bracket, patience,
      [&](std::int64_t turn) {
        body(turn);
        ++turns;
      },
      prepare, row.in_place ? sets : most_repeats);

  // The first set is judged, the others must be bitwise the same.
  Deviation deviation;
  std::optional<FilterError> filter_error;
  double filter_time = 1.0;
  if (gemm) {
    deviation = judge_products(data, products->logits());
  } else {
    const Outcome outcome = fetch(row, *arrays.front());
    deviation = judge(data, outcome, row.gradient_filter_eps);
    for (std::int64_t i = 1; i < std::min(sets, turns); ++i) {
      if (!same_bits(outcome, fetch(row, *arrays[static_cast<std::size_t>(i)]))) {
        throw Error(ErrorCode::execution_failed,
                    "wrong results: two calls on the same inputs differ in their bits");
      }
    }
    if (row.gradient_filter_eps > 0.0f) {
      Row exact = row;
      exact.gradient_filter_eps = 0.0f;
      call(context, exact, options_, *arrays.front());
      filter_error = compare_gradients(outcome, fetch(row, *arrays.front()));
      filter_time = time_of_exact(
          options_.samples, [&](std::int64_t turn) { body(turn); },
          [&](std::int64_t turn) {
            call(context, exact, options_, *arrays[static_cast<std::size_t>(turn % sets)]);
          });
    }
  }
  if (!(deviation.worst <= 1.0)) {
    throw Error(ErrorCode::execution_failed, "wrong results: " + deviation.where);
  }

  Row costed = row;
  if (gemm) costed.implementation = "eigen";
  CostEstimate cost = cost_of(context, costed, options_);
  std::int64_t extra = dispatch.workspace_bytes + dispatch.staged_bytes;
  if (gemm) {
    // The logits are written once and read by each gradient's product.
    extra = products->extra_bytes();
    const int readers = (row.grad_x ? 1 : 0) + (row.grad_w ? 1 : 0);
    cost.bytes_moved = cost.bytes_ideal + extra * (1 + (row.gradients() ? readers : 0));
    cost.executed_flops = cost.flops;
    cost.transcendentals = 0;
  }
  const Bound bound = bound_of(peaks, row, cost, multiply);
  const double flops = static_cast<double>(cost.flops);
  const double per_second = flops / timing.median;
  const double peak = peaks.best(multiply);
  for (auto _ : state) state.SetIterationTime(timing.median);
  auto& c = state.counters;
  c["flops"] = flops;
  c["flops_per_second"] = per_second;
  c["peak_flops_per_second"] = peak;
  c["fraction_of_peak"] = per_second / peak;
  // Against the peaks that bracket each sample; for the softmax those are of memory.
  c["fraction_of_bracket"] =
      (row.linear() ? flops : static_cast<double>(cost.bytes_ideal)) / timing.median_work;
  c["fraction_of_bound"] = bound.seconds / timing.median;
  c["executed_flops"] = static_cast<double>(cost.executed_flops);
  c["transcendentals"] = static_cast<double>(cost.transcendentals);
  c["bytes_ideal"] = static_cast<double>(cost.bytes_ideal);
  c["bytes_moved"] = static_cast<double>(cost.bytes_moved);
  c["extra_bytes_peak"] = static_cast<double>(extra);
  c["first_call_seconds"] = first;
  c["median_seconds"] = timing.median;
  c["spread"] = timing.spread;
  c["samples"] = timing.samples;
  c["samples_counted"] = timing.counted;
  c["noisy"] = timing.noisy ? 1 : 0;
  c["max_abs_deviation"] = deviation.max_abs;
  c["deviation_in_tolerances"] = deviation.worst;
  if (filter_error) {
    c["grad_x_filter_max"] = filter_error->grad_x_max;
    c["grad_x_filter_norm"] = filter_error->grad_x_norm;
    c["grad_w_filter_max"] = filter_error->grad_w_max;
    c["grad_w_filter_norm"] = filter_error->grad_w_norm;
    c["filter_time"] = filter_time;
  }
  c["tokens_per_second"] = static_cast<double>(row.problem.shape.b) / timing.median;
  const std::string what =
      gemm ? std::string("products only; logits in memory")
           : fmt::format("{}; {} ({}); {}", dispatch.schedule, join(dispatch.block_sizes),
                         to_string(dispatch.block_source), join(dispatch.knobs));
  state.SetLabel(fmt::format(
      "{}; bound by {}{}", what, bound.by,
      timing.noisy ? fmt::format("; noisy: {} of {} samples count", timing.counted, timing.samples)
                   : ""));
}

std::vector<std::pair<std::string, std::string>> Session::description() {
  const auto& info = context_.device_info();
  const auto provenance = programs::provenance();
  auto environment = provenance.at("environment");
  for (auto& value : environment) value = without_folders(value.get<std::string>());
  std::vector<std::pair<std::string, std::string>> lines = {
      {"tessera_version", version()},
      {"tessera_revision", revision()},
      {"tessera_build", build_description()},
      {"processor", processor_name()},
      {"host_threads", std::to_string(context_.threads())},
      {"device", context_.has_device() ? info.name : "none"},
      {"device_type", info.type},
      {"platform", info.platform},
      {"driver", info.driver},
      {"device_version", info.version},
      {"environment", environment.dump()},
      {"peaks_bracket_bound", fmt::format("{}", bracket_bound)}};
  const auto add = [&](const char* where, Peaks& peaks) {
    for (const auto kind : peaks::all_kinds()) {
      const auto name = fmt::format("peak_{}_{}", where, peaks::to_string(kind));
      if (peaks.meter().has(kind)) {
        lines.emplace_back(name, fmt::format("{:.6g}", peaks.best(kind)));
      } else {
        lines.emplace_back(name, "absent: " + peaks.meter().why_absent(kind));
      }
    }
  };
  bool device = false, host = false;
  for (const auto& name : options_.implementations) {
    (name.starts_with("opencl") ? device : host) = true;
  }
  if (device && context_.has_device()) add("device", peaks_of("opencl"));
  if (host) add("host", peaks_of("eigen"));
  return lines;
}

}  // namespace tessera::bench
