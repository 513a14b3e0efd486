// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>

#include "programs/cli.hpp"
#include "programs/score.hpp"

namespace tessera::programs {

ScoreArrays::ScoreArrays(const ScoreOptions& o)
    : w_is_vh_(o.w_is_vh.value_or(false)), teacher_w_is_vh_(o.teacher_w_is_vh.value_or(w_is_vh_)) {
  const auto load = [&](const ArrayOption& array) {
    if (!o.given(array.name)) return;
    arrays_[array.name] =
        NpyArray::load(array.option, o.files.at(array.name),
                       array.integer ? NpyRole::integer : NpyRole::floating, o.bf16_bits);
  };
  // The labels first: their shape is what per-token arrays are held against.
  for (const bool integer : {true, false}) {
    for (const auto& array : array_options()) {
      if (array.integer == integer) load(array);
    }
  }
  if (!o.statistics.empty()) {
    for (const char* name : {"statistics", "divergence_statistics"}) {
      if (o.op().input(name) == nullptr) continue;
      const auto path = std::filesystem::path(o.statistics) / fmt::format("{}.npy", name);
      arrays_[name] = NpyArray::load("--statistics", path.string(), NpyRole::floating, o.bf16_bits);
    }
  }
  if (o.mode() == ScoreMode::combine) return;
  for (const auto& input : o.op().inputs) {
    const bool of_features = input.shape.has_leading() && input.shape.rank() > 0;
    if (o.given(input.name) && (of_features || input.is_weight())) {
      check(input, o.files.at(input.name));
    }
  }
}

const NpyArray& ScoreArrays::operator[](const std::string& name) const {
  static const NpyArray none;
  const auto found = arrays_.find(name);
  return found == arrays_.end() ? none : found->second;
}

View ScoreArrays::view(const std::string& name) const {
  const auto weight = weights_.find(name);
  return weight == weights_.end() ? (*this)[name].view() : weight->second;
}

Dims ScoreArrays::leading() const {
  if (const auto& labels = (*this)["labels"]) return labels.view().extents();
  for (const char* target : {"target_indices", "targets"}) {
    const View& view = (*this)[target].view();
    if (view && view.rank() > 0) return view.extents().first(view.rank() - 1);
  }
  // A student of a teacher alone.
  const View& x = (*this)["x"].view();
  return x && x.rank() > 0 ? x.extents().first(x.rank() - 1) : Dims();
}

MutableView ScoreArrays::gradient_view(const std::string& name, HostTensor& gradient) const {
  const auto weight = weights_.find(name);
  if (weight == weights_.end()) return gradient.mutable_view();
  // The strides of a weight are those of a dense array of the file's layout.
  return gradient.mutable_view().reshaped(weight->second.extents(), weight->second.strides());
}

std::int64_t ScoreArrays::extent_of(char wanted) const {
  for (const auto& [letter, extent] : extents_) {
    if (letter == wanted) return extent;
  }
  fail_call(fmt::format("no array says how large {} is", wanted));
}

Json ScoreArrays::types() const {
  Json result = Json::object();
  for (const auto& [name, option, description, integer, with_gradients] : array_options()) {
    if (const auto& array = (*this)[name]) result[name] = to_string(array.view().dtype());
  }
  return result;
}

/// Only what a command line can say better than the library.
void ScoreArrays::check(const operators::Input& input, const std::string& path) {
  if (input.is_weight()) return check_weight(input, path);
  const std::string name = input.name;
  const View& view = (*this)[name].view();
  if (view.rank() < input.shape.rank()) {
    fail_call(fmt::format("{} {}: has no axes; {} {} {}", option_of(name), path, name,
                          name.back() == 's' ? "are" : "is", input.shape.text()));
  }
  for (int i = 0; i < input.shape.rank(); ++i) {
    if (input.shape.axis(i) == 'T') continue;  // V, as the library checks
    note(input.shape.axis(i), view.extents()[view.rank() - input.shape.rank() + i], name);
  }
}

void ScoreArrays::check_weight(const operators::Input& input, const std::string& path) {
  const std::string name = input.name;
  const View& file = (*this)[name].view();
  const char h = input.shape.axis(0), v = input.shape.axis(1);
  const bool is_vh = name == "w" ? w_is_vh_ : teacher_w_is_vh_;
  const std::string layout_option = option_of(name) + "-layout";
  if (file.rank() != 2) {
    fail_call(fmt::format("{} {}: has {} axes; {} is {} or, with {} vh, [{}, {}]", option_of(name),
                          path, file.rank(), name, input.shape.text(), layout_option, v, h));
  }
  const View view = is_vh ? file.transposed() : file;
  for (const auto& [letter, extent] : extents_) {
    if (letter != h || extent == view.extents()[0]) continue;
    const bool other_way = view.extents()[1] == extent;
    fail_call(fmt::format("{} {}: is [{}, {}], read as [{}] it has {} = {}, but {} has {} = {}{}",
                          option_of(name), path, file.extents()[0], file.extents()[1],
                          is_vh ? fmt::format("{}, {}", v, h) : fmt::format("{}, {}", h, v), h,
                          view.extents()[0], option_of(seen_in_.at(h)), h, extent,
                          other_way
                              ? fmt::format("; pass {} {}", layout_option, is_vh ? "hv" : "vh")
                              : fmt::format("; give arrays of the same {}", h)));
  }
  note(h, view.extents()[0], name);
  note(v, view.extents()[1], name);
  weights_[name] = view;
}

void ScoreArrays::note(char letter, std::int64_t extent, const std::string& name) {
  if (seen_in_.emplace(letter, name).second) extents_.emplace_back(letter, extent);
}

}  // namespace tessera::programs
