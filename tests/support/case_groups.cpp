// SPDX-License-Identifier: Apache-2.0
#include "tests/support/case_groups.hpp"

#include <algorithm>
#include <stdexcept>

#include "tests/support/runner.hpp"

// Kernels are compiled per types, layout and options, at half a second each on PoCL, so the rows
// share few combinations: sizes, data, views and blocks vary over f32 [V,H] with z-loss alone,
// types vary over one shape, options over one type.

namespace tessera::test {
namespace {

constexpr DType floats[] = {DType::f32, DType::bf16, DType::f16};
constexpr WLayout both[] = {WLayout::hv, WLayout::vh};

std::string text(WLayout layout) { return layout == WLayout::hv ? "hv" : "vh"; }

}  // namespace

Case base(const std::string& name) {
  Case c;
  c.name = name;
  // Larger than one register tile in each extent, and a multiple of none.
  c.b = 37;
  c.h = 33;
  c.v = 301;
  c.bias = true;
  c.options.logsumexp_weight = 1e-2f;
  return c;
}

std::vector<Case> data(bool softmax) {
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
      Case c = base(std::string(softmax ? "softmax_" : "") + "data_" + kind.name + "_" +
                    to_string(type));
      c.softmax = softmax;
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

/// Rows of several blocks that a CPU streams: nothing asked for but sums of exponentials.
std::vector<Case> streamed() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, auto change) {
    Case c = base("softmax_streamed_" + name);
    c.softmax = true;
    c.b = 7;
    // Two blocks of 16 lanes, eight of 4, and a tail that is a multiple of none.
    c.v = 4096 + 77;
    c.outputs = lse_bit | label_logprob_bit | z_loss_bit | statistics_bit;
    c.block_sizes = {64, 64, 8192};
    c.labels = Labels::some_ignored;
    change(c);
    cases.push_back(c);
    if (c.accumulate == linear_cross_entropy::Accumulate::all || c.grad_x_type) return;
    c.name += "_in_place";
    c.in_place = true;
    cases.push_back(c);
  };
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const auto typed = [&](const std::string& name, auto change) {
      add(name + "_" + to_string(type), [&](Case& c) {
        c.x_type = c.w_type = type;
        change(c);
      });
    };
    typed("plain", [](Case& c) { c.dlse = Cotangent::given; });
    typed("ends", [](Case& c) { c.labels = Labels::ends; });
    typed("scaled", [](Case& c) { c.options.logit_scale = -0.75f; });
    typed("padded", [](Case& c) { c.x_layout = XLayout::padded; });
    typed("slices", [](Case& c) { c.block_sizes = {64, 64, 2112}; });
    if (type == DType::f16) continue;  // its range ends before most of what follows
    for (const auto& [data, name] :
         {std::pair{Data::rising, "rising"}, std::pair{Data::masked, "masked"},
          std::pair{Data::masked_label, "masked_label"}, std::pair{Data::masked_row, "masked_row"},
          std::pair{Data::nan_rows, "nan_rows"}, std::pair{Data::large_offset, "large_offset"},
          std::pair{Data::large_spread, "large_spread"}, std::pair{Data::equal, "equal"},
          std::pair{Data::dominating, "dominating"}}) {
      typed(name, [data = data](Case& c) {
        c.data = data;
        const bool infinite =
            data == Data::masked_label || data == Data::masked_row || data == Data::nan_rows;
        if (!infinite) return;
        c.options.reduction = Reduction::none;
        c.labels = Labels::uniform;  // row 0 counts
        // An infinite z-loss would make any gradient NaN.
        if (data != Data::masked_row) return;
        c.options.logsumexp_weight = 0.0f;
        c.outputs &= ~z_loss_bit;
      });
    }
    const DType other = type == DType::f32 ? DType::bf16 : DType::f32;
    typed("other_gradient", [=](Case& c) { c.grad_x_type = other; });
    typed("other_gradient_nan", [=](Case& c) {
      c.grad_x_type = other;
      c.data = Data::nan_rows;
      c.options.reduction = Reduction::none;
      c.labels = Labels::uniform;
    });
    typed("accumulate", [](Case& c) { c.accumulate = true; });
    typed("smoothing", [](Case& c) { c.options.label_smoothing = 0.1f; });
    typed("from_lse", [](Case& c) { c.from_lse = true; });
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

/// As few tokens as grad_w has room to keep the logits of, all at once and in chunks of rows.
std::vector<Case> blocks_in_grad_w() {
  std::vector<Case> cases;
  Case c = base("blocks_in_grad_w");
  c.labels = Labels::some_ignored;
  for (const DType type : floats) {
    for (const char* size : {"", "_in_chunks"}) {
      c.name = std::string("blocks_in_grad_w") + size + "_" + to_string(type);
      c.b = 200;
      c.h = 418;
      c.v = 1501;
      c.x_type = c.w_type = type;
      c.workspace_bytes.reset();
      if (*size != '\0') c.workspace_bytes = std::size_t{2} << 20;
      cases.push_back(c);
      // More tokens than it has room for.
      if (*size != '\0') {
        Case partly = c;
        partly.name = std::string("blocks_partly_in_grad_w_") + to_string(type);
        partly.b = 256;
        partly.v = 3001;
        partly.h = type == DType::f32 ? 160 : 320;
        partly.labels = Labels::uniform;
        partly.workspace_bytes = 2'950'000;  // less than all logits, more than the last 128 rows'
        cases.push_back(partly);
        partly.name += "_hv";
        partly.w_layout = WLayout::hv_padded;
        partly.v = 3072;  // whole blocks of columns
        cases.push_back(partly);
      }
      // As [H, V], where whole blocks of columns have rows of their own.
      c.name += "_hv";
      c.w_layout = WLayout::hv_padded;
      c.v = 1536;
      cases.push_back(c);
      c.w_layout = WLayout::vh;
    }
  }
  return cases;
}

std::vector<Case> blocks() {
  using Blocks = linear_cross_entropy::BlockSizes;
  constexpr Blocks all[] = {{64, 64, 64},     {64, 64, 192},     {96, 96, 96},   {128, 128, 384},
                            {256, 512, 1024}, {1024, 512, 2048}, {2048, 64, 96}, {64, 4096, 768}};
  std::vector<Case> cases;
  for (const Blocks& block : all) {
    Case c = base("blocks_" + std::to_string(block.b_block_size) + "_" +
                  std::to_string(block.h_block_size) + "_" + std::to_string(block.v_block_size));
    c.b = 197;
    c.h = 150;
    c.v = 1501;
    c.block_sizes = block;
    cases.push_back(c);
  }
  // The library's own blocks, and a budget that forces value_and_grad into chunks of rows.
  Case c = base("blocks_own");
  c.b = 197;
  c.h = 150;
  c.v = 1501;
  cases.push_back(c);
  for (const DType type : floats) {
    c.name = std::string("blocks_small_workspace_") + to_string(type);
    c.b = 700;
    c.h = 40;
    c.v = 1501;
    c.x_type = c.w_type = type;
    c.labels = Labels::some_ignored;
    c.workspace_bytes = std::size_t{3} << 20;
    cases.push_back(c);
  }
  // As few tokens as one vector has lanes, which 16-bit weights meet along H: a tail of H, a step
  // of H in part, padding.
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const std::int64_t b : {1, 2, 3, 8}) {
      c.name = "blocks_few_tokens_" + std::to_string(b) + "_" + to_string(type);
      c.b = b;
      c.h = 1061;
      c.v = 301;
      c.x_type = b == 2 ? DType::f32 : type;
      c.w_type = type;
      c.labels = Labels::uniform;
      c.workspace_bytes.reset();
      cases.push_back(c);
    }
  }
  for (Case& in_grad_w : blocks_in_grad_w()) cases.push_back(std::move(in_grad_w));
  return cases;
}

