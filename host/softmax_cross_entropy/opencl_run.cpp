// SPDX-License-Identifier: Apache-2.0
#include "host/softmax_cross_entropy/opencl_run.hpp"

#include <algorithm>
#include <vector>

#include "host/engines/segments.hpp"
#include "host/loss/opencl_rows.hpp"
#include "host/opencl/specialise.hpp"
#include "softmax_cross_entropy/arguments.h"

namespace tessera::softmax_cross_entropy {
namespace {

using opencl::Range;
using opencl::Scratch;

kernels::logits_segment logits_segment(const engines::Segment& segment) {
  return {segment.geometry, segment.stride, segment.begin, segment.end};
}

/// One call: statistics and values of each chunk of rows, then its gradient.
class Run {
 public:
  Run(opencl::Call& call, const Request& request, const engines::Engine& engine,
      const Schedule& schedule, const Programs& programs)
      : call_(call),
        r_(request),
        s_(schedule),
        programs_(programs),
        group_(static_cast<std::size_t>(engine.row_pass().items)),
        rows_(call, request.loss, engine.tile_n()) {}

  void enqueue() {
    rows_.prepare();
    bind();
    for (std::int64_t begin = 0; begin < r_.loss.b; begin += s_.chunk_rows) {
      if (s_.fused) {
        value_and_grad(begin);
        continue;
      }
      if (r_.loss.wants_values()) forward(begin);
      if (has_gradients(r_.loss.pass)) gradient(begin);
    }
    // Rows that do not count come last: in place, their logits are gone after this.
    gradient_excluded();
    rows_.finish();
  }

 private:
  void bind() {
    const auto& out = r_.gradients.grad_logits;
    logits_ =
        engines::bind_segments(call_, r_.inputs.logits, r_.loss.b, "logits", engines::Access::read);
    if (out) {
      out_ = engines::bind_segments(
          call_, out, r_.loss.b, "grad_logits",
          r_.gradients.accumulate ? engines::Access::update : engines::Access::write);
    }
    const std::int64_t rows = s_.chunk_rows;
    if (r_.loss.wants_values())
      stats_ = call_.scratch(loss::statistics_fields(r_.loss) * s_.slices * rows, "statistics");
    if (has_gradients(r_.loss.pass)) coefficients_ = call_.scratch(5 * rows, "coefficients");
  }

  /// Work-groups: (slice, row).
  Range grid(std::int64_t row_count) const {
    return opencl::with_second(
        {{static_cast<std::size_t>(s_.slices) * group_, 1, 1}, {group_, 1, 1}}, row_count);
  }
  std::int32_t ld() const { return static_cast<std::int32_t>(s_.chunk_rows); }
  kernels::read_sizes read_sizes(const engines::Segment& part, std::int64_t begin) const {
    return {.logits = logits_segment(part),
            .class_stride = rows_.class_stride(),
            .chunk_begin = begin,
            .v_count = r_.loss.v,
            .v_block = s_.blocks.v_block_size,
            .scale = r_.loss.options.logit_scale,
            .cap = r_.loss.options.logit_soft_cap,
            .targets = rows_.target_sizes()};
  }
  template <class Launch>
  void for_each_pair(const Launch& launch) const {
    for (const auto& part : logits_) {
      for (const auto& to : out_) {
        if (std::max(part.begin, to.begin) < std::min(part.end, to.end)) launch(part, to);
      }
    }
  }

  void value_and_grad(std::int64_t begin) {
    for_each_pair([&](const auto& part, const auto& to) {
      call_.launch(programs_.fused, grid(s_.chunk_rows),
                   kernels::value_and_grad_memory{.logits = part.bound,
                                                  .class_weight = rows_.class_weight(),
                                                  .info = rows_.info(),
                                                  .rows = rows_.rows(),
                                                  .labels = rows_.compact_labels(),
                                                  .values = rows_.values(),
                                                  .targets = rows_.targets(),
                                                  .stats = stats_,
                                                  .coefficients = coefficients_,
                                                  .out = to.bound},
                   {.read = read_sizes(part, begin),
                    .out = logits_segment(to),
                    .loss = rows_.loss_sizes(),
                    .cotangent = rows_.cotangent_sizes(),
                    .ld = ld(),
                    .add = r_.gradients.accumulate});
    });
    rows_.merge(stats_, s_.slices, s_.chunk_rows, begin);
  }

  void forward(std::int64_t begin) {
    for (const auto& part : logits_) {
      call_.launch(programs_.forward, grid(s_.chunk_rows),
                   kernels::forward_memory{.logits = part.bound,
                                           .class_weight = rows_.class_weight(),
                                           .info = rows_.info(),
                                           .rows = rows_.rows(),
                                           .labels = rows_.compact_labels(),
                                           .values = rows_.values(),
                                           .targets = rows_.targets(),
                                           .stats = stats_},
                   {.read = read_sizes(part, begin), .ld = ld(), .unused = 0});
    }
    rows_.merge(stats_, s_.slices, s_.chunk_rows, begin);
  }

  void gradient(std::int64_t begin) {
    rows_.coefficients(coefficients_, s_.chunk_rows, begin);
    for_each_pair([&](const auto& part, const auto& to) {
      call_.launch(programs_.gradient, grid(s_.chunk_rows),
                   kernels::gradient_memory{.logits = part.bound,
                                            .class_weight = rows_.class_weight(),
                                            .info = rows_.info(),
                                            .rows = rows_.rows(),
                                            .labels = rows_.compact_labels(),
                                            .values = rows_.values(),
                                            .targets = rows_.targets(),
                                            .coefficients = coefficients_,
                                            .out = to.bound},
                   {.read = read_sizes(part, begin),
                    .out = logits_segment(to),
                    .ld = ld(),
                    .add = r_.gradients.accumulate});
    });
  }

  void gradient_excluded() {
    for (const auto& to : out_) {
      if (to.end == to.begin) continue;
      call_.launch(s_.fused ? programs_.fused : programs_.gradient, grid(to.end - to.begin),
                   kernels::gradient_excluded_memory{.labels = rows_.labels(), .out = to.bound},
                   {.out = logits_segment(to),
                    .v_count = r_.loss.v,
                    .v_block = s_.blocks.v_block_size,
                    .add = r_.gradients.accumulate,
                    .unused = 0});
    }
  }

  opencl::Call& call_;
  const Request& r_;
  const Schedule& s_;
  const Programs& programs_;
  std::size_t group_;
  loss::LossRows rows_;
  std::vector<engines::Segment> logits_, out_;
  Scratch stats_{}, coefficients_{};
};

}  // namespace

void enqueue(opencl::Call& call, const Request& request, const engines::Engine& engine,
             const Schedule& schedule, const Programs& programs) {
  Run(call, request, engine, schedule, programs).enqueue();
}

}  // namespace tessera::softmax_cross_entropy
