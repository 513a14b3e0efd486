// SPDX-License-Identifier: Apache-2.0
#include "bench/tile/loss_schedule.hpp"

#include <algorithm>

#include "tessera/tile/call.hpp"

namespace tessera::bench {
namespace {

using namespace tile;

double area(std::int64_t rows, std::int64_t columns) {
  return static_cast<double>(rows) * static_cast<double>(columns);
}

/// [m, k] x [k, n] in one bf16 pass, charged as `dot` charges it: rounding f32 operands to bf16,
/// turning one round and adding to the result are part of what keeps the MXU from its peak.
Work product(const Chip& chip, std::int64_t m, std::int64_t k, std::int64_t n) {
  Work work;
  work.flops = work.padded_flops = work.mxu_flops = 2 * area(m, k) * static_cast<double>(n);
  work.mxu_seconds = work.mxu_flops / core_peak(chip, ElementType::bf16);
  return work;
}

std::int64_t blocks(std::int64_t extent, std::int64_t block) {
  return (extent + block - 1) / block;
}

}  // namespace

void schedule_forward(Machine& machine, const LossProblem& p) {
  const Chip& chip = machine.options().chip;
  const auto x = machine.empty_ref<float>("x", {p.b, p.h});
  const auto w = machine.empty_ref<bf16>("w", {p.h, p.v});
  const auto labels = machine.empty_ref<std::int32_t>("labels", {p.b});
  const auto lse = machine.empty_ref<float>("lse", {p.b});
  const std::int64_t last_h = blocks(p.h, p.h_block) - 1;
  call(
      machine, "forward",
      {.grid = {blocks(p.b, p.b_block), blocks(p.v, p.v_block), blocks(p.h, p.h_block)},
       .in = {BlockSpec::blocks({p.b_block, p.h_block}, [](auto& g) { return ix(g[0], g[2]); }),
              BlockSpec::blocks({p.b_block}, [](auto& g) { return ix(g[0]); }),
              BlockSpec::blocks({p.h_block, p.v_block}, [](auto& g) { return ix(g[2], g[1]); })},
       .out = {BlockSpec::blocks({p.b_block}, [](auto& g) { return ix(g[0]); })}},
      [&](auto, auto, auto, auto, auto) {
        Work work = product(chip, p.b_block, p.h_block, p.v_block);
        if (program_id(2) == last_h) {
          const double logits = area(p.b_block, p.v_block);
          // Compare with the label, select, add (picked logit); maximum; subtract, add (sum of
          // exponentials); rows are reduced across lanes three times, by eight in registers first.
          work += {.vpu_ops = 6 * logits, .eup_ops = logits, .xlu_ops = 3 * logits / 8};
        }
        detail::charge(work);
      },
      Vmem<float>{{p.b_block, p.v_block}, "logits"})(x, labels, w, lse);
}

void schedule_backward(Machine& machine, const LossProblem& p) {
  const Chip& chip = machine.options().chip;
  const auto x = machine.empty_ref<float>("x", {p.b, p.h});
  const auto w = machine.empty_ref<bf16>("w", {p.h, p.v});
  const auto labels = machine.empty_ref<std::int32_t>("labels", {p.b});
  const auto lse = machine.empty_ref<float>("lse", {p.b});
  const auto x_grad = machine.empty_ref<float>("x_grad", {p.b, p.h});
  const auto w_grad = machine.empty_ref<float>("w_grad", {p.h, p.v});
  const std::int64_t last_b = blocks(p.b, p.b_block) - 1;
  const std::int64_t last_v = blocks(p.v, p.v_block) - 1;
  const double logits = area(p.b_block, p.v_block);
  const auto rows = [](auto& g) { return ix(g[0]); };
  const auto body = [&](auto, auto, auto, auto, auto x_hbm, auto w_hbm, auto, auto x_tile,
                        auto w_tile, auto x_read, auto w_read, auto x_write, auto w_write) {
    const std::int64_t b = program_id(0);
    const std::int64_t v = program_id(1);
    const std::int64_t h = program_id(3);
    if (program_id(2) == 0) {
      detail::charge(product(chip, p.b_block, p.h_block, p.v_block));
      return;
    }
    // Copies of a part of a tile's width move it whole.
    const std::int64_t left = (p.v - v * p.v_block + chip.lanes - 1) / chip.lanes * chip.lanes;
    const Slice columns = ds(v * p.v_block, std::min(p.v_block, left));
    const auto x_there = x_hbm.at(ds(b * p.b_block, p.b_block), ds(h * p.h_block, p.h_block));
    const auto w_there = w_hbm.at(ds(h * p.h_block, p.h_block), columns);
    const auto w_here = w_tile.at(all, ds(0, columns.size));
    Copy x_reads = make_async_copy(x_there, x_tile, x_read);
    Copy w_reads = make_async_copy(w_there, w_here, w_read);
    Copy x_writes = make_async_copy(x_tile, x_there, x_write);
    Copy w_writes = make_async_copy(w_here, w_there, w_write);
    if (v != 0) x_reads.start();
    if (b != 0) w_reads.start();
    if (h == 0) {
      // exp(logit - lse) - (label == column), in place of the logits.
      detail::charge({.vpu_ops = 4 * logits, .eup_ops = logits});
    }
    // The mean: divided and scaled where the last block has been added.
    const auto scale = [&](double elements) {
      detail::charge({.vpu_ops = 2 * elements, .eup_ops = elements});
    };
    const double in_x = area(p.b_block, p.h_block);
    const double in_w = area(p.h_block, p.v_block);
    detail::charge(product(chip, p.b_block, p.v_block, p.h_block));
    if (v != 0) {
      x_reads.wait();
      detail::charge({.vpu_ops = in_x});
    }
    if (v == last_v) scale(in_x);
    x_writes.start();
    detail::charge(product(chip, p.h_block, p.b_block, p.v_block));
    if (b != 0) {
      w_reads.wait();
      detail::charge({.vpu_ops = in_w});
    }
    if (b == last_b) scale(in_w);
    w_writes.start();
    x_writes.wait();
    w_writes.wait();
  };
  call(machine, "backward",
       {.grid = {blocks(p.b, p.b_block), blocks(p.v, p.v_block), 2, blocks(p.h, p.h_block)},
        .in = {BlockSpec::blocks({p.b_block, p.h_block}, [](auto& g) { return ix(g[0], g[3]); }),
               BlockSpec::blocks({p.b_block}, rows),
               BlockSpec::blocks({p.h_block, p.v_block}, [](auto& g) { return ix(g[3], g[1]); }),
               BlockSpec::blocks({p.b_block}, rows)},
        .out = {BlockSpec::in_hbm(), BlockSpec::in_hbm()}},
       body, Vmem<float>{{p.b_block, p.v_block}, "logits"},
       Vmem<float>{{p.b_block, p.h_block}, "x_grad block"},
       Vmem<float>{{p.h_block, p.v_block}, "w_grad block"}, DmaSem{"x read"}, DmaSem{"w read"},
       DmaSem{"x write"}, DmaSem{"w write"})(x, labels, w, lse, x_grad, w_grad);
}

}  // namespace tessera::bench
