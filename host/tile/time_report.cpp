// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "host/tile/core.hpp"
#include "host/tile/launch.hpp"
#include "host/tile/machine_state.hpp"
#include "tessera/tile/error.hpp"

// From chips and parameters to rates, and from what cores did to what a person reads.
namespace tessera::tile {
namespace {

/// Vector ALUs per lane (Book).
constexpr double alus = 4;
/// No published figure gives the clock of generations 6 and 7: MXUs and peak imply 3.5 and 4.4 GHz,
/// which no TPU runs at. The highest clock that a published peak does imply, v5p's.
constexpr double assumed_clock = 1.75e9;

double above_zero(double value, const char* name) {
  if (value > 0 && std::isfinite(value)) return value;
  throw TileError(ErrorKind::usage,
                  fmt::format("time model: {} is {}, which must be above 0; give it, or set "
                              "model_time = false",
                              name, value));
}

double not_negative(double value, const char* name) {
  if (value >= 0 && std::isfinite(value)) return value;
  throw TileError(ErrorKind::usage,
                  fmt::format("time model: {} is {}, which must not be below 0", name, value));
}

double part(double value, const char* name) {
  if (value >= 0 && value <= 1) return value;
  throw TileError(ErrorKind::usage,
                  fmt::format("time model: {} is {}, which must be from 0 to 1", name, value));
}

UnitSeconds operator+(const UnitSeconds& a, const UnitSeconds& b) {
  return {a.mxu + b.mxu,   a.vpu + b.vpu, a.eup + b.eup,   a.xlu + b.xlu,
          a.core + b.core, a.hbm + b.hbm, a.vmem + b.vmem, a.ici + b.ici};
}

struct Named {
  const char* name;
  double seconds;
};

Named longest(std::initializer_list<Named> units) {
  return *std::max_element(units.begin(), units.end(),
                           [](const Named& a, const Named& b) { return a.seconds < b.seconds; });
}

std::string bound_of(const UnitSeconds& busy, double seconds) {
  Named most =
      longest({{"core", busy.core}, {"hbm", busy.hbm}, {"vmem", busy.vmem}, {"ici", busy.ici}});
  if (most.seconds < bound_fraction * seconds || seconds <= 0) return "latency";
  if (most.seconds > busy.core || busy.core == 0) return most.name;
  // Units that take turns may each be busy for less.
  const Named unit =
      longest({{"mxu", busy.mxu}, {"vpu", busy.vpu}, {"eup", busy.eup}, {"xlu", busy.xlu}});
  // Where most of the core's time is overhead of steps and launch, no unit bounds it.
  const double units = busy.mxu + busy.vpu + busy.eup + busy.xlu;
  return units < bound_fraction * busy.core ? "latency" : unit.name;
}

void add_to(Waits& sum, const Waits& waits) {
  sum.by_buffer.resize(std::max(sum.by_buffer.size(), waits.by_buffer.size()), 0.0);
  for (std::size_t i = 0; i < waits.by_buffer.size(); ++i) sum.by_buffer[i] += waits.by_buffer[i];
  sum.signals += waits.signals;
  sum.barriers += waits.barriers;
}

}  // namespace

double vpu_rate(const Chip& chip) {
  return chip.lanes * chip.sublanes * alus * chip.implied_clock().value_or(assumed_clock);
}

TimeParameters time_parameters(const Chip& chip) {
  TimeParameters parameters;
  parameters.vpu_ops_per_second = vpu_rate(chip);
  return parameters;
}

Rates rates_of(const Chip& chip, const TimeParameters& parameters) {
  Rates rates;
  rates.mxu = 1 / above_zero(parameters.mxu_efficiency, "mxu_efficiency");
  const double vpu =
      parameters.vpu_ops_per_second == 0 ? vpu_rate(chip) : parameters.vpu_ops_per_second;
  rates.vpu = above_zero(vpu, "vpu_ops_per_second");
  rates.eup = rates.vpu * above_zero(parameters.eup_rate, "eup_rate");
  rates.xlu = rates.vpu * above_zero(parameters.xlu_rate, "xlu_rate");
  // An operation per lane and cycle; chips without SparseCores have nothing to divide by it.
  const double lanes = chip.sparse_cores ? chip.sparse_cores->lanes : chip.lanes;
  rates.subcore = lanes * chip.implied_clock().value_or(assumed_clock);
  rates.unit_overlap = part(parameters.unit_overlap, "unit_overlap");
  rates.hbm = above_zero(chip.hbm_bandwidth, "the chip's hbm_bandwidth") *
              above_zero(parameters.hbm_efficiency, "hbm_efficiency");
  // Cores that are devices of their own have their own share of the chip's memory.
  if (!chip.megacore) rates.hbm /= chip.cores;
  rates.vmem =
      above_zero(parameters.vmem_over_hbm, "vmem_over_hbm") * chip.hbm_bandwidth / chip.cores;
  rates.ici = above_zero(chip.ici_link_bandwidth, "the chip's ici_link_bandwidth");
  rates.dma_latency = not_negative(parameters.dma_latency_seconds, "dma_latency_seconds");
  rates.ici_latency = not_negative(parameters.ici_latency_seconds, "ici_latency_seconds");
  rates.step_overhead = not_negative(parameters.step_overhead_seconds, "step_overhead_seconds");
  rates.launch_overhead =
      not_negative(parameters.launch_overhead_seconds, "launch_overhead_seconds");
  rates.shared_hbm = chip.megacore;
  return rates;
}

void add_kernel(Report& report, Waits& waits, const Chip& chip, std::string name, Replay one) {
  TimeReport& time = report.time;
  one.time.name = std::move(name);
  time.calibrated = chip.calibrated;
  time.modelled_seconds += one.time.seconds;
  time.busy = time.busy + one.time.busy;
  time.lower_bound_seconds += one.time.lower_bound_seconds;
  time.upper_bound_seconds += one.time.upper_bound_seconds;
  const auto last =
      std::max_element(one.time.cores.begin(), one.time.cores.end(),
                       [](const CoreTime& a, const CoreTime& b) { return a.seconds < b.seconds; });
  if (last != one.time.cores.end()) time.waiting_seconds += last->waiting;
  time.kernels.push_back(std::move(one.time));
  time.bound = bound_of(time.busy, time.modelled_seconds);

  add_to(waits, one.waits);
  time.waits_for.clear();
  time.waits_for_seconds = 0;
  const auto consider = [&](double seconds, const std::string& what) {
    if (seconds <= time.waits_for_seconds) return;
    time.waits_for_seconds = seconds;
    time.waits_for = what;
  };
  for (std::size_t i = 0; i < waits.by_buffer.size(); ++i) {
    consider(waits.by_buffer[i], report.buffers[i].name);
  }
  consider(waits.signals, "signals");
  consider(waits.barriers, "barriers");

  const Work& work = report.work;
  double core_seconds = 0;
  for (const KernelTime& kernel : time.kernels) {
    core_seconds += kernel.seconds * static_cast<double>(std::count_if(
                                         kernel.cores.begin(), kernel.cores.end(),
                                         [](const CoreTime& core) { return core.tensor_core; }));
  }
  if (work.flops <= 0 || work.mxu_flops <= 0 || core_seconds <= 0) return;
  // mxu_seconds is at peak, also where types with different peaks were multiplied.
  time.mxu_utilisation = work.mxu_seconds * (work.flops / work.mxu_flops) / core_seconds;
  time.padding_waste = work.padded_flops / work.flops;
  time.padding_waste_with_passes = work.mxu_flops / work.flops;
}

void detail::model_time(LaunchState& launch) {
  MachineState& machine = *launch.machine;
  std::vector<CoreLog> logs;
  for (CoreState& core : launch.agents) {
    logs.push_back({.device = core.device,
                    .core = core.agent % launch.per_device,
                    .tensor_core = core.kind == CoreKind::tensor_core,
                    .events = std::exchange(core.events, {})});
  }
  Timeline* timeline = nullptr;
  if (machine.options.trace) {
    timeline = &machine.timelines.emplace_back();
    timeline->name = launch.name;
    timeline->start = machine.report.time.modelled_seconds;
  }
  Replay one = replay(machine.rates, logs, machine.report.buffers.size(),
                      timeline != nullptr ? &timeline->spans : nullptr);
  if (timeline != nullptr) timeline->seconds = one.time.seconds;
  add_kernel(machine.report, machine.waits, machine.options.chip, launch.name, std::move(one));
  if (machine.core_logs != nullptr) machine.core_logs->push_back(std::move(logs));
}

}  // namespace tessera::tile
