// SPDX-License-Identifier: Apache-2.0
#include "bench/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "bench/custom.hpp"
#include "bench/folders.hpp"
#include "bench/operator.hpp"
#include "bench/row_measurement.hpp"
#include "programs/report.hpp"

namespace tessera::bench {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

/// Ends a row that has no results. Its label is its status then (reporter.cpp).
void skip(benchmark::State& state, const char* status, const std::string& why) {
  state.SetLabel(status);
  state.SkipWithError(why.c_str());
}

}  // namespace

Session::Session(const Options& options, double min_seconds)
    : options_(options), min_seconds_(min_seconds), context_(make_context()) {}

Context Session::make_context(const std::string& dump) const {
  ContextOptions o;
  o.dump_folder = dump;
  o.device = options_.device;
  o.threads = static_cast<int>(options_.threads.value_or(0));
  o.warning_handler = [](const std::string&) {};  // a row says itself what ran
  o.host_only = options_.device.empty() &&
                std::none_of(options_.implementations.begin(), options_.implementations.end(),
                             [](const auto& name) { return name.starts_with("opencl"); });
  return Context(o);
}

Context Session::make_custom_context() const {
  if (!context_.has_device()) throw Error(ErrorCode::unsupported, "there is no OpenCL device");
  return make_context(options_.dump);
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

Row Session::row_of(ProblemKey problem, Pass pass) const {
  const BenchOperator& op = *problem.op;
  problem.ignored = options_.ignored;
  problem.trained = options_.trained && op.has_trained_data();
  for (auto set : options_.set) {
    if (!op.sets(set.name)) continue;
    set.value = programs::value_of(op.description(), set);
    problem.set.push_back(set);
  }
  // What an operator does not have is the same in all of its rows, and not in their names.
  if (!op.has_weights()) problem.w = problem.x, problem.w_is_vh = true;
  if (!op.has_labels())
    problem.target_pairs = 0, problem.dense_targets = false, problem.ignored = 0;
  if (!op.has_teacher()) problem.divergence = ProblemKey{}.divergence;
  Row row;
  row.problem = problem;
  row.pass = pass;
  if (op.gradients(problem).size() > 1) row.grad_x = options_.grad_x, row.grad_w = options_.grad_w;
  if (op.filters_gradients() && row.gradients()) {
    row.gradient_filter_eps = options_.gradient_filter_eps;
  }
  row.in_place = options_.in_place && op.runs_in_place() && row.gradients();
  return row;
}

std::vector<Row> Session::with_blocks(Row row) const {
  const bool inferred = options_.include_inferred || options_.block_sizes.empty();
  row.names_blocks = options_.block_sizes.size() + (inferred ? 1 : 0) > 1;
  std::vector<Row> rows;
  for (const auto& sizes : options_.block_sizes) {
    rows.push_back(row);
    rows.back().block_sizes = row.problem.op->own_blocks(sizes);
    if (rows.back().block_sizes.empty()) rows.pop_back();
  }
  if (inferred) rows.push_back(row);
  return rows;
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
    if (name == eigen_gemm) {
      row.block_sizes.clear();  // it has none, so that all of these are one row
      return add({row, EigenGemm::why_not(row)});
    }
    const BenchOperator& op = *row.problem.op;
    const auto infos = op.implementations();
    if (name != "opencl" && std::none_of(infos.begin(), infos.end(),
                                         [&](const auto& info) { return info.name == name; })) {
      // Another of the operators asked for has it.
      return add({row, fmt::format("{} has no implementation of this name", op.name())});
    }
    if (name != "opencl") return add({row, op.why_not(context_, row, options_).value_or("")});
    // A family's name means its first member that runs, as in the library's own order.
    std::string reasons;
    for (const auto& info : infos) {
      if (!info.name.starts_with("opencl")) continue;
      row.implementation = info.name;
      const auto reason = op.why_not(context_, row, options_);
      if (!reason) return add({row, ""});
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", info.name, *reason);
    }
    row.implementation = name;
    add({row, reasons.empty() ? "no such implementation" : reasons});
  };
  // With each of the targets and the divergences asked for.
  const auto taught = [&](ProblemKey problem) {
    std::vector<ProblemKey> problems;
    for (const bool dense : options_.dense_targets) {
      problem.dense_targets = dense;
      for (const auto pairs : dense ? std::vector<std::int64_t>{0} : options_.target_pairs) {
        for (const auto divergence : options_.divergences) {
          problem.target_pairs = pairs;
          problem.divergence = divergence;
          problems.push_back(problem);
        }
      }
    }
    return problems;
  };
  for (const auto* op : options_.operators) {
    for (const auto& given : options_.shapes) {
      const auto shape = op->shape_of(given, options_.tokens);
      if (!shape) continue;
      for (const auto& types : options_.dtypes) {
        for (const bool vh : options_.layouts) {
          for (const auto pass : options_.passes) {
            if (!op->has(pass)) continue;
            for (const auto& name : options_.implementations) {
              for (const auto& problem : taught({op, types.first, types.second, vh, *shape})) {
                for (const auto& row : with_blocks(row_of(problem, pass))) {
                  add_implementation(row, name);
                }
              }
            }
          }
        }
      }
    }
  }
  return rows;
}

std::string Session::next_trace() {
  const int row = ++traces_;
  if (row == 1) return options_.profile;
  std::filesystem::path path = options_.profile;
  const auto extension = path.extension().string();
  return path.replace_extension(fmt::format(".{}{}", row, extension)).string();
}

std::shared_ptr<RowMeasurement> Session::prepare(const Row& row) {
  const auto measurement = std::make_shared<RowMeasurement>(
      make_context(), options_, data_of(row.problem), peaks_of(row.implementation), row);
  measurement->first_call();
  return measurement;
}

std::function<double()> Session::prepare(const CustomRow& row) {
  return prepare_custom(row, make_custom_context(), options_);
}

void Session::run(benchmark::State& state, const Planned& planned) {
  if (!planned.refusal.empty()) {
    return skip(state, "refused", "refused: " + planned.refusal);
  }
  try {
    const Row& row = planned.row;
    const Data& data = data_of(row.problem);
    Peaks& peaks = peaks_of(row.implementation);
    // A fresh context has compiled nothing and pooled nothing.
    RowMeasurement measurement(make_context(options_.dump), options_, data, peaks, row);
    measurement.first_call();
    measurement.take_samples(min_seconds_);
    measurement.check();
    measurement.report(state);
    if (!options_.profile.empty()) profiles_ += measurement.profile(next_trace());
  } catch (const WrongResults& error) {
    failed_ = true;
    skip(state, "wrong", error.what());
  } catch (const std::exception& error) {
    failed_ = true;
    skip(state, "failed", error.what());
  }
}

void Session::run(benchmark::State& state, const CustomRow& row) {
  try {
    measure_custom(state, row, make_custom_context(), peaks_of("opencl"), options_, min_seconds_);
  } catch (const WrongResults& error) {
    failed_ = true;
    skip(state, "wrong", error.what());
  } catch (const std::exception& error) {
    failed_ = true;
    skip(state, "failed", error.what());
  }
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
  if (!options_.lists_peaks) return lines;
  bool device = false, host = false;
  for (const auto& name : options_.implementations) {
    (name.starts_with("opencl") ? device : host) = true;
  }
  if (device && context_.has_device()) add("device", peaks_of("opencl"));
  if (host) add("host", peaks_of("eigen"));
  return lines;
}

}  // namespace tessera::bench
