// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "host/linear_cross_entropy/tile.hpp"
#include "tessera/tile/loss.hpp"

// What tessera-tile asks: how long, and with which blocks.
namespace tessera::tile {
namespace {

namespace loss = linear_cross_entropy::tile_loss;
using linear_cross_entropy::BlockSizes;

loss::Kernel kernel_of(const LossRun& run) {
  if (run.pass != Pass::forward && run.pass != Pass::backward) {
    throw TileError(ErrorKind::usage,
                    "pass: forward or backward; value_and_grad runs both kernels");
  }
  const auto& s = run.shape;
  if (s.b < 1 || s.h < 1 || s.v < 1) {
    throw TileError(ErrorKind::usage,
                    fmt::format("shape {} x {} x {}: every extent is at least 1", s.b, s.h, s.v));
  }
  loss::Kernel kernel{
      .b = s.b, .h = s.h, .v = s.v, .w_is_vh = run.w_is_vh, .grad_w_is_vh = run.w_is_vh};
  kernel.product = DotOptions{.passes = run.f32_passes};
  return kernel;
}

loss::Operands operands_of(const LossRun& run) {
  return {.x_type = run.shape.x_type, .w_type = run.shape.w_type};
}

std::int64_t declared(const Chip& chip, Pass pass, const loss::Kernel& kernel,
                      const loss::Operands& operands) {
  return vmem_use(chip, loss::allocations(pass, kernel, operands)).declared;
}

/// Sizes that a sweep tries of one dimension.
std::vector<std::int64_t> sizes(std::int64_t extent, std::int64_t most) {
  std::vector<std::int64_t> found;
  for (std::int64_t power = 128; power <= most; power *= 2) {
    for (const std::int64_t size : {power, power + power / 2}) {
      // Larger than the extent is the same as the first that holds it all.
      if (size > most || size % 128 != 0) continue;
      if (!found.empty() && found.back() >= extent) continue;
      found.push_back(size);
    }
  }
  return found;
}

Report dry_report(MachineOptions options, const LossRun& run, const loss::Kernel& kernel) {
  options.dry_run = true;
  options.detect_races = false;
  options.trace = false;
  Machine machine(options);
  loss::run_alone(machine, run.pass, kernel, operands_of(run));
  return machine.report();
}

/// Rows beyond some blocks do what those before them did, so that time and traffic grow evenly.
void model(const MachineOptions& options, const LossRun& run, loss::Kernel kernel,
           LossCandidate& candidate) {
  // More steps than this take longer than a person waits for a sweep.
  constexpr std::int64_t most_steps = 20000;
  const std::int64_t rows = kernel.row_blocks();
  const std::int64_t per_row =
      kernel.column_blocks() * kernel.depth_blocks() * (run.pass == Pass::backward ? 2 : 1);
  // Megacore shares rows in twos; the third pair is like the second.
  const std::int64_t few = 2 * options.chip.cores;
  candidate.extrapolated = rows > 2 * few && rows * per_row > most_steps;
  const auto take = [&](const Report& report) {
    candidate.bound = report.time.bound;
    candidate.mxu_utilisation = report.time.mxu_utilisation;
  };
  if (!candidate.extrapolated) {
    const Report report = dry_report(options, run, kernel);
    take(report);
    candidate.modelled_seconds = report.time.modelled_seconds;
    candidate.dma_bytes = report.bytes_copied;
    return;
  }
  const auto part = [&](std::int64_t blocks) {
    kernel.b = blocks * kernel.blocks.b_block_size;
    return dry_report(options, run, kernel);
  };
  const Report first = part(few);
  const Report second = part(2 * few);
  take(second);
  const auto more = static_cast<double>(rows - few) / static_cast<double>(few);
  candidate.modelled_seconds = first.time.modelled_seconds +
                               more * (second.time.modelled_seconds - first.time.modelled_seconds);
  candidate.dma_bytes = first.bytes_copied +
                        static_cast<std::int64_t>(
                            more * static_cast<double>(second.bytes_copied - first.bytes_copied));
}

}  // namespace

std::vector<Violation> check_loss(const Chip& chip, const LossRun& run) {
  if (!run.blocks) return {};
  loss::Kernel kernel = kernel_of(run);
  kernel.blocks = *run.blocks;
  return loss::check(chip, run.pass, kernel, operands_of(run));
}

LossReport model_loss(const MachineOptions& options, const LossRun& run) {
  loss::Kernel kernel = kernel_of(run);
  const auto operands = operands_of(run);
  LossReport result;
  if (run.blocks) {
    kernel.blocks = *run.blocks;
    result.source = BlockSource::caller;
  } else if (const auto chosen = loss::choose_blocks(options.chip, run.pass, kernel, operands)) {
    std::tie(kernel.blocks, result.source) = *chosen;
  } else {
    // No blocks are legal: what forbids the smallest says why.
    kernel.blocks = loss::smallest_blocks(options.chip, kernel.b);
  }
  require(loss::check(options.chip, run.pass, kernel, operands));
  result.blocks = kernel.blocks;
  result.vmem_declared_bytes = declared(options.chip, run.pass, kernel, operands);
  result.vmem_with_temporaries_bytes =
      loss_vmem_with_temporaries(kernel.blocks, run.pass, run.shape.x_type, run.shape.w_type);
  Machine machine(options);
  loss::run_alone(machine, run.pass, kernel, operands);
  result.report = machine.report();
  if (options.trace) result.trace = perfetto_json(machine);
  return result;
}

std::vector<LossCandidate> sweep_loss(
    const MachineOptions& options, const LossRun& run,
    const std::function<void(std::size_t done, std::size_t all)>& progress) {
  const loss::Kernel shape = kernel_of(run);
  const auto operands = operands_of(run);
  std::vector<LossCandidate> candidates;
  for (const auto b : sizes(shape.b, 8192)) {
    for (const auto h : sizes(shape.h, 4096)) {
      for (const auto v : sizes(shape.v, 8192)) candidates.push_back({.blocks = {b, h, v}});
    }
  }
  std::size_t done = 0;
  for (LossCandidate& candidate : candidates) {
    loss::Kernel kernel = shape;
    kernel.blocks = candidate.blocks;
    candidate.refused = loss::check(options.chip, run.pass, kernel, operands);
    candidate.vmem_with_temporaries_bytes =
        loss_vmem_with_temporaries(kernel.blocks, run.pass, run.shape.x_type, run.shape.w_type);
    if (candidate.refused.empty()) {
      candidate.vmem_declared_bytes = declared(options.chip, run.pass, kernel, operands);
      model(options, run, kernel, candidate);
    }
    if (progress) progress(++done, candidates.size());
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const LossCandidate& a, const LossCandidate& b) {
                     if (a.refused.empty() != b.refused.empty()) return a.refused.empty();
                     return a.refused.empty() && a.modelled_seconds < b.modelled_seconds;
                   });
  return candidates;
}

}  // namespace tessera::tile
