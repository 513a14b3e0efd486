// SPDX-License-Identifier: Apache-2.0
#include "host/loss/opencl_rows.hpp"

#include <fmt/format.h>

#include "host/engines/segments.hpp"
#include "host/loss/targets.hpp"
#include "host/loss/validate.hpp"
#include "host/opencl/specialise.hpp"

namespace tessera::loss {

using opencl::Binding;
using opencl::Scratch;

namespace {

/// A work-group for each block of rows, or of classes.
opencl::Range per_block(std::int64_t count) {
  return opencl::per_element(blocks_of(count) * RUN_ITEMS);
}

/// What begins at a place of a region.
Scratch part_of(Scratch region, std::int64_t place) {
  region.offset += place;
  return region;
}

}  // namespace

LossRows::LossRows(opencl::Call& call, const loss::LossRequest& request, std::int64_t tile_n)
    : call_(call),
      request_(request),
      tile_n_(tile_n),
      small_(request.b <= small_rows),
      at_(request, tile_n),
      program_(loss_program(request)) {}

void LossRows::gather(const View& view, const char* name, std::int64_t place, std::int64_t rows,
                      int columns) {
  if (!view) return;
  const Binding source = call_.read(view, name);
  const int axes = source.extents.rank() - (columns > 1 ? 1 : 0);
  const auto launch = [&](const opencl::Specialisation& program) {
    call_.launch(program, opencl::per_element(rows),
                 kernels::gather_values_memory{.values = source, .out = part_of(values_, place)},
                 {.geometry = engines::geometry_of(source, axes),
                  .column_stride = columns > 1 ? source.strides.back() : std::int64_t{0},
                  .width = columns,
                  .rows = rows});
  };
  if (view.dtype() == DType::f32) {
    launch(program_);
  } else {
    launch(gather_program(view.dtype()));
  }
}

LossRows::Output LossRows::bind_output(const MutableView& view, const char* name, int columns) {
  Output output;
  if (!view) return output;
  const Binding bound = call_.write(view, name, false);
  const int axes = bound.extents.rank() - (columns > 1 ? 1 : 0);
  const auto geometry = engines::geometry_of(bound, axes);
  const std::int64_t column = columns > 1 ? bound.strides.back() : 1;
  // One axis: the rest is merged into it. Kernels know the index of a column as an i32.
  if (geometry.extent[1] == 1 && view.dtype() != DType::i64) {
    output.direct = bound;
    output.stride = geometry.stride[0];
    output.column = column;
    return output;
  }
  output.target = bound;
  output.width = columns;
  output.to_i64 = view.dtype() == DType::i64;
  output.direct = call_.scratch(request_.b * columns, name);
  output.stride = columns;
  return output;
}

kernels::call_rows LossRows::call_rows() const {
  const auto& r = request_;
  return {.rows = r.b,
          .v = r.v,
          .v_total = r.v_total,
          .vocab_offset = r.options.vocab_offset,
          .ignore_index = r.options.ignore_index,
          .class_stride = class_stride_,
          .class_of_label = at_.class_of_label,
          .weight = at_.weight,
          .share = at_.share,
          .labels = at_.labels,
          .counted_rows = at_.rows,
          .counted_labels = at_.compact_labels,
          .padding = tile_n_,
          .runs = at_.runs,
          .class_runs = at_.class_runs};
}

kernels::row_output_strides LossRows::output_strides() const {
  return {.loss = loss_.stride,
          .lse = lse_.stride,
          .argmax = argmax_.stride,
          .label_logprob = label_logprob_.stride,
          .entropy = entropy_.stride,
          .z_loss = z_loss_.stride,
          .statistics = statistics_.stride,
          .statistics_column = statistics_.column};
}

template <class Pointers>
Pointers LossRows::with_outputs() const {
  Pointers pointers{};
  pointers.loss = loss_.direct;
  pointers.lse = lse_.direct;
  pointers.argmax = argmax_.direct;
  pointers.label_logprob = label_logprob_.direct;
  pointers.entropy = entropy_.direct;
  pointers.z_loss = z_loss_.direct;
  pointers.statistics = statistics_.direct;
  pointers.partial = partial_;
  return pointers;
}

/// What both kernels that merge statistics take.
template <class Pointers>
Pointers LossRows::merging(const Scratch& stats) const {
  auto pointers = with_outputs<Pointers>();
  pointers.stats = stats;
  pointers.info = info_;
  pointers.rows = rows_;
  pointers.values = values_;
  return pointers;
}

void LossRows::prepare() {
  const auto& r = request_;
  lists_ = call_.scratch(at_.list_words, "lists of rows");
  values_ = call_.scratch(at_.value_words, "numbers of rows");
  info_ = lists_;
  labels_ = part_of(lists_, at_.labels);
  rows_ = part_of(lists_, at_.rows);
  compact_labels_ = part_of(lists_, at_.compact_labels);

  if (r.class_weight) {
    class_weight_ = call_.read(r.class_weight, "class_weight");
    class_stride_ = class_weight_.strides[0];
  }
  if (r.targets) {
    targets_ = call_.read(r.targets, "targets");
    targets_local_ = targets_;
    targets_local_.offset += r.options.vocab_offset * targets_.strides.back();
  }
  class_weight_local_ = class_weight_;
  class_weight_local_.offset += r.options.vocab_offset * class_stride_;
  gather(r.weight, "weight", at_.weight, r.b, 1);
  if (has_gradients(r.pass)) {
    const bool per_row = r.options.reduction == Reduction::none;
    gather(r.dloss, "dloss", at_.dloss, per_row ? r.b : 1, 1);
    gather(r.dlse, "dlse", at_.dlse, r.b, 1);
    if (r.pass == Pass::backward) {
      if (r.statistics) {
        gather(r.statistics, "statistics", at_.statistics.max, r.b, 2);
      } else {
        gather(r.lse, "lse", at_.statistics.max, r.b, 1);
      }
    }
  }
  if (r.wants_values()) bind_outputs();
  find_targets();
}

/// What rows are about, the list of those that count, and the outputs of those that do not.
void LossRows::find_targets() {
  const auto& r = request_;
  if (at_.class_runs >= 0) {
    call_.launch(program_, per_block(r.v_total),
                 kernels::sum_classes_memory{.class_weight = class_weight_, .lists = lists_},
                 {.call = call_rows()});
  }
  if (r.has_soft_targets()) {
    gather_soft_targets();
  } else {
    const Binding labels = call_.read(r.labels, "labels");
    const auto geometry = engines::geometry_of(labels, labels.extents.rank());
    if (small_) {
      auto pointers = with_outputs<kernels::prepare_small_memory>();
      pointers.labels = labels;
      pointers.class_weight = class_weight_;
      pointers.lists = lists_;
      pointers.values = values_;
      pointers.info = info_;
      call_.launch(program_, opencl::per_element(small_rows), pointers,
                   {.geometry = geometry,
                    .call = call_rows(),
                    .strides = output_strides(),
                    .wants_values = r.wants_values(),
                    .unused = 0});
      return;
    }
    call_.launch(
        program_, opencl::per_element(r.b),
        kernels::gather_labels_memory{
            .labels = labels, .class_weight = class_weight_, .lists = lists_, .values = values_},
        {.geometry = geometry, .call = call_rows()});
  }
  if (blocks_of(r.b) > 1) {
    call_.launch(program_, per_block(r.b),
                 kernels::count_rows_memory{.lists = lists_, .values = values_},
                 {.call = call_rows()});
  }
  call_.launch(program_, per_block(r.b),
               kernels::compact_memory{.lists = lists_, .values = values_, .info = info_},
               {.call = call_rows()});
  if (r.target_indices) sort_pairs();
  if (!r.wants_values()) return;
  auto pointers = with_outputs<kernels::fill_excluded_memory>();
  pointers.labels = labels_;
  call_.launch(program_, opencl::per_element(r.b), pointers,
               {.strides = output_strides(), .rows = r.b});
}

void LossRows::bind_outputs() {
  const auto& r = request_;
  const auto& o = r.outputs;
  if (o.loss) {
    if (r.options.reduction == Reduction::none) {
      loss_ = bind_output(o.loss, "loss", 1);
    } else {
      scalar_loss_ = call_.write(o.loss, "loss", false);
      loss_.direct = part_of(values_, at_.row_loss);
      loss_.stride = 1;
    }
  }
  lse_ = bind_output(o.lse, "lse", 1);
  argmax_ = bind_output(o.argmax, "argmax", 1);
  label_logprob_ = bind_output(o.label_logprob, "label_logprob", 1);
  entropy_ = bind_output(o.entropy, "entropy", 1);
  z_loss_ = bind_output(o.z_loss, "z_loss", 1);
  statistics_ = bind_output(o.statistics, "statistics", 2);
  if (r.partial) partial_ = call_.write(r.partial, "partial", false);
}

void LossRows::merge(const Scratch& stats, std::int64_t slices, std::int64_t ld,
                     std::int64_t chunk_begin) {
  const auto& r = request_;
  if (chunk_begin == 0 && merges_at_once(r, ld)) {
    pending_ = {stats, slices, ld};
    return;
  }
  const auto pointers = merging<kernels::merge_memory>(stats);
  call_.launch(program_, opencl::per_element(ld), pointers,
               {.strides = output_strides(),
                .loss = loss_sizes(),
                .merged = at_.statistics,
                .targets = target_sizes(),
                .chunk_begin = chunk_begin,
                .slices = static_cast<std::int32_t>(slices),
                .ld = static_cast<std::int32_t>(ld)});
}

void LossRows::merge_small(const Scratch& out) {
  auto pointers = merging<kernels::finish_small_memory>(pending_.stats);
  pointers.out = out;
  pointers.scalar_loss = scalar_loss_;
  call_.launch(program_, opencl::per_element(small_rows), pointers,
               {.strides = output_strides(),
                .loss = loss_sizes(),
                .cotangent = cotangent_sizes(),
                .merged = at_.statistics,
                .targets = target_sizes(),
                .rows = request_.b,
                .slices = static_cast<std::int32_t>(pending_.slices),
                .ld = static_cast<std::int32_t>(pending_.ld)});
  pending_.ld = 0;
  reduced_ = true;
}

void LossRows::coefficients(const Scratch& out, std::int64_t ld, std::int64_t chunk_begin) {
  if (pending_.ld == ld && chunk_begin == 0) {
    merge_small(out);
    return;
  }
  call_.launch(
      program_, opencl::per_element(ld),
      kernels::coefficients_memory{.out = out, .info = info_, .rows = rows_, .values = values_},
      {.loss = loss_sizes(),
       .cotangent = cotangent_sizes(),
       .given = at_.statistics,
       .chunk_begin = chunk_begin,
       .ld = static_cast<std::int32_t>(ld),
       .unused = 0});
}

kernels::loss_sizes LossRows::loss_sizes() const {
  const auto& o = request_.options;
  return {.class_of_label = at_.class_of_label,
          .weight = at_.weight,
          .logsumexp_weight = o.logsumexp_weight,
          .label_smoothing = o.label_smoothing,
          .v_total = static_cast<float>(request_.v_total),
          .mean = o.reduction == Reduction::mean,
          .term = at_.term,
          .nll_weight = request_.nll_weight,
          .has_targets = request_.has_targets()};
}

kernels::cotangent_sizes LossRows::cotangent_sizes() const {
  return {.dloss = at_.dloss,
          .dloss_stride = request_.options.reduction == Reduction::none ? 1 : 0,
          .dlse = at_.dlse};
}

void LossRows::finish() {
  const auto& r = request_;
  if (pending_.ld > 0) merge_small({});
  if (scalar_loss_.memory && !reduced_) {
    if (blocks_of(r.b) > 1) {
      call_.launch(program_, per_block(r.b),
                   kernels::sum_losses_memory{.row_loss = loss_.direct, .lists = lists_},
                   {.rows = r.b, .runs = at_.runs});
    }
    call_.launch(program_, per_block(1),
                 kernels::reduce_loss_memory{
                     .row_loss = loss_.direct, .lists = lists_, .loss = scalar_loss_},
                 {.rows = r.b,
                  .runs = at_.runs,
                  .mean = r.options.reduction == Reduction::mean,
                  .unused = 0});
  }
  for (const Output* output :
       {&loss_, &lse_, &argmax_, &label_logprob_, &entropy_, &z_loss_, &statistics_}) {
    if (!output->target.memory) continue;
    const int axes = output->target.extents.rank() - (output->width > 1 ? 1 : 0);
    call_.launch(program_, opencl::per_element(r.b),
                 kernels::scatter_rows_memory{.values = output->direct, .out = output->target},
                 {.copy = {.geometry = engines::geometry_of(output->target, axes),
                           .column_stride =
                               output->width > 1 ? output->target.strides.back() : std::int64_t{1},
                           .width = output->width,
                           .rows = r.b},
                  .to_i64 = output->to_i64});
  }
  if (!is_known(r)) report_bad_targets();
}

}  // namespace tessera::loss
