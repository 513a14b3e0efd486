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

template <class Operator>
struct BrokenCall {
  Pass pass;
  typename Operator::Inputs inputs;
  typename Operator::Outputs outputs;
  typename Operator::Gradients gradients;
  typename Operator::Options options;
  typename Operator::ExecutionOptions execution;
  std::vector<std::int64_t> labels{};  ///< memory of labels that are wrong

  using Break = std::pair<std::string, std::function<void(BrokenCall&)>>;

  /// All that can be broken in this call.
  std::vector<Break> breaks() const {
    std::vector<Break> all;
    using Traits = OperatorTraits<Operator>;
    for (std::size_t i = 0; i < Traits::inputs.size(); ++i) {
      const auto& argument = Traits::inputs[i];
      add_breaks(all, argument.name, argument.shape, inputs.*argument.view, i > 0,
                 [i](BrokenCall& call) -> View& { return call.inputs.*Traits::inputs[i].view; });
    }
    std::vector<std::size_t> given;
    for (std::size_t i = 0; i < Traits::outputs.size(); ++i) {
      const auto& argument = Traits::outputs[i];
      const MutableView& view = outputs.*argument.view;
      const auto at = [i](BrokenCall& call) -> MutableView& {
        return call.outputs.*Traits::outputs[i].view;
      };
      add_breaks(all, argument.name, argument.shape, view, true, at);
      if (!view || view.size() < 2) continue;
      all.push_back({std::string(argument.name) + " in one place", [at](BrokenCall& call) {
                       auto& v = at(call);
                       Dims strides;
                       for (int axis = 0; axis < v.rank(); ++axis) strides.push_back(0);
                       v = v.reshaped(v.extents(), strides);
                     }});
      given.push_back(i);
    }
    if (given.size() > 1) {
      all.push_back({"two outputs in one place", [given](BrokenCall& call) {
                       const auto& from = call.outputs.*Traits::outputs[given[0]].view;
                       auto& to = call.outputs.*Traits::outputs[given[1]].view;
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
      all.push_back({name + " " + what, [at, change](BrokenCall& call) { change(at(call)); }});
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
    const auto loss = [&](const char* what, auto change) {
      all.push_back({what, [change](BrokenCall& call) { change(loss_options(call.options)); }});
    };
    loss("label_smoothing above 1", [](LossOptions& o) { o.label_smoothing = 1.5f; });
    loss("label_smoothing NaN", [](LossOptions& o) { o.label_smoothing = std::nanf(""); });
    loss("logit_scale infinite", [](LossOptions& o) { o.logit_scale = INFINITY; });
    loss("logsumexp_weight NaN", [](LossOptions& o) { o.logsumexp_weight = std::nanf(""); });
    loss("a negative cap", [](LossOptions& o) { o.logit_soft_cap = -1.0f; });
    loss("a reduction that is none", [](LossOptions& o) { o.reduction = Reduction{77}; });
    loss("a negative vocab_offset", [](LossOptions& o) { o.vocab_offset = -1; });
    loss("a negative vocab_size_total", [](LossOptions& o) { o.vocab_size_total = -5; });
    loss("an offset without a total", [](LossOptions& o) {
      o.vocab_offset = 3;
      o.vocab_size_total = 0;
    });
    const auto other = [&](const char* what, auto change) {
      all.push_back({what, [change](BrokenCall& call) { change(call.execution); }});
    };
    using E = typename Operator::ExecutionOptions;
    other("an unknown implementation", [](E& e) { e.implementation = "opencl.nonsense"; });
    other("an unknown knob", [](E& e) { e.knobs.push_back({"nonsense", 1}); });
    other("a negative block", [](E& e) {
      e.block_sizes.emplace();
      e.block_sizes->b_block_size = -8;
    });
  }

  void add_label_break(std::vector<Break>& all) const {
    const View& given = inputs.labels;
    if (!given || given.is_device() || given.size() == 0) return;
    all.push_back({"a label that is no word", [](BrokenCall& call) {
                     const View& was = call.inputs.labels;
                     call.labels.assign(static_cast<std::size_t>(was.size()), 0);
                     call.labels[call.labels.size() / 2] = -7;
                     call.inputs.labels = View::host(call.labels.data(), was.extents());
                   }});
  }
};

}  // namespace tessera::test
