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
      if (kind.data == Data::masked_row) {
        c.name += "_from_lse";  // which is -Inf, and all that backward knows
        c.from_lse = true;
        cases.push_back(c);
      }
      if (kind.data == Data::nan_rows) {
        c.name += "_no_z";
        c.options.logsumexp_weight = 0.0f;
        cases.push_back(c);
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

namespace {

template <class Change>
void add_targets(std::vector<Case>& cases, const std::string& name, Targets targets,
                 const Change& change) {
  Case c = base("targets_" + name);
  c.targets = targets;
  change(c);
  cases.push_back(c);
}

constexpr std::pair<Targets, const char*> forms[] = {
    {Targets::one_pair, "one_pair"}, {Targets::pairs, "pairs"}, {Targets::dense, "dense"}};

void add_target_options(std::vector<Case>& cases) {
  for (const auto& [targets, name] : forms) {
    const auto each = [&, of = targets, form = std::string(name)](const std::string& more,
                                                                  const auto& change) {
      add_targets(cases, form + "_" + more, of, change);
    };
    const bool dense = targets == Targets::dense;
    each("plain", [](Case& c) {
      c.bias = false;
      c.options.logsumexp_weight = 0.0f;
    });
    each("smoothing", [](Case& c) { c.options.label_smoothing = 0.2f; });
    each("smoothing_1", [](Case& c) { c.options.label_smoothing = 1.0f; });
    each("soft_cap", [](Case& c) {
      c.options.logit_soft_cap = 3.0f;
      c.options.logit_scale = 1.5f;
    });
    each("mean_weighted", [=](Case& c) {
      c.dloss = Cotangent::given;
      c.weight = Weights::signed_and_zero;
      c.class_weight = true;
      if (!dense) c.labels = Labels::some_ignored;
    });
    for (const auto reduction : {Reduction::sum, Reduction::none}) {
      each(std::string("everything_") + to_string(reduction), [=](Case& c) {
        c.options.label_smoothing = 0.1f;
        c.options.logit_soft_cap = 5.0f;
        c.options.logit_scale = 1.25f;
        c.options.reduction = reduction;
        c.class_weight = true;
        c.weight = Weights::signed_and_zero;
        c.dloss = c.dlse = Cotangent::given;
        if (!dense) c.labels = Labels::some_ignored;
      });
    }
    each("blocks", [](Case& c) {
      c.options.label_smoothing = 0.1f;
      c.class_weight = true;
      c.block_sizes = {16, 64, 64};
    });
    each("from_lse", [](Case& c) {
      c.from_lse = true;
      c.dlse = Cotangent::given;
    });
    each("accumulate", [](Case& c) { c.accumulate = true; });
    each("sides", [](Case& c) {
      c.side_type = DType::bf16;
      c.label_type = DType::i64;
      c.class_weight = true;
    });
    each("f16", [](Case& c) { c.side_type = DType::f16; });
    each("device", [](Case& c) { c.place = Place::device; });
    each("leading3", [=](Case& c) {
      c.b = 36;
      c.x_layout = XLayout::leading3;
      c.options.reduction = Reduction::none;
      if (!dense) c.labels = Labels::some_ignored;
    });
    each("vector", [](Case& c) {
      c.b = 1;
      c.x_layout = XLayout::vector;
    });
    // The words of a row lie apart.
    if (dense) each("column", [](Case& c) { c.x_layout = XLayout::column; });
    if (!dense) each("no_rows", [](Case& c) { c.b = 0; });
  }
}

void add_target_data(std::vector<Case>& cases) {
  for (const auto& [targets, name] : forms) {
    for (const auto& [data, of] :
         {std::pair{Data::dominating, "dominating"}, std::pair{Data::all_negative, "all_negative"},
          std::pair{Data::large_offset, "large_offset"}, std::pair{Data::masked, "masked"},
          std::pair{Data::masked_label, "masked_label"}, std::pair{Data::masked_row, "masked_row"},
          std::pair{Data::nan_rows, "nan_rows"}}) {
      add_targets(cases, std::string(name) + "_" + of, targets, [data = data](Case& c) {
        c.data = data;
        c.v = 1201;
        const bool infinite =
            data == Data::masked_label || data == Data::masked_row || data == Data::nan_rows;
        if (infinite) c.options.reduction = Reduction::none;
      });
    }
  }
}

}  // namespace

std::vector<Case> target_options() {
  std::vector<Case> cases;
  add_target_options(cases);
  return cases;
}

std::vector<Case> soft_targets() {
  std::vector<Case> cases;
  add_target_data(cases);
  // More pairs than an implementation takes in one step, and columns that many rows share; in
  // chunks of rows, each with logits of its own.
  add_targets(cases, "pairs_100", Targets::pairs, [](Case& c) {
    c.b = 197;
    c.h = 40;
    c.pairs = 100;
    c.labels = Labels::some_ignored;
    c.workspace_bytes = 1 << 20;
  });
  add_targets(cases, "pairs_of_every_row", Targets::pairs, [](Case& c) {
    c.b = 70;
    c.h = 40;
    c.v = 301;
    c.pairs = 200;
    c.labels = Labels::ends;
  });
  // As [H, V] the logits wait where grad_w will be.
  for (const auto& [targets, name] : forms) {
    add_targets(cases, std::string(name) + "_kept", targets, [](Case& c) {
      c.b = 70;
      c.h = 150;
      c.v = 1536;
      c.w_layout = WLayout::hv_padded;
    });
    add_targets(cases, std::string(name) + "_bf16", targets, [](Case& c) {
      c.x_type = c.w_type = DType::bf16;
      c.b = 70;
      c.h = 67;
      c.v = 650;
    });
  }
  add_targets(cases, "pairs_16", Targets::pairs, [](Case& c) {
    c.pairs = 16;
    c.class_weight = true;
    c.options.label_smoothing = 0.05f;
  });
  add_targets(cases, "pairs_all_ignored", Targets::pairs, [](Case& c) {
    c.labels = Labels::all_ignored;
    c.dlse = Cotangent::given;
  });
  add_targets(cases, "pairs_ignore_index_0", Targets::pairs, [](Case& c) {
    c.options.ignore_index = 0;
    c.labels = Labels::some_ignored;
  });
  return cases;
}

}  // namespace tessera::test
