// SPDX-License-Identifier: Apache-2.0
// What the time model says of the measured kernels, for scripts/tile_calibrate.py. Standard input:
// one JSON object per line, either a row {"pass", "b", "h", "v", "b_block_size", ...} to remember,
// or {"parameters": {...}} of the time model, to which one line answers: an array with an object
// for every row so far.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/tile/loss_schedule.hpp"
#include "host/tile/machine_state.hpp"

namespace {

using nlohmann::json;
using namespace tessera;

tile::TimeParameters parameters_of(const json& given, const tile::Chip& chip) {
  tile::TimeParameters p = tile::time_parameters(chip);
  for (const auto& [name, value] : given.items()) {
    double* const known = name == "mxu_efficiency"            ? &p.mxu_efficiency
                          : name == "vpu_ops_per_second"      ? &p.vpu_ops_per_second
                          : name == "eup_rate"                ? &p.eup_rate
                          : name == "xlu_rate"                ? &p.xlu_rate
                          : name == "unit_overlap"            ? &p.unit_overlap
                          : name == "hbm_efficiency"          ? &p.hbm_efficiency
                          : name == "dma_latency_seconds"     ? &p.dma_latency_seconds
                          : name == "step_overhead_seconds"   ? &p.step_overhead_seconds
                          : name == "launch_overhead_seconds" ? &p.launch_overhead_seconds
                                                              : nullptr;
    if (known == nullptr) throw std::invalid_argument("no parameter is called " + name);
    *known = value;
  }
  return p;
}

/// A measured kernel: what its cores do does not depend on the parameters.
struct Measured {
  tile::Chip chip{};
  tile::Report report{};
  std::vector<std::vector<tile::CoreLog>> kernels{};
};

Measured schedule(const json& row) {
  Measured result;
  result.chip = tile::find_chip(row.at("device").get<std::string>());
  tile::Machine machine({.chip = result.chip, .detect_races = false, .dry_run = true});
  machine.state().core_logs = &result.kernels;
  const bench::LossProblem problem{row.at("b"),
                                   row.at("h"),
                                   row.at("v"),
                                   row.at("b_block_size"),
                                   row.at("h_block_size"),
                                   row.at("v_block_size")};
  if (row.at("pass") == "forward") {
    schedule_forward(machine, problem);
  } else {
    schedule_backward(machine, problem);
  }
  result.report = machine.report();
  return result;
}

json model(const Measured& measured, const json& parameters) {
  tile::Report report = measured.report;
  report.time = {};
  const tile::Rates rates = tile::rates_of(measured.chip, parameters_of(parameters, measured.chip));
  tile::Waits waits;
  for (const auto& logs : measured.kernels) {
    tile::add_kernel(report, waits, measured.chip, "",
                     tile::replay(rates, logs, report.buffers.size()));
  }
  const tile::TimeReport& time = report.time;
  return {{"seconds", time.modelled_seconds},
          {"bound", time.bound},
          {"mxu", time.busy.mxu},
          {"vpu", time.busy.vpu},
          {"eup", time.busy.eup},
          {"xlu", time.busy.xlu},
          {"core", time.busy.core},
          {"hbm", time.busy.hbm},
          {"waiting", time.waiting_seconds},
          {"waits_for", time.waits_for},
          {"mxu_utilisation", time.mxu_utilisation},
          {"bytes", report.bytes_copied}};
}

}  // namespace

int main() {
  try {
    std::vector<Measured> measured;
    for (std::string line; std::getline(std::cin, line);) {
      const json given = json::parse(line);
      if (!given.contains("parameters")) {
        measured.push_back(schedule(given));
        continue;
      }
      json answer = json::array();
      for (const Measured& one : measured) answer.push_back(model(one, given.at("parameters")));
      std::cout << answer.dump() << std::endl;
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << fmt::format("tessera-tile-rows: {}\n", error.what());
    return 1;
  }
}
