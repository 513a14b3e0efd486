// SPDX-License-Identifier: Apache-2.0
#include "host/engines/loss_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "host/engines/engine.hpp"
#include "host/engines/segments.hpp"
#include "host/loss/validate.hpp"

namespace tessera::engines {

std::int64_t region_words(std::int64_t words) {
  return round_up(std::max<std::int64_t>(words, 1), 16);
}

std::string type_option(const char* name, DType type) {
  return std::string("-D") + name + '=' + static_cast<char>('0' + static_cast<int>(type));
}

namespace {

using opencl::Binding;
using opencl::Scratch;

constexpr std::int64_t info_words = 16;  ///< cl_kernels/common/info.cl

/// Rows that the kernels of cl_kernels/loss/loss.cl for small calls take: one work-group of
/// `per_element`, which every device can run.
constexpr std::int64_t small_rows = 64;

std::string flags_text(int flags) {
  const auto flag = [&](int bit) { return (flags & bit) != 0 ? "1" : "0"; };
  return std::string(" -DWANT_CLASS=") + flag(1) + " -DWANT_EXP=" + flag(2) +
         " -DWANT_ARGMAX=" + flag(4);
}

/// What statistics carry: 1 the class sums, 2 the sum of exp(logit) * logit, 4 argmax.
int flags_of(const loss::LossRequest& request) {
  const bool partial = static_cast<bool>(request.partial);
  const bool smoothing = request.options.label_smoothing != 0.0f;
  return (partial || smoothing ? 1 : 0) + (partial || request.outputs.entropy ? 2 : 0) +
         (partial || request.outputs.argmax ? 4 : 0);
}

/// The program of every kernel here but `gather_values` of other types than f32. All there are, put
/// into words once: a small call would spend longer on that than on a kernel.
const opencl::Specialisation& program_of(const loss::LossRequest& r) {
  constexpr DType label_types[] = {DType::i32, DType::i64};
  constexpr DType class_types[] = {DType::f32, DType::bf16, DType::f16};
  static const auto all = [&] {
    std::vector<opencl::Specialisation> list;
    for (const auto labels : label_types) {
      for (const auto classes : class_types) {
        for (int flags = 0; flags < 8; ++flags) {
          opencl::Specialisation program{"loss/loss.cl", type_option("LABEL_TYPE", labels) + " " +
                                                             type_option("CLASS_TYPE", classes) +
                                                             flags_text(flags)};
          program.hash = opencl::hash_of(program);
          list.push_back(std::move(program));
        }
      }
    }
    return list;
  }();
  const DType classes = r.class_weight ? r.class_weight.dtype() : DType::f32;
  const auto label_at = r.labels.dtype() == DType::i32 ? 0 : 1;
  const auto class_at =
      std::find(std::begin(class_types), std::end(class_types), classes) - std::begin(class_types);
  return all[static_cast<std::size_t>((label_at * 3 + class_at) * 8 + flags_of(r))];
}

opencl::Specialisation gather_program(DType type) {
  return {"loss/prepare.cl", type_option("VALUE_TYPE", type)};
}

}  // namespace

opencl::Range per_element(std::int64_t count, std::int64_t second) {
  constexpr std::int64_t group = 64;
  return {{static_cast<std::size_t>(round_up(std::max<std::int64_t>(count, 1), group)),
           static_cast<std::size_t>(std::max<std::int64_t>(second, 1)), 1},
          {static_cast<std::size_t>(group), 1, 1}};
}

std::int64_t loss_rows_words(const loss::LossRequest& request, std::int64_t tile_n) {
  const std::int64_t row = region_words(request.b);
  // info, then labels, class_of_label, rows and compact labels.
  std::int64_t words = info_words + 3 * row + region_words(request.b + tile_n);
  if (request.weight) words += row;
  if (request.wants_gradients()) {
    if (request.dloss) words += row;
    if (request.dlse) words += row;
    if (request.pass == Pass::backward) words += region_words(2 * request.b);
    if (request.pass == Pass::value_and_grad) words += 2 * row;
  }
  if (request.options.reduction != Reduction::none && request.outputs.loss) words += row;
  // Outputs with more than one row stride are written densely first; statistics have two columns.
  return words + 8 * row;
}

std::string statistics_options(const loss::LossRequest& request) {
  return flags_text(flags_of(request));
}

namespace {
/// Whether one launch merges the statistics of all rows and reduces the loss: a small call whose
/// first chunk has them all.
bool merges_at_once(bool small, const loss::LossRequest& r, std::int64_t chunk_rows) {
  return small && chunk_rows >= r.b && chunk_rows <= small_rows;
}
}  // namespace

std::vector<std::pair<opencl::Specialisation, std::string>> loss_kernels_of(
    const loss::LossRequest& r, std::int64_t chunk_rows) {
  const auto& program = program_of(r);
  std::vector<std::pair<opencl::Specialisation, std::string>> list;
  const auto add = [&](std::initializer_list<const char*> entries) {
    for (const char* entry : entries) list.emplace_back(program, entry);
  };
  for (const View* view : {&r.weight, &r.dloss, &r.dlse, &r.lse, &r.statistics}) {
    if (!*view) continue;
    const bool plain = view->dtype() == DType::f32;
    list.emplace_back(plain ? program : gather_program(view->dtype()), "gather_values");
  }
  const bool small = r.b <= small_rows;
  if (small) {
    add({"prepare_small"});
  } else {
    add({"gather_labels", "compact"});
    if (r.wants_values()) add({"fill_excluded"});
  }
  if (r.wants_values() && merges_at_once(small, r, chunk_rows)) {
    add({"finish_small"});
  } else if (r.wants_values()) {
    add({"merge"});
    if (r.outputs.loss && r.options.reduction != Reduction::none) add({"reduce_loss"});
  }
  if (r.wants_gradients()) add({"coefficients"});
  const auto& o = r.outputs;
  const auto scattered = [](const MutableView& view, int columns) {
    return view && view.rank() - (columns > 1 ? 1 : 0) > 1;
  };
  if (scattered(o.loss, 1) || scattered(o.lse, 1) || scattered(o.argmax, 1) ||
      scattered(o.label_logprob, 1) || scattered(o.entropy, 1) || scattered(o.z_loss, 1) ||
      scattered(o.statistics, 2)) {
    add({"scatter_rows"});
  }
  return list;
}

LossRows::LossRows(opencl::Call& call, const loss::LossRequest& request, std::int64_t tile_n)
    : call_(call),
      request_(request),
      tile_n_(tile_n),
      small_(request.b <= small_rows),
      program_(program_of(request)) {}

Scratch LossRows::gather(const View& view, const char* name, std::int64_t rows, int columns) {
  if (!view) return {};
  const Binding source = call_.read(view, name);
  const int axes = source.extents.rank() - (columns > 1 ? 1 : 0);
  const Scratch out = call_.scratch(rows * columns, name);
  const auto launch = [&](const opencl::Specialisation& program) {
    call_.launch(program, "gather_values", per_element(rows), source, geometry_of(source, axes),
                 columns > 1 ? source.strides.back() : std::int64_t{0},
                 static_cast<std::int64_t>(columns), out, rows);
  };
  if (view.dtype() == DType::f32) {
    launch(program_);
  } else {
    launch(gather_program(view.dtype()));
  }
  return out;
}

LossRows::Output LossRows::bind_output(const MutableView& view, const char* name, int columns) {
  Output output;
  if (!view) return output;
  const Binding bound = call_.write(view, name, false);
  const int axes = bound.extents.rank() - (columns > 1 ? 1 : 0);
  const auto geometry = geometry_of(bound, axes);
  const std::int64_t column = columns > 1 ? bound.strides.back() : 1;
  if (geometry.extent[1] == 1) {  // one axis: the rest is merged into it
    output.direct = bound;
    output.stride = geometry.stride[0];
    output.column = column;
    return output;
  }
  output.target = bound;
  output.width = columns;
  output.direct = call_.scratch(request_.b * columns, name);
  output.stride = columns;
  return output;
}

void LossRows::prepare() {
  const auto& r = request_;
  info_ = call_.scratch(info_words, "row counts");
  labels_ = call_.scratch(r.b, "labels");
  class_of_label_ = call_.scratch(r.b, "class weights of labels");
  rows_ = call_.scratch(r.b, "row list");
  compact_labels_ = call_.scratch(r.b + tile_n_, "compact labels");

  const Binding labels = call_.read(r.labels, "labels");
  if (r.class_weight) {
    class_weight_ = call_.read(r.class_weight, "class_weight");
    class_stride_ = class_weight_.strides[0];
  }
  class_weight_local_ = class_weight_;
  class_weight_local_.offset += r.options.vocab_offset * class_stride_;
  const auto geometry = geometry_of(labels, labels.extents.rank());
  const auto smooths = static_cast<std::int32_t>(r.options.label_smoothing != 0.0f);
  if (!small_) {
    call_.launch(program_, "gather_labels", per_element(r.b), labels, geometry, class_weight_,
                 class_stride_, labels_, class_of_label_, r.b, r.v, r.v_total,
                 r.options.vocab_offset, r.options.ignore_index);
  }
  weight_ = gather(r.weight, "weight", r.b, 1);
  if (!small_) {
    call_.launch(program_, "compact", opencl::Range{{1, 1, 1}, {1, 1, 1}}, labels_, class_of_label_,
                 weight_, class_weight_, class_stride_, rows_, compact_labels_, info_, r.b, tile_n_,
                 r.v_total, smooths);
  }

  if (r.wants_gradients()) {
    const bool per_row = r.options.reduction == Reduction::none;
    dloss_ = gather(r.dloss, "dloss", per_row ? r.b : 1, 1);
    dlse_ = gather(r.dlse, "dlse", r.b, 1);
    if (r.pass == Pass::backward) {
      given_statistics_ =
          r.statistics ? gather(r.statistics, "statistics", r.b, 2) : gather(r.lse, "lse", r.b, 1);
    } else {
      row_max_ = call_.scratch(r.b, "row maxima");
      row_sum_ = call_.scratch(r.b, "row sums");
    }
  }
  if (r.wants_values()) bind_outputs();
  if (small_) {
    call_.launch(program_, "prepare_small", per_element(small_rows), labels, geometry,
                 class_weight_, class_stride_, labels_, class_of_label_, r.b, r.v, r.v_total,
                 r.options.vocab_offset, r.options.ignore_index, weight_, rows_, compact_labels_,
                 info_, tile_n_, smooths, static_cast<std::int32_t>(r.wants_values()), loss_.direct,
                 loss_.stride, lse_.direct, lse_.stride, argmax_.direct, argmax_.stride,
                 label_logprob_.direct, label_logprob_.stride, entropy_.direct, entropy_.stride,
                 z_loss_.direct, z_loss_.stride, statistics_.direct, statistics_.stride,
                 statistics_.column, partial_);
    return;
  }
  if (!r.wants_values()) return;
  call_.launch(program_, "fill_excluded", per_element(r.b), labels_, loss_.direct, loss_.stride,
               lse_.direct, lse_.stride, argmax_.direct, argmax_.stride, label_logprob_.direct,
               label_logprob_.stride, entropy_.direct, entropy_.stride, z_loss_.direct,
               z_loss_.stride, statistics_.direct, statistics_.stride, statistics_.column, partial_,
               r.b);
}

void LossRows::bind_outputs() {
  const auto& r = request_;
  const auto& o = r.outputs;
  if (o.loss) {
    if (r.options.reduction == Reduction::none) {
      loss_ = bind_output(o.loss, "loss", 1);
    } else {
      scalar_loss_ = call_.write(o.loss, "loss", false);
      row_loss_ = call_.scratch(r.b, "row losses");
      loss_.direct = row_loss_;
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
  if (chunk_begin == 0 && merges_at_once(small_, r, ld)) {
    pending_ = {stats, slices, ld};
    return;
  }
  call_.launch(program_, "merge", per_element(ld), stats, static_cast<std::int32_t>(slices),
               static_cast<std::int32_t>(ld), info_, rows_, chunk_begin, weight_, class_of_label_,
               row_max_, row_sum_, loss_.direct, loss_.stride, lse_.direct, lse_.stride,
               argmax_.direct, argmax_.stride, label_logprob_.direct, label_logprob_.stride,
               entropy_.direct, entropy_.stride, z_loss_.direct, z_loss_.stride, statistics_.direct,
               statistics_.stride, statistics_.column, partial_, r.options.logsumexp_weight,
               r.options.label_smoothing, static_cast<float>(r.v_total));
}

void LossRows::merge_small(const Scratch& out) {
  const auto& r = request_;
  const bool per_row = r.options.reduction == Reduction::none;
  call_.launch(program_, "finish_small", per_element(small_rows), pending_.stats,
               static_cast<std::int32_t>(pending_.slices), static_cast<std::int32_t>(pending_.ld),
               info_, rows_, weight_, class_of_label_, row_max_, row_sum_, loss_.direct,
               loss_.stride, lse_.direct, lse_.stride, argmax_.direct, argmax_.stride,
               label_logprob_.direct, label_logprob_.stride, entropy_.direct, entropy_.stride,
               z_loss_.direct, z_loss_.stride, statistics_.direct, statistics_.stride,
               statistics_.column, partial_, r.options.logsumexp_weight, r.options.label_smoothing,
               static_cast<float>(r.v_total), out, dloss_, std::int64_t{per_row ? 1 : 0}, dlse_,
               static_cast<std::int32_t>(r.options.reduction == Reduction::mean), scalar_loss_,
               r.b);
  pending_.ld = 0;
  reduced_ = true;
}

void LossRows::coefficients(const Scratch& out, std::int64_t ld, std::int64_t chunk_begin) {
  const auto& r = request_;
  if (pending_.ld == ld && chunk_begin == 0) {
    merge_small(out);
    return;
  }
  Scratch first = row_max_;
  Scratch second = row_sum_;
  std::int64_t stride = 1;
  if (r.pass == Pass::backward) {
    first = given_statistics_;
    if (r.statistics) {
      second = given_statistics_;
      second.offset += 1;
      stride = 2;
    }
  }
  const auto c = cotangents();
  call_.launch(program_, "coefficients", per_element(ld), out, static_cast<std::int32_t>(ld), info_,
               rows_, chunk_begin, first, second, stride, c.weight, c.class_of_label, c.dloss,
               c.dloss_stride, c.dlse, c.mean, c.logsumexp_weight, c.label_smoothing, c.v_total);
}

LossRows::Cotangents LossRows::cotangents() const {
  const auto& o = request_.options;
  return {weight_,
          class_of_label_,
          dloss_,
          o.reduction == Reduction::none ? 1 : 0,
          dlse_,
          static_cast<std::int32_t>(o.reduction == Reduction::mean),
          o.logsumexp_weight,
          o.label_smoothing,
          static_cast<float>(request_.v_total)};
}

void LossRows::finish() {
  const auto& r = request_;
  if (pending_.ld > 0) merge_small({});
  if (scalar_loss_.memory && !reduced_) {
    call_.launch(program_, "reduce_loss", opencl::Range{{1, 1, 1}, {1, 1, 1}}, row_loss_, info_,
                 scalar_loss_, r.b,
                 static_cast<std::int32_t>(r.options.reduction == Reduction::mean));
  }
  for (const Output* output :
       {&loss_, &lse_, &argmax_, &label_logprob_, &entropy_, &z_loss_, &statistics_}) {
    if (!output->target.memory) continue;
    const int axes = output->target.extents.rank() - (output->width > 1 ? 1 : 0);
    call_.launch(program_, "scatter_rows", per_element(r.b), output->direct,
                 geometry_of(output->target, axes),
                 output->width > 1 ? output->target.strides.back() : std::int64_t{1}, output->width,
                 output->target, r.b);
  }
  if (r.labels.is_device()) {
    // Host labels were checked before any work; device labels are only known now.
    auto words = std::make_shared<std::vector<float>>(4);
    call_.read_back(info_, 4, words);
    call_.check_on_completion([words, v_total = r.v_total, leading = r.leading] {
      std::int32_t info[4];
      std::memcpy(info, words->data(), sizeof info);
      if (info[1] == 0) return;
      const std::int64_t row =
          (static_cast<std::int64_t>(info[3]) << 32) | static_cast<std::uint32_t>(info[2]);
      throw Error(ErrorCode::label_out_of_range,
                  fmt::format("labels: row {} is the first of {} with a label outside [0, {}) that "
                              "is not ignore_index; their loss and grad_x are NaN",
                              loss::describe_row(row, leading), info[1], v_total));
    });
  }
}

}  // namespace tessera::engines
