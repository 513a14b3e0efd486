// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cases.hpp"
#include "tests/support/operators/linear_cross_entropy.hpp"

namespace tessera::test {
namespace {

constexpr DType floats[] = {DType::f32, DType::bf16, DType::f16};
constexpr WLayout both[] = {WLayout::hv, WLayout::vh};

std::string text(WLayout layout) { return layout == WLayout::hv ? "hv" : "vh"; }

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
  add("bf16_hv_padded", [](Case& c) {
    c.x_type = c.w_type = DType::bf16;
    c.w_layout = WLayout::hv_padded;
  });
  add("strided", [](Case& c) { c.w_layout = WLayout::strided; });
  add("accumulate", [](Case& c) { c.accumulate = true; });
  add("nothing_left", [](Case& c) {
    c.gradient_filter_eps = 0x1.fffffep-1f;
    c.h = 37;  // rows of whole vectors at addresses of no whole vector
    c.grad_w_type = DType::f16;
  });
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

/// Both operands in bf16 or in f16, which may be multiplied by pairs: depths around pairs, vectors
/// and steps, in every layout. What lies beside an odd row is NaN, and must not be multiplied even
/// by 0.
std::vector<Case> pairs() {
  struct Layout {
    WLayout w;
    XLayout x;
    const char* name;
  };
  constexpr Layout layouts[] = {{WLayout::vh, XLayout::dense, "vh"},
                                {WLayout::hv, XLayout::dense, "hv"},
                                {WLayout::vh_padded, XLayout::padded, "vh_padded"},
                                {WLayout::strided, XLayout::column, "strided"}};
  struct Size {
    std::int64_t b, h, v;
  };
  constexpr Size sizes[] = {{1, 1, 1},    {5, 2, 7},    {17, 3, 13},  {33, 15, 49}, {65, 31, 50},
                            {2, 33, 301}, {37, 34, 77}, {70, 65, 61}, {9, 129, 191}};
  std::vector<Case> cases;
  const auto add = [&](const Layout& layout, const Size& size, const std::string& more,
                       DType type = DType::bf16) -> Case& {
    Case c = base(std::string("pairs_") + to_string(type) + "_" + layout.name + "_" +
                  std::to_string(size.b) + "x" + std::to_string(size.h) + "x" +
                  std::to_string(size.v) + more);
    c.b = size.b;
    c.h = size.h;
    c.v = size.v;
    c.x_type = c.w_type = type;
    c.x_layout = layout.x;
    c.w_layout = layout.w;
    cases.push_back(c);
    return cases.back();
  };
  for (const Layout& layout : layouts) {
    for (const Size& size : sizes) add(layout, size, "");
    // H in steps, the last of which is half a pair, or one, or whole.
    for (const std::int64_t h : {131, 130, 129, 128}) {
      add(layout, {67, h, 193}, "_steps").block_sizes = {64, 64, 64};
    }
    add(layout, {40, 67, 130}, "_denormals").data = Data::denormals;
    Case& infinite = add(layout, {40, 67, 130}, "_nan_rows");
    infinite.data = Data::nan_rows;
    infinite.options.reduction = Reduction::none;
    // Rows that pad a panel overflow, and share words with the last that counts.
    add(layout, {37, 34, 77}, "_large_bias").data = Data::large_bias;
    // dz in f32, which gradients in bf16 would hide; and without the sums of grad_bias that its
    // rounding asks for.
    Case& exact = add(layout, {37, 34, 77}, "_dz_f32");
    exact.dz_dtype = DType::f32;
    exact.grad_x_type = exact.grad_w_type = DType::f32;
    add(layout, {37, 34, 77}, "_no_bias").gradients = grad_x_bit | grad_w_bit;
    // Gradients' own depths in steps: an odd number of tokens, an odd vocabulary.
    Case& steps = add(layout, {75, 18, 1501}, "_gradient_steps");
    steps.labels = Labels::some_ignored;
    steps.accumulate = true;
    steps.dlse = Cotangent::given;
    Case& chunks = add(layout, {301, 18, 1001}, "_chunks");
    chunks.labels = Labels::some_ignored;
    chunks.workspace_bytes = std::size_t{1} << 20;
  }
  // Few tokens meet w along H: turns of the loop, vectors after them, words, and half of the last
  // of a whole vector.
  for (const Size& size : {Size{1, 543, 23}, {3, 333, 31}, {8, 165, 50}}) {
    add(layouts[2], size, "_few");
  }
  add(layouts[0], {7, 171, 50}, "_few_steps").block_sizes = {64, 64, 64};
  // Rows of w in place whose last word is half, for grad_x.
  add({WLayout::hv_padded, XLayout::padded, "hv_padded"}, {37, 34, 77}, "");
  // Words of f16 go the same ways; its numbers are others, and so is dz, which is f16 where
  // grad_bias is not summed of it.
  const auto add_f16 = [&](const Layout& layout, const Size& size, const char* more) -> Case& {
    Case& c = add(layout, size, more, DType::f16);
    c.gradients = grad_x_bit | grad_w_bit;
    return c;
  };
  for (const Layout& layout : layouts) add_f16(layout, {67, 131, 193}, "");
  add_f16(layouts[1], {5, 16, 40}, "");
  add_f16(layouts[0], {40, 67, 130}, "_nan_rows").data = Data::nan_rows;
  add_f16(layouts[0], {40, 67, 130}, "_denormals").data = Data::denormals;
  Case& steps = add_f16(layouts[1], {75, 18, 1501}, "_gradient_steps");
  steps.labels = Labels::some_ignored;
  steps.accumulate = true;
  steps.dloss = Cotangent::given;
  // Sums of chunks of rows, each with its power of two.
  Case& chunks = add_f16(layouts[0], {301, 18, 1001}, "_chunks");
  chunks.labels = Labels::some_ignored;
  chunks.options.reduction = Reduction::sum;
  chunks.options.logsumexp_weight = 3.0f;
  chunks.workspace_bytes = std::size_t{1} << 20;
  chunks.grad_x_type = chunks.grad_w_type = DType::f32;
  Case& capped = add_f16(layouts[0], {37, 34, 77}, "_capped");
  capped.options.logit_soft_cap = 3.0f;
  capped.options.logit_scale = 1.5f;
  capped.options.label_smoothing = 0.2f;
  capped.options.logsumexp_weight = 3.0f;
  capped.grad_x_type = capped.grad_w_type = DType::f32;
  add_f16(layouts[0], {37, 34, 77}, "_filtered").gradient_filter_eps = 0x1p-7f;
  return cases;
}

}  // namespace

std::vector<CaseGroup> linear_cross_entropy_groups() {
  const TestOperator& op = test_operator<linear_cross_entropy::Operator>();
  return {{"sizes", sizes()},
          {"types", types()},
          {"options", options(op)},
          {"data", data()},
          {"views", views()},
          {"targets", soft_targets()},
          {"blocks", blocks()},
          {"saturated", saturated()},
          {"filtered", filtered()},
          {"pairs", pairs()},
          {"target_options", target_options()}};
}

std::vector<Case> linear_cross_entropy_interpreted() {
  auto cases = interpreted_of_every_loss(test_operator<linear_cross_entropy::Operator>());
  for (const Case& c : kept(types(), [](const Case& c) {
         return ends_with_any(c.name, {"f16_f16_vh", "f16_f16_hv", "f32_f32_hv", "bf16_bf16_vh"});
       })) {
    cases.push_back(c);
  }
  for (const Case& c : kept(views(), [](const Case& c) {
         return ends_with_any(c.name, {"padded", "strided", "shifted"});
       })) {
    cases.push_back(c);
  }
  for (const unsigned gradient : {grad_x_bit, grad_w_bit, grad_bias_bit}) {
    Case c = base("gradient_" + std::to_string(gradient) + "_alone");
    c.gradients = gradient;
    c.outputs = 0;
    cases.push_back(c);
  }
  cases = shrunk(cases);
  // Two slices of the vocabulary, two steps of h, and a tile that is not full, in every family.
  Case c = base("two_slices");
  c.b = 5;
  c.h = 18;
  c.v = 70;
  c.block_sizes = {64, 64, 64};
  cases.push_back(c);
  c.name = "two_slices_bf16";
  c.h = 17;
  c.x_type = c.w_type = DType::bf16;
  c.block_sizes = {64, 16, 64};
  cases.push_back(c);
  // Tiles of the vocabulary without a label are left out of the gradients.
  for (const bool accumulate : {false, true}) {
    Case filtered = base(accumulate ? "left_out_accumulate" : "left_out");
    filtered.b = 2;
    filtered.h = 5;
    filtered.v = 200;
    filtered.gradient_filter_eps = 0.5f;
    filtered.accumulate = accumulate;
    cases.push_back(filtered);
  }
  return cases;
}

}  // namespace tessera::test
