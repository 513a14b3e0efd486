// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>

#include "programs/cli.hpp"
#include "programs/score.hpp"

namespace tessera::programs {
namespace {

/// [V, H] seen as [H, V].
View transposed(const View& view) {
  return view.reshaped({view.extents()[1], view.extents()[0]},
                       {view.strides()[1], view.strides()[0]});
}

}  // namespace

Json ScoreArrays::types() const {
  Json result = Json::object();
  const auto add = [&](const char* name, const NpyArray& array) {
    if (array) result[name] = to_string(array.view().dtype());
  };
  add("x", x);
  add("w", w);
  add("logits", logits);
  add("labels", labels);
  add("bias", bias);
  add("weight", weight);
  add("class_weight", class_weight);
  add("dloss", dloss);
  add("dlse", dlse);
  return result;
}

ScoreArrays load_arrays(const ScoreOptions& o) {
  ScoreArrays arrays;
  const auto load = [&](NpyArray& target, const char* argument, const std::string& path,
                        NpyRole role = NpyRole::floating) {
    if (!path.empty()) target = NpyArray::load(argument, path, role, o.bf16_bits);
  };
  load(arrays.labels, "--labels", o.labels, NpyRole::integer);
  load(arrays.x, "--x", o.x);
  load(arrays.w, "--w", o.w);
  load(arrays.logits, "--logits", o.logits);
  load(arrays.bias, "--bias", o.bias);
  load(arrays.weight, "--weight", o.weight);
  load(arrays.class_weight, "--class-weight", o.class_weight);
  load(arrays.dloss, "--dloss", o.dloss);
  load(arrays.dlse, "--dlse", o.dlse);
  if (!o.statistics.empty()) {
    const auto path = std::filesystem::path(o.statistics) / "statistics.npy";
    arrays.statistics =
        NpyArray::load("--statistics", path.string(), NpyRole::floating, o.bf16_bits);
  }

  if (arrays.x && arrays.x.view().rank() < 1) {
    fail_call(fmt::format("--x {}: has no axes; x is [..., H]", o.x));
  }
  if (arrays.logits && arrays.logits.view().rank() < 1) {
    fail_call(fmt::format("--logits {}: has no axes; logits are [..., V]", o.logits));
  }
  if (arrays.w) {
    const View& w = arrays.w.view();
    if (w.rank() != 2) {
      fail_call(fmt::format("--w {}: has {} axes; w is [H, V] or, with --w-layout vh, [V, H]", o.w,
                            w.rank()));
    }
    const bool vh = o.w_is_vh.value_or(false);
    arrays.w_hv = vh ? transposed(w) : w;
    const std::int64_t h = arrays.x.view().extents().back();
    if (arrays.w_hv.extents()[0] != h) {
      fail_call(fmt::format(
          "--w {}: is [{}, {}], read as [{}] it has H = {}, but --x has H = {}{}", o.w,
          w.extents()[0], w.extents()[1], vh ? "V, H" : "H, V", arrays.w_hv.extents()[0], h,
          arrays.w_hv.extents()[1] == h ? fmt::format("; pass --w-layout {}", vh ? "hv" : "vh")
                                        : "; give arrays of the same H"));
    }
  }
  return arrays;
}

}  // namespace tessera::programs
