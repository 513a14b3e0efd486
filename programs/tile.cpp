// SPDX-License-Identifier: Apache-2.0
#include "programs/tile.hpp"

#include <fmt/format.h>

#include <CLI/App.hpp>

namespace tessera::programs {
namespace {

namespace tpu_tile = linear_cross_entropy::tpu_tile;

tile::MachineOptions machine_options(const TileOptions& o) {
  tile::MachineOptions options;
  options.chip = tile::find_chip(o.chip);
  if (o.vmem_limit_kib) options.chip.scoped_vmem_bytes = *o.vmem_limit_kib * 1024;
  options.dry_run = o.dry_run;
  options.trace = !o.trace.empty();
  return options;
}

tpu_tile::Problem problem_of(const TileOptions& o) {
  tpu_tile::Problem problem;
  problem.shape = {o.shape[0], o.shape[1], o.shape[2], o.x_type, o.w_type.value_or(o.x_type)};
  problem.pass = o.pass;
  problem.w_is_vh = o.w_is_vh;
  problem.f32_passes = o.f32_passes;
  if (!o.block_sizes.empty()) {
    problem.blocks = {o.block_sizes[0], o.block_sizes[1], o.block_sizes[2]};
  }
  return problem;
}

Json to_json(const std::vector<tile::Violation>& violations) {
  Json list = Json::array();
  for (const auto& violation : violations) {
    list.push_back({{"rule", violation.rule}, {"reason", violation.message}});
  }
  return list;
}

/// What was asked.
Json question(const TileOptions& o, const tile::MachineOptions& options) {
  return {{"kernel", o.kernel},
          {"pass", o.pass == Pass::forward ? "forward" : "backward"},
          {"chip", options.chip.name},
          {"calibrated", options.chip.calibrated},
          {"shape", o.shape},
          {"x_dtype", to_string(o.x_type)},
          {"w_dtype", to_string(o.w_type.value_or(o.x_type))},
          {"w_layout", o.w_is_vh ? "vh" : "hv"},
          {"f32_passes", static_cast<int>(o.f32_passes)},
          {"vmem_limit_bytes", options.chip.scoped_vmem_bytes},
          {"dry_run", options.dry_run}};
}

Json to_json(const tile::UnitSeconds& busy) {
  return {{"mxu", busy.mxu}, {"vpu", busy.vpu},   {"eup", busy.eup}, {"xlu", busy.xlu},
          {"hbm", busy.hbm}, {"vmem", busy.vmem}, {"ici", busy.ici}};
}

void add_report(const tpu_tile::ModelReport& loss, std::int64_t tokens, Json& json) {
  const tile::Report& report = loss.report;
  const tile::TimeReport& time = report.time;
  json["block_sizes"] = programs::to_json(loss.blocks);
  json["block_source"] = to_string(loss.source);
  json["modelled_seconds"] = time.modelled_seconds;
  json["bound"] = time.bound;
  json["tokens_per_second"] = static_cast<double>(tokens) / time.modelled_seconds;
  json["busy_seconds"] = to_json(time.busy);
  json["waiting_seconds"] = time.waiting_seconds;
  json["waits_for"] = time.waits_for;
  json["lower_bound_seconds"] = time.lower_bound_seconds;
  json["upper_bound_seconds"] = time.upper_bound_seconds;
  json["mxu_utilisation"] = time.mxu_utilisation;
  json["padding_waste"] = time.padding_waste;
  json["flops"] = report.work.flops;
  json["mxu_flops"] = report.work.mxu_flops;
  json["vpu_ops"] = report.work.vpu_ops;
  json["eup_ops"] = report.work.eup_ops;
  json["xlu_ops"] = report.work.xlu_ops;
  json["dma_bytes"] = report.bytes_copied;
  json["dma_copies"] = report.copies;
  Json buffers = Json::array();
  for (const auto& buffer : report.buffers) {
    if (buffer.space != tile::MemorySpace::hbm || buffer.copies == 0) continue;
    buffers.push_back({{"name", buffer.name},
                       {"bytes_read", buffer.bytes_read},
                       {"bytes_written", buffer.bytes_written},
                       {"copies", buffer.copies}});
  }
  json["dma_bytes_by_buffer"] = std::move(buffers);
  json["vmem_high_water_bytes"] = report.vmem_high_water_bytes;
  json["vmem_declared_bytes"] = loss.vmem_declared_bytes;
  json["vmem_with_temporaries_bytes"] = loss.vmem_with_temporaries_bytes;
  json["smem_high_water_bytes"] = report.smem_high_water_bytes;
}

}  // namespace

void add_tile_options(CLI::App& app, TileOptions& o) {
  app.add_option("--chip", o.chip,
                 "v3, v4, v5e, v5p (the default), v6e or v7, or JAX's name of one")
      ->type_name("NAME");
  app.add_option("--kernel", o.kernel, "linear_cross_entropy")->type_name("NAME");
  add_choice<Pass>(app, "--pass", o.pass,
                   {{"forward", Pass::forward}, {"backward", Pass::backward}}, "(forward)");
  add_triple(app, "--shape", o.shape, 'x', "tokens x hidden x vocabulary: 8192x4096x128256",
             "tokens, hidden, vocabulary")
      ->type_name("BxHxV")
      ->required();
  const std::vector<std::pair<std::string, tile::ElementType>> types = {
      {"f32", tile::ElementType::f32}, {"bf16", tile::ElementType::bf16}};
  add_choice(app, "--x-dtype", o.x_type, types, "type of x (f32)");
  add_choice<std::optional<tile::ElementType>>(
      app, "--w-dtype", o.w_type,
      {{"f32", tile::ElementType::f32}, {"bf16", tile::ElementType::bf16}},
      "type of w (that of x)");
  add_choice<bool>(app, "--w-layout", o.w_is_vh, {{"hv", false}, {"vh", true}},
                   "[H, V] (hv) or [V, H]");
  add_triple(app, "--block-sizes", o.block_sizes, ',', "B,H,V",
             "block sizes (of a tuned table, or those that move the fewest bytes)")
      ->type_name("B,H,V");
  add_choice<tile::F32Passes>(
      app, "--f32-passes", o.f32_passes,
      {{"1", tile::F32Passes::one}, {"3", tile::F32Passes::three}, {"6", tile::F32Passes::six}},
      "bf16 passes of an f32 product: XLA's DEFAULT (1), HIGH, HIGHEST");
  add_integer(app, "--vmem-limit-kib", o.vmem_limit_kib,
              "scoped VMEM limit (what people set by hand for the chip)");
  app.add_flag("--dry-run", o.dry_run, "the schedule, its checks and its time, without arithmetic");
  app.add_option("--trace", o.trace, "write the timeline here, for Perfetto")->type_name("FILE");
  app.add_flag("--sweep", o.sweep,
               "rank block sizes by modelled time, and say why others are illegal");
  app.add_flag("--json", o.json, "print one JSON object");
}

void check_tile_options(const TileOptions& o) {
  if (o.kernel != "linear_cross_entropy") {
    fail_call(fmt::format("--kernel '{}' is not one of linear_cross_entropy", o.kernel));
  }
  for (const auto extent : o.shape) {
    if (extent < 1) fail_call(fmt::format("--shape: {} is less than 1", extent));
  }
  for (const auto size : o.block_sizes) {
    if (size < 1) fail_call(fmt::format("--block-sizes: {} is less than 1", size));
  }
  // A TiB, far above any chip; products of it stay within 64 bits.
  constexpr std::int64_t most_kib = std::int64_t{1} << 30;
  if (o.vmem_limit_kib && (*o.vmem_limit_kib < 1 || *o.vmem_limit_kib > most_kib)) {
    fail_call(fmt::format("--vmem-limit-kib {} is not from 1 to {}", *o.vmem_limit_kib, most_kib));
  }
  if (o.sweep && (!o.trace.empty() || !o.block_sizes.empty())) {
    fail_call("--sweep tries all block sizes; --trace and --block-sizes are for one run");
  }
}

Json model_tile(const TileOptions& o, std::string& trace) {
  const auto options = machine_options(o);
  const auto problem = problem_of(o);
  Json json = question(o, options);
  if (problem.blocks) {
    if (const auto refused = tpu_tile::check(options.chip, problem); !refused.empty()) {
      json["block_sizes"] = programs::to_json(*problem.blocks);
      json["modelled_seconds"] = nullptr;
      json["refused"] = to_json(refused);
      return json;
    }
  }
  tpu_tile::ModelReport loss;
  try {
    loss = tpu_tile::model(options, problem);
  } catch (const tile::TileError& error) {
    // No blocks were given, and of those that could be chosen none is legal.
    if (error.rule().empty()) throw;
    json["block_sizes"] = nullptr;
    json["modelled_seconds"] = nullptr;
    json["refused"] = Json::array({{{"rule", error.rule()}, {"reason", error.what()}}});
    return json;
  }
  add_report(loss, problem.shape.b, json);
  json["refused"] = Json::array();
  trace = std::move(loss.trace);
  return json;
}

Json sweep_tile(const TileOptions& o) {
  const auto options = machine_options(o);
  Json json = question(o, options);
  Json list = Json::array();
  for (const auto& candidate : tpu_tile::sweep(options, problem_of(o))) {
    Json row = {{"block_sizes", programs::to_json(candidate.blocks)}};
    if (candidate.refused.empty()) {
      row["modelled_seconds"] = candidate.modelled_seconds;
      row["bound"] = candidate.bound;
      row["mxu_utilisation"] = candidate.mxu_utilisation;
      row["dma_bytes"] = candidate.dma_bytes;
      row["vmem_declared_bytes"] = candidate.vmem_declared_bytes;
      row["extrapolated"] = candidate.extrapolated;
    }
    row["vmem_with_temporaries_bytes"] = candidate.vmem_with_temporaries_bytes;
    row["refused"] = to_json(candidate.refused);
    list.push_back(std::move(row));
  }
  json["candidates"] = std::move(list);
  return json;
}

}  // namespace tessera::programs
