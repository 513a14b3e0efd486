// SPDX-License-Identifier: Apache-2.0
#include "host/loss/opencl_programs.hpp"

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "host/opencl/specialise.hpp"

namespace tessera::loss {

namespace {

constexpr std::int64_t info_words = 16;  ///< cl_kernels/common/info.cl

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

}  // namespace

const opencl::Specialisation& loss_program(const loss::LossRequest& r) {
  constexpr DType label_types[] = {DType::i32, DType::i64};
  constexpr DType class_types[] = {DType::f32, DType::bf16, DType::f16};
  // All there are, put into words once: a small call would spend longer on that than on a kernel.
  static const auto all = [&] {
    std::vector<opencl::Specialisation> list;
    for (const auto labels : label_types) {
      for (const auto classes : class_types) {
        for (int flags = 0; flags < 8; ++flags) {
          opencl::Specialisation program{
              "loss/loss.cl", opencl::type_option("LABEL_TYPE", labels) + " " +
                                  opencl::type_option("CLASS_TYPE", classes) + flags_text(flags)};
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
  return {"loss/prepare.cl", opencl::type_option("VALUE_TYPE", type)};
}

RowPlaces::RowPlaces(const loss::LossRequest& request, std::int64_t tile_n) {
  const std::int64_t row = opencl::region_words(request.b);
  const auto next = [](std::int64_t& words, std::int64_t count) {
    return std::exchange(words, words + count);
  };
  class_of_label = next(value_words, row);
  if (request.weight) weight = next(value_words, row);
  if (has_gradients(request.pass)) {
    if (request.dloss) dloss = next(value_words, row);
    if (request.dlse) dlse = next(value_words, row);
    if (request.pass == Pass::value_and_grad) {
      statistics.max = next(value_words, row);
      statistics.sum = next(value_words, row);
    } else {
      statistics.max = next(value_words, opencl::region_words(2 * request.b));
      if (request.statistics) {  // (max, sum) of one row after the other
        statistics.sum = statistics.max + 1;
        statistics.stride = 2;
      }
    }
  }
  if (request.options.reduction != Reduction::none && request.outputs.loss) {
    row_loss = next(value_words, row);
  }
  list_words = info_words;
  labels = next(list_words, row);
  rows = next(list_words, row);
  compact_labels = next(list_words, opencl::region_words(request.b + tile_n));
}

std::int64_t loss_rows_words(const loss::LossRequest& request, std::int64_t tile_n) {
  const RowPlaces at(request, tile_n);
  // Outputs with more than one row stride are written densely first; statistics have two columns.
  return at.value_words + at.list_words + 8 * opencl::region_words(request.b);
}

std::string statistics_options(const loss::LossRequest& request) {
  return flags_text(flags_of(request));
}

bool merges_at_once(const loss::LossRequest& r, std::int64_t chunk_rows) {
  return r.b <= small_rows && chunk_rows >= r.b && chunk_rows <= small_rows;
}

std::vector<std::pair<opencl::Specialisation, std::string>> loss_kernels_of(
    const loss::LossRequest& r, std::int64_t chunk_rows) {
  const auto& program = loss_program(r);
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
  if (r.wants_values() && merges_at_once(r, chunk_rows)) {
    add({"finish_small"});
  } else if (r.wants_values()) {
    add({"merge"});
    if (r.outputs.loss && r.options.reduction != Reduction::none) add({"reduce_loss"});
  }
  if (has_gradients(r.pass)) add({"coefficients"});
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

}  // namespace tessera::loss
