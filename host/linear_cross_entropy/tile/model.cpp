// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "host/linear_cross_entropy/tile/kernel.hpp"

/// What tessera-tile asks: how long, and with which blocks.
namespace tessera::linear_cross_entropy::tpu_tile {
namespace {

Kernel kernel_of(const Problem& problem) {
  if (problem.pass != Pass::forward && problem.pass != Pass::backward) {
    throw tile::TileError(tile::ErrorKind::usage,
                          "pass: forward or backward; value_and_grad runs both kernels");
  }
  const auto& s = problem.shape;
  if (s.b < 1 || s.h < 1 || s.v < 1) {
    throw tile::TileError(
        tile::ErrorKind::usage,
        fmt::format("shape {} x {} x {}: every extent is at least 1", s.b, s.h, s.v));
  }
  Kernel kernel{
      .b = s.b, .h = s.h, .v = s.v, .w_is_vh = problem.w_is_vh, .grad_w_is_vh = problem.w_is_vh};
  kernel.product = tile::DotOptions{.passes = problem.f32_passes};
  return kernel;
}

Operands operands_of(const Problem& problem) {
  return {.x_type = problem.shape.x_type, .w_type = problem.shape.w_type};
}

std::int64_t declared(const tile::Chip& chip, Pass pass, const Kernel& kernel,
                      const Operands& operands) {
  return tile::vmem_use(chip, allocations(pass, kernel, operands)).declared;
}

// A sweep ends at the largest published number of rows, 8192, and at four times the largest
// published depth and columns, 1024 and 2048 (tuning/tables/published.csv).
constexpr std::int64_t most_rows = 8192, most_depth = 4096, most_columns = 8192;

/// Sizes that a sweep tries of one dimension.
std::vector<std::int64_t> sizes(std::int64_t extent, std::int64_t most) {
  std::vector<std::int64_t> found;
  for (std::int64_t power = lanes; power <= most; power *= 2) {
    for (const std::int64_t size : {power, power + power / 2}) {
      // Larger than the extent is the same as the first that holds it all.
      if (size > most || size % lanes != 0) continue;
      if (!found.empty() && found.back() >= extent) continue;
      found.push_back(size);
    }
  }
  return found;
}

tile::Report dry_report(tile::MachineOptions options, const Problem& problem,
                        const Kernel& kernel) {
  options.dry_run = true;
  options.detect_races = false;
  options.trace = false;
  tile::Machine machine(options);
  run_alone(machine, problem.pass, kernel, operands_of(problem));
  return machine.report();
}

/// Rows beyond some blocks do what those before them did, so that time and traffic grow evenly.
void model_candidate(const tile::MachineOptions& options, const Problem& problem, Kernel kernel,
                     Candidate& candidate) {
  // More steps than this take longer than a person waits for a sweep.
  constexpr std::int64_t most_steps = 20000;
  const std::int64_t rows = kernel.row_blocks();
  const std::int64_t per_row =
      kernel.column_blocks() * kernel.depth_blocks() * (problem.pass == Pass::backward ? 2 : 1);
  // Megacore shares rows in twos; the third pair is like the second.
  const std::int64_t few = 2 * options.chip.cores;
  candidate.extrapolated = rows > 2 * few && rows * per_row > most_steps;
  const auto take = [&](const tile::Report& report) {
    candidate.bound = report.time.bound;
    candidate.mxu_utilisation = report.time.mxu_utilisation;
  };
  if (!candidate.extrapolated) {
    const tile::Report report = dry_report(options, problem, kernel);
    take(report);
    candidate.modelled_seconds = report.time.modelled_seconds;
    candidate.dma_bytes = report.bytes_copied;
    return;
  }
  const auto part = [&](std::int64_t blocks) {
    kernel.b = blocks * kernel.blocks.b_block_size;
    return dry_report(options, problem, kernel);
  };
  const tile::Report first = part(few);
  const tile::Report second = part(2 * few);
  take(second);
  const auto more = static_cast<double>(rows - few) / static_cast<double>(few);
  candidate.modelled_seconds = first.time.modelled_seconds +
                               more * (second.time.modelled_seconds - first.time.modelled_seconds);
  candidate.dma_bytes = first.bytes_copied +
                        static_cast<std::int64_t>(
                            more * static_cast<double>(second.bytes_copied - first.bytes_copied));
}

}  // namespace

std::vector<tile::Violation> check(const tile::Chip& chip, const Problem& problem) {
  if (!problem.blocks) return {};
  Kernel kernel = kernel_of(problem);
  kernel.blocks = *problem.blocks;
  return check(chip, problem.pass, kernel, operands_of(problem));
}

ModelReport model(const tile::MachineOptions& options, const Problem& problem) {
  Kernel kernel = kernel_of(problem);
  const auto operands = operands_of(problem);
  ModelReport result;
  if (problem.blocks) {
    kernel.blocks = *problem.blocks;
    result.source = BlockSource::caller;
  } else if (const auto chosen = choose_blocks(options.chip, problem.pass, kernel, operands)) {
    std::tie(kernel.blocks, result.source) = *chosen;
  } else {
    // No blocks are legal: what forbids the smallest says why.
    kernel.blocks = smallest_blocks(options.chip, kernel.b);
  }
  tile::require(check(options.chip, problem.pass, kernel, operands));
  result.blocks = kernel.blocks;
  result.vmem_declared_bytes = declared(options.chip, problem.pass, kernel, operands);
  result.vmem_with_temporaries_bytes = vmem_with_temporaries(
      kernel.blocks, problem.pass, problem.shape.x_type, problem.shape.w_type);
  tile::Machine machine(options);
  run_alone(machine, problem.pass, kernel, operands);
  result.report = machine.report();
  if (options.trace) result.trace = tile::perfetto_json(machine);
  return result;
}

std::vector<Candidate> sweep(
    const tile::MachineOptions& options, const Problem& problem,
    const std::function<void(std::size_t done, std::size_t all)>& progress) {
  const Kernel shape = kernel_of(problem);
  const auto operands = operands_of(problem);
  std::vector<Candidate> candidates;
  for (const auto b : sizes(shape.b, most_rows)) {
    for (const auto h : sizes(shape.h, most_depth)) {
      for (const auto v : sizes(shape.v, most_columns)) candidates.push_back({.blocks = {b, h, v}});
    }
  }
  std::size_t done = 0;
  for (Candidate& candidate : candidates) {
    Kernel kernel = shape;
    kernel.blocks = candidate.blocks;
    candidate.refused = check(options.chip, problem.pass, kernel, operands);
    candidate.vmem_with_temporaries_bytes = vmem_with_temporaries(
        kernel.blocks, problem.pass, problem.shape.x_type, problem.shape.w_type);
    if (candidate.refused.empty()) {
      candidate.vmem_declared_bytes = declared(options.chip, problem.pass, kernel, operands);
      model_candidate(options, problem, kernel, candidate);
    }
    if (progress) progress(++done, candidates.size());
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     if (a.refused.empty() != b.refused.empty()) return a.refused.empty();
                     return a.refused.empty() && a.modelled_seconds < b.modelled_seconds;
                   });
  return candidates;
}

}  // namespace tessera::linear_cross_entropy::tpu_tile
