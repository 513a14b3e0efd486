// SPDX-License-Identifier: Apache-2.0
#include "bench/decompose.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>

#include "bench/operator.hpp"
#include "bench/row_measurement.hpp"
#include "programs/report.hpp"
#if TESSERA_OPENCL
#include "host/operators/opencl_kernels.hpp"
#endif

namespace tessera::bench {
namespace {

using programs::Json;

/// What is there after one more part of a call.
struct Part {
  const char* name;
  double products;  ///< of B x H x V, so far
  double seconds;   ///< so far
};

void set_epilogue(int parts) {
#if TESSERA_OPENCL
  operators::replace_kernel_file("linear/epilogue.cl", fmt::format("#define EPILOGUE {}\n", parts));
#else
  static_cast<void>(parts);
#endif
}

/// Of one kind of call, what each round measured: by kernel, and the whole call as "".
using Rounds = std::map<std::string, std::vector<double>>;

/// Rounds of one call of each. Times are multiplied by the peak beside them, since the speed of a
/// shared machine drifts: what the machine could have computed meanwhile.
std::vector<Rounds> take_turns(Peaks& peaks, peaks::Kind multiply, const Options& options,
                               const std::vector<std::shared_ptr<RowMeasurement>>& calls) {
  std::vector<Rounds> all(calls.size());
  const double end = now() + options.max_seconds;
  double before = peaks.sample(multiply);
  for (int round = 0; round < 3 || (round < options.samples && now() < end); ++round) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const CallTimes times = calls[i]->profiled_call();
      const double after = peaks.sample(multiply);
      const double beside = 0.5 * (before + std::exchange(before, after));
      all[i][""].push_back(times.seconds * beside);
      for (const auto& [kernel, seconds] : times.kernels) {
        all[i][kernel].push_back(seconds * beside);
      }
    }
  }
  return all;
}

/// Seconds at the best peak.
double seconds_of(const Rounds& rounds, const std::string& kernel, Peaks& peaks,
                  peaks::Kind multiply) {
  return quantile(rounds.at(kernel), 0.5) / peaks.best(multiply);
}

std::vector<Part> parts_of_forward(Session& session, const Row& row, Peaks& peaks,
                                   peaks::Kind multiply, const Options& options) {
  std::vector<std::shared_ptr<RowMeasurement>> calls;
  for (int parts = 0; parts <= 2; ++parts) {
    set_epilogue(parts);
    calls.push_back(session.prepare(row));
  }
  const auto rounds = take_turns(peaks, multiply, options, calls);
  const auto kernel = [&](std::size_t call) {
    return seconds_of(rounds[call], "forward", peaks, multiply);
  };
  return {{"products only", 1.0, kernel(0)},
          {"+ maximum", 1.0, kernel(1)},
          {"+ exp and sum", 1.0, kernel(2)},
          {"full forward", 1.0, seconds_of(rounds[2], "", peaks, multiply)}};
}

/// What a kernel of a call with gradients is for.
const char* part_of(const std::string& kernel) {
  static const std::map<std::string, const char*> parts = {
      {"forward", "logits"},    {"gradient", "dz"},        {"gradient_of_kept", "dz"},
      {"grad_w", "grad_w"},     {"write_w", "grad_w"},     {"grad_x", "grad_x"},
      {"write_rows", "grad_x"}, {"distill_gradient", "dz"}};
  const auto found = parts.find(kernel);
  return found == parts.end() ? "" : found->second;
}

std::vector<Part> parts_of_gradients(Session& session, const Row& row, Peaks& peaks,
                                     peaks::Kind multiply, const Options& options) {
  const auto rounds = take_turns(peaks, multiply, options, {session.prepare(row)}).front();
  std::map<std::string, double> seconds;
  for (const auto& [kernel, values] : rounds) {
    if (!kernel.empty()) seconds[part_of(kernel)] += seconds_of(rounds, kernel, peaks, multiply);
  }
  const bool recomputes = rounds.contains("gradient");
  std::vector<Part> parts;
  double products = 0.0, so_far = 0.0;
  const auto add = [&](const char* name, const char* key, double more) {
    if (!seconds.contains(key)) return;
    parts.push_back({name, products += more, so_far += seconds[key]});
  };
  add(row.values() ? "logits and sums" : "logits", "logits", 1.0);
  add(recomputes ? "logits again and dz" : "dz of kept logits", "dz",
      recomputes && row.pass == Pass::backward ? 1.0 : 0.0);
  add("+ grad_w", "grad_w", 1.0);
  add("+ grad_x", "grad_x", 1.0);
  parts.push_back({"full call", products, seconds_of(rounds, "", peaks, multiply)});
  return parts;
}

/// Prints the row's table and returns the same.
Json table_of(const Row& row, const std::vector<Part>& parts, double peak) {
  const auto [b, h, v] = row.problem.layer();
  const double product =
      2.0 * static_cast<double>(b) * static_cast<double>(h) * static_cast<double>(v);
  fmt::print("{}, peak {:.0f} GFLOP/s\n    {:<22} {:>10} {:>10} {:>12}\n", row.name(), 1e-9 * peak,
             "part", "ms", "added ms", "of the peak");
  Json json{{"name", row.name()}, {"peak_flops_per_second", peak}, {"parts", Json::array()}};
  double before = 0.0;
  for (const auto& part : parts) {
    const double share = product * part.products / part.seconds / peak;
    const double added = part.seconds - std::exchange(before, part.seconds);
    fmt::print("    {:<22} {:>10.3f} {:>10.3f} {:>11.1f}%\n", part.name, 1e3 * part.seconds,
               1e3 * added, 100.0 * share);
    json["parts"].push_back({{"name", part.name},
                             {"seconds", part.seconds},
                             {"added_seconds", added},
                             {"fraction_of_peak", share},
                             {"seconds_at_peak", product * part.products / peak}});
  }
  std::fflush(stdout);
  return json;
}

}  // namespace

std::string decompose(Session& session, const std::vector<Session::Planned>& rows,
                      const Options& options) {
  Json all = Json::object();
  for (const auto& [key, value] : session.description()) all["context"][key] = value;
  all["rows"] = Json::array();
  for (const auto& planned : rows) {
    const Row& row = planned.row;
    // A tile in registers that nobody looks at is not formed: other engines have no products only.
    if (!planned.refusal.empty() || row.implementation != "opencl.cpu" ||
        !row.problem.op->has_weights() || row.problem.op->has_teacher()) {
      continue;
    }
    Peaks& peaks = session.peaks_of(row.implementation);
    const auto multiply = peaks::multiplication(peaks.meter(), row.problem.x, row.problem.w);
    const auto& parts_of = row.gradients() ? parts_of_gradients : parts_of_forward;
    const auto parts = parts_of(session, row, peaks, multiply, options);
    all["rows"].push_back(table_of(row, parts, peaks.best(multiply)));
  }
  if (!all["rows"].empty()) return programs::dump(all);
  throw Error(ErrorCode::unsupported,
              "--decompose takes linear_cross_entropy apart on opencl.cpu, and no row is that");
}

}  // namespace tessera::bench