/// Small probabilities left out of the gradients: what is left is within the filter's bound, and
/// what is special stays special. (What exactly is left out: filter_test.cpp.)
std::vector<Case> filtered() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, auto change) {
    Case c = base("filtered_" + name);
    c.v = 1001;  // about 16 tiles of the vocabulary, the last one ragged
    c.labels = Labels::some_ignored;
    c.dlse = Cotangent::given;
    c.gradient_filter_eps = 0x1p-7f;
    change(c);
    cases.push_back(c);
  };
  for (const DType type : floats) {
    for (const WLayout layout : both) {
      add(std::string(to_string(type)) + "_" + text(layout), [=](Case& c) {
        c.x_type = c.w_type = type;
        c.w_layout = layout;
      });
    }
  }
  add("strided", [](Case& c) { c.w_layout = WLayout::strided; });
  add("accumulate", [](Case& c) { c.accumulate = true; });
  add("nothing_left", [](Case& c) { c.gradient_filter_eps = 0x1.fffffep-1f; });
  add("everything_left", [](Case& c) { c.gradient_filter_eps = 0x1p-100f; });
  add("all_ignored", [](Case& c) { c.labels = Labels::all_ignored; });
  add("few_rows", [](Case& c) { c.b = 3; });
  add("weights", [](Case& c) { c.weight = Weights::signed_and_zero; });
  add("no_gradient_of_the_loss", [](Case& c) { c.weight = Weights::cancelling; });
  add("options", [](Case& c) {
    c.class_weight = true;
    c.options.label_smoothing = 0.1f;
    c.options.logit_soft_cap = 3.0f;
    c.options.logit_scale = -0.5f;
  });
  add("nan_rows", [](Case& c) {
    c.data = Data::nan_rows;
    c.labels = Labels::uniform;
    c.dlse = Cotangent::none;
    c.options.reduction = Reduction::none;
    c.gradient_filter_eps = 0x1.fffffep-1f;  // nothing else keeps a tile
  });
  add("masked", [](Case& c) { c.data = Data::masked; });
  add("dominating", [](Case& c) { c.data = Data::dominating; });
  // Logits kept in grad_w, in chunks of rows and ranges; chunks of rows; several steps of H.
  const auto large = [](Case& c) {
    c.b = 200;
    c.h = 418;
    c.v = 1501;
  };
  add("in_grad_w", large);
  add("in_grad_w_in_chunks", [&](Case& c) {
    large(c);
    c.workspace_bytes = std::size_t{2} << 20;
  });
  for (const DType type : {DType::f32, DType::bf16}) {
    add(std::string("small_workspace_") + to_string(type), [&](Case& c) {
      c.b = 700;
      c.h = 40;
      c.v = 1501;
      c.x_type = c.w_type = type;
      c.workspace_bytes = std::size_t{3} << 20;
    });
  }
  add("blocks", [&](Case& c) {
    large(c);
    c.block_sizes = {64, 64, 192};
  });
  return cases;
}

std::vector<Case> saturated() {
  Case c = base("saturated_infinite_z");
  c.data = Data::nan_rows;
  c.options.logit_soft_cap = 4.0f;
  c.options.reduction = Reduction::none;
  c.values_only = true;
  // Row 0 has a NaN, which no cap saturates; row 2's infinity times w is +-Inf, never NaN.
  return {c};
}

}  // namespace tessera::test
