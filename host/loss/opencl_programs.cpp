// SPDX-License-Identifier: Apache-2.0
#include "host/loss/opencl_programs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "host/dispatch/host_views.hpp"
#include "host/opencl/specialise.hpp"

namespace tessera::loss {

namespace {

constexpr std::int64_t info_words = 16;  ///< cl_kernels/common/info.cl

std::string flags_text(int flags) {
  const auto flag = [&](int bit) { return (flags & bit) != 0 ? "1" : "0"; };
  return std::string(" -DWANT_CLASS=") + flag(1) + " -DWANT_EXP=" + flag(2) +
         " -DWANT_ARGMAX=" + flag(4) + " -DPARTIAL=" + flag(8);
}

/// What statistics carry: 1 the class sums, 2 the sum of exp(logit) * logit, 4 argmax; 8: those of
/// soft targets are a shard's.
int flags_of(const loss::LossRequest& request) {
  const bool partial = static_cast<bool>(request.partial);
  const bool smoothing = request.options.label_smoothing != 0.0f;
  const bool dense = static_cast<bool>(request.targets);  // they are class weights to statistics
  return (partial || smoothing || dense ? 1 : 0) + (partial || request.outputs.entropy ? 2 : 0) +
         (partial || request.outputs.argmax ? 4 : 0) +
         (partial && request.has_soft_targets() ? 8 : 0);
}

enum class Form { labels, pairs, dense };  ///< TARGETS_* of cl_kernels/common/info.cl

Form form_of(const loss::LossRequest& request) {
  return request.targets ? Form::dense : request.target_indices ? Form::pairs : Form::labels;
}

std::string target_options(Form form, DType type) {
  if (form == Form::labels) return {};
  return " -DTARGETS=" + std::to_string(static_cast<int>(form)) + " " +
         opencl::type_option("TARGET_TYPE", type);
}

/// Of the probabilities; f32 where there are none.
DType target_type(const loss::LossRequest& request) {
  const View& given = request.targets ? request.targets : request.target_probs;
  return given ? given.dtype() : DType::f32;
}

constexpr int flag_sets = 16;
constexpr DType index_types[] = {DType::i32, DType::i64};  ///< of labels and target_indices
constexpr DType number_types[] = {DType::f32, DType::bf16, DType::f16};

template <std::size_t n>
std::size_t place_of(DType type, const DType (&types)[n]) {
  return static_cast<std::size_t>(std::find(types, types + n, type) - types);
}

/// All that rows with such targets may need, put into words once: a small call would spend longer
/// on that than on a kernel. By type of probabilities, of indices, of class weights, then flags.
/// Never destroyed, like the tables of operators.
template <Form form>
const std::vector<opencl::Specialisation>& loss_programs() {
  static const auto& all = *new auto([] {
    std::vector<opencl::Specialisation> list;
    for (const auto probabilities : number_types) {
      for (const auto indices : index_types) {
        for (const auto classes : number_types) {
          for (int flags = 0; flags < flag_sets; ++flags) {
            opencl::Specialisation program{
                "loss/loss.cl", opencl::type_option("LABEL_TYPE", indices) + " " +
                                    opencl::type_option("CLASS_TYPE", classes) + flags_text(flags) +
                                    target_options(form, probabilities)};
            program.hash = opencl::hash_of(program);
            list.push_back(std::move(program));
          }
        }
      }
      if (form == Form::labels) break;  // there are none
    }
    return list;
  }());
  return all;
}

}  // namespace

std::optional<std::string> why_unsupported(const loss::LossRequest& request,
                                           const opencl::DeviceFacts& facts) {
  // The one array of a loss as large as the logits, and not read in parts.
  const View& targets = request.targets;
  if (!targets || targets.is_device()) return std::nullopt;
  const std::int64_t bytes = dispatch::footprint_bytes(targets);
  if (bytes <= facts.max_allocation_bytes) return std::nullopt;
  return fmt::format(
      "targets reaches over {} bytes, more than the device's maximum allocation of {}; give fewer "
      "rows at a time, or use eigen",
      bytes, facts.max_allocation_bytes);
}

std::int64_t statistics_fields(const loss::LossRequest& request) {
  if (form_of(request) != Form::dense) return 8;
  return request.partial ? 11 : 9;
}

std::string target_options(const loss::LossRequest& request) {
  return target_options(form_of(request), target_type(request));
}

const opencl::Specialisation& loss_program(const loss::LossRequest& r) {
  const Form form = form_of(r);
  const View& indices = form == Form::pairs ? r.target_indices : r.labels;
  const std::size_t index_at = indices ? place_of(indices.dtype(), index_types) : 0;
  const std::size_t class_at = r.class_weight ? place_of(r.class_weight.dtype(), number_types) : 0;
  const std::size_t at =
      ((place_of(target_type(r), number_types) * std::size(index_types) + index_at) *
           std::size(number_types) +
       class_at) *
          flag_sets +
      static_cast<std::size_t>(flags_of(r));
  return form == Form::labels  ? loss_programs<Form::labels>()[at]
         : form == Form::pairs ? loss_programs<Form::pairs>()[at]
                               : loss_programs<Form::dense>()[at];
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
  if (request.has_terms && request.wants_values()) term = next(value_words, row);
  share = class_of_label;
  if (request.has_soft_targets()) share = next(value_words, row);
  list_words = info_words;
  labels = next(list_words, row);
  rows = next(list_words, row);
  compact_labels = next(list_words, opencl::region_words(request.b + tile_n));
  const auto runs_of = [](std::int64_t count) {
    return opencl::region_words(blocks_of(count) * std::int64_t{sizeof(kernels::row_run)} / 4);
  };
  runs = next(list_words, runs_of(request.b));
  if (request.class_weight && request.options.label_smoothing != 0.0f) {
    class_runs = next(list_words, runs_of(request.v_total));
  }
  if (!request.target_indices) return;
  pair_rows = opencl::region_words(request.b + tile_n);
  const std::int64_t pairs = request.k * pair_rows;
  pair_columns = next(list_words, pairs);
  pair_probs = next(value_words, pairs);
  // Without class weights the factors are the probabilities.
  pair_factors = request.class_weight ? next(value_words, pairs) : pair_probs;
  pair_logits = next(value_words, pairs);
}

std::int64_t loss_rows_words(const loss::LossRequest& request, std::int64_t tile_n) {
  const RowPlaces at(request, tile_n);
  // Outputs with more than one row stride, or of i64, are written densely first; statistics have
  // two columns.
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
  if (r.class_weight && r.options.label_smoothing != 0.0f) add({"sum_classes"});
  if (blocks_of(r.b) > 1) add({"count_rows"});
  if (r.has_soft_targets()) {
    if (r.target_indices) {
      add({"gather_pairs", "compact", "sort_pairs"});
    } else {
      add({"gather_dense", "compact"});
    }
    if (r.wants_values()) add({"fill_excluded"});
  } else if (r.b <= small_rows) {
    add({"prepare_small"});
  } else {
    add({"gather_labels", "compact"});
    if (r.wants_values()) add({"fill_excluded"});
  }
  if (r.wants_values() && merges_at_once(r, chunk_rows)) {
    add({"finish_small"});
  } else if (r.wants_values()) {
    add({"merge"});
    if (r.outputs.loss && r.options.reduction != Reduction::none) {
      if (blocks_of(r.b) > 1) add({"sum_losses"});
      add({"reduce_loss"});
    }
  }
  if (has_gradients(r.pass)) add({"coefficients"});
  const auto& o = r.outputs;
  const auto scattered = [](const MutableView& view, int columns) {
    return view && (view.rank() - (columns > 1 ? 1 : 0) > 1 || view.dtype() == DType::i64);
  };
  if (scattered(o.loss, 1) || scattered(o.lse, 1) || scattered(o.argmax, 1) ||
      scattered(o.label_logprob, 1) || scattered(o.entropy, 1) || scattered(o.z_loss, 1) ||
      scattered(o.statistics, 2)) {
    add({"scatter_rows"});
  }
  return list;
}

}  // namespace tessera::loss
