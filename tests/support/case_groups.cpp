// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cases.hpp"

namespace tessera::test {

std::vector<Case> data() {
  struct Kind {
    Data data;
    const char* name;
  };
  constexpr Kind kinds[] = {
      {Data::dominating, "dominating"},
      {Data::all_negative, "all_negative"},
      {Data::large_offset, "large_offset"},
      {Data::large_spread, "large_spread"},
      {Data::equal, "equal"},
      {Data::one_hot_row, "one_hot_row"},
      {Data::large_bias, "large_bias"},
      {Data::masked, "masked"},
      {Data::masked_label, "masked_label"},
      {Data::masked_row, "masked_row"},
      {Data::nan_rows, "nan_rows"},
      {Data::nan_bias, "nan_bias"},
  };
  std::vector<Case> cases;
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const Kind& kind : kinds) {
      Case c = base(std::string("data_") + kind.name + "_" + to_string(type));
      c.x_type = c.w_type = type;
      c.w_layout = type == DType::f32 ? WLayout::vh : WLayout::hv;
      c.data = kind.data;
      c.bias = kind.data != Data::equal;
      // Wide enough that the masked half covers whole blocks of columns.
      c.v = 1201;
      const bool infinite = kind.data == Data::masked_label || kind.data == Data::masked_row ||
                            kind.data == Data::nan_rows || kind.data == Data::nan_bias;
      if (infinite) c.options.reduction = Reduction::none;
      c.dlse = infinite ? Cotangent::none : Cotangent::given;
      cases.push_back(c);
      if (kind.data == Data::masked) {
        c.name += "_smoothing";
        c.options.label_smoothing = 0.2f;
        c.class_weight = true;  // 0 on the masked words
        cases.push_back(c);
      }
      if (kind.data == Data::nan_rows) {
        c.name += "_mean";
        c.options.reduction = Reduction::mean;
        cases.push_back(c);
      }
    }
  }
  return cases;
}

std::vector<Case> views() {
  std::vector<Case> cases;
  auto add = [&](const std::string& name, auto change) {
    for (const Place place : {Place::host, Place::device}) {
      Case c = base("views_" + name + (place == Place::device ? "_device" : ""));
      c.b = 36;
      c.place = place;
      c.labels = Labels::some_ignored;
      c.weight = Weights::positive;
      c.dlse = Cotangent::given;
      change(c);
      cases.push_back(c);
    }
  };
  add("dense", [](Case&) {});
  add("padded", [](Case& c) {
    c.x_layout = XLayout::padded;
    c.w_layout = WLayout::vh_padded;
    c.strided_outputs = true;
  });
  add("padded_hv", [](Case& c) {
    c.x_layout = XLayout::padded;
    c.w_layout = WLayout::hv_padded;
  });
  add("column", [](Case& c) { c.x_layout = XLayout::column; });
  add("strided", [](Case& c) { c.w_layout = WLayout::strided; });
  add("strided_bf16", [](Case& c) {
    c.w_layout = WLayout::strided;
    c.x_type = c.w_type = DType::bf16;
    c.x_layout = XLayout::column;
  });
  add("transposed_gradient", [](Case& c) { c.grad_w_layout = WLayout::hv; });
  add("transposed_gradient_hv", [](Case& c) {
    c.w_layout = WLayout::hv;
    c.grad_w_layout = WLayout::vh_padded;
  });
  add("strided_gradient", [](Case& c) { c.grad_w_layout = WLayout::strided; });
  add("shifted", [](Case& c) {
    c.x_layout = XLayout::shifted;
    c.options.reduction = Reduction::none;
  });
  add("shifted_bf16", [](Case& c) {
    c.x_layout = XLayout::shifted;
    c.x_type = c.w_type = DType::bf16;
    c.label_type = DType::i64;
  });
  add("leading3", [](Case& c) {
    c.x_layout = XLayout::leading3;
    c.strided_outputs = true;
    c.options.reduction = Reduction::none;
    c.dloss = Cotangent::given;
  });
  add("vector", [](Case& c) {
    c.b = 1;
    c.labels = Labels::uniform;
    c.x_layout = XLayout::vector;
  });
  add("broadcast", [](Case& c) {
    c.x_layout = XLayout::broadcast;
    c.labels = Labels::uniform;
  });
  add("odd_bf16", [](Case& c) {
    c.x_type = c.w_type = DType::bf16;
    c.b = 13;
    c.h = 35;
    c.v = 97;
  });
  return cases;
}

}  // namespace tessera::test
