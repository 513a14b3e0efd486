// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/problem.hpp"

/// A legal call with one thing wrong in it.
namespace tessera::test {

struct BrokenCall {
  operators::Call call;
  std::vector<std::int64_t> labels{};  ///< memory of labels that are wrong

  using Break = std::pair<std::string, std::function<void(BrokenCall&)>>;

  /// All that can be broken in this call.
  std::vector<Break> breaks() const {
    std::vector<Break> all;
    const auto& op = *call.op;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      add_breaks(all, op.inputs[i].name, op.inputs[i].shape, call.inputs[i], i > 0,
                 [i](BrokenCall& wrong) -> View& { return wrong.call.inputs[i]; });
    }
    std::vector<std::size_t> given;
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      const std::string name = op.outputs[i].name;
      const MutableView& view = call.outputs[i];
      const auto at = [i](BrokenCall& wrong) -> MutableView& { return wrong.call.outputs[i]; };
      add_breaks(all, name, op.outputs[i].shape, view, true, at);
      if (!view || view.size() < 2) continue;
      all.push_back({name + " in one place", [at](BrokenCall& wrong) {
                       auto& v = at(wrong);
                       Dims strides;
                       for (int axis = 0; axis < v.rank(); ++axis) strides.push_back(0);
                       v = v.reshaped(v.extents(), strides);
                     }});
      given.push_back(i);
    }
    if (given.size() > 1) {
      all.push_back({"two outputs in one place", [given](BrokenCall& wrong) {
                       const auto& from = wrong.call.outputs[given[0]];
                       auto& to = wrong.call.outputs[given[1]];
                       to = MutableView::host(from.host_data(), to.dtype(), to.extents());
                     }});
    }
    add_option_breaks(all);
    add_label_break(all);
    return all;
  }

 private:
  template <class V, class At>
  static void add_breaks(std::vector<Break>& all, const std::string& name,
                         const SymbolicShape& shape, const V& view, bool has_others, const At& at) {
    if (!view || view.is_device()) return;
    const auto add = [&](const char* what, const std::function<void(V&)>& change) {
      all.push_back({name + " " + what, [at, change](BrokenCall& wrong) { change(at(wrong)); }});
    };
    add("of a wrong type", [](V& v) {
      const DType type = v.dtype() == DType::f32 ? DType::i32 : DType::f32;
      const bool was_number = v.dtype() == DType::bf16 || v.dtype() == DType::f16;
      v = V::host(data_of(v), was_number ? DType::i64 : type, v.extents(), v.strides());
    });
    if (view.size() > 0) {
      add("without memory", [](V& v) {
        v = V::host(static_cast<decltype(data_of(v))>(nullptr), v.dtype(), v.extents(),
                    v.strides());
      });
    }
    const Dims& extents = view.extents();
    // Of the first input and of rows alone nobody else may know better.
    if (!has_others || extents.rank() == 0) return;
    add("of one more axis", [](V& v) {
      Dims e = {1}, s = {0};
      for (int axis = 0; axis < v.extents().rank(); ++axis) {
        e.push_back(v.extents()[axis]);
        s.push_back(v.strides()[axis]);
      }
      v = V::host(data_of(v), v.dtype(), e, s);
    });
    if (shape.has_leading() && extents.rank() > shape.rank()) {
      add("of one row more", [](V& v) {
        Dims e = v.extents();
        e[0] += 1;
        v = V::host(data_of(v), v.dtype(), e, v.strides());
      });
    }
    if (shape.rank() > 0 && shape.axis(0) == 'H') {
      add("of one feature more", [](V& v) {
        Dims e = v.extents();
        e[0] += 1;
        v = V::host(data_of(v), v.dtype(), e, v.strides());
      });
    }
  }
  static const void* data_of(const View& view) { return view.host_data(); }
  static void* data_of(const MutableView& view) { return view.host_data(); }

  void add_option_breaks(std::vector<Break>& all) const {
    const auto option = [&](const std::string& what, const char* name, const OptionValue& value) {
      all.push_back({what, [=](BrokenCall& wrong) { wrong.call.set(name, value); }});
    };
    option("label_smoothing above 1", "label_smoothing", 1.5f);
    option("label_smoothing NaN", "label_smoothing", std::nanf(""));
    option("logit_scale infinite", "logit_scale", INFINITY);
    option("logsumexp_weight NaN", "logsumexp_weight", std::nanf(""));
    option("a negative cap", "logit_soft_cap", -1.0f);
    option("a reduction that is none", "reduction", std::int64_t{77});
    option("a negative vocab_offset", "vocab_offset", std::int64_t{-1});
    option("a negative vocab_size_total", "vocab_size_total", std::int64_t{-5});
    all.push_back({"an offset without a total", [](BrokenCall& wrong) {
                     wrong.call.set("vocab_offset", std::int64_t{3});
                     wrong.call.set("vocab_size_total", std::int64_t{0});
                   }});
    const auto other = [&](const char* what, auto change) {
      all.push_back({what, [change](BrokenCall& wrong) { change(wrong.call); }});
    };
    other("an unknown implementation",
          [](operators::Call& c) { c.implementation = "opencl.nonsense"; });
    other("an unknown knob", [](operators::Call& c) { c.knobs.push_back({"nonsense", 1}); });
    other("a negative block", [](operators::Call& c) {
      c.set_block_sizes({{"b_block_size", -8}});
    });
  }

  void add_label_break(std::vector<Break>& all) const {
    const auto at = static_cast<std::size_t>(call.op->input("labels") - call.op->inputs.data());
    const View& given = call.inputs[at];
    if (!given || given.is_device() || given.size() == 0) return;
    all.push_back({"a label that is no word", [at](BrokenCall& wrong) {
                     View& was = wrong.call.inputs[at];
                     wrong.labels.assign(static_cast<std::size_t>(was.size()), 0);
                     wrong.labels[wrong.labels.size() / 2] = -7;
                     was = View::host(wrong.labels.data(), was.extents());
                   }});
  }
};

}  // namespace tessera::test
