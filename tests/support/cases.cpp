// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cases.hpp"

#include <algorithm>
#include <stdexcept>

#include "tests/support/pairs.hpp"
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

/// Odd sizes, each extent below, at and above powers of two, and no rows or no depth at all.
std::vector<Case> sizes() {
  struct Size {
    std::int64_t b, h, v;
  };
  constexpr Size all[] = {
      {1, 1, 1},      {1, 1, 2},     {3, 1, 7},       {1, 3, 7},       {7, 7, 3},
      {3, 129, 5},    {1, 127, 129}, {129, 3, 127},   {127, 129, 1},   {7, 127, 1000},
      {65, 64, 63},   {64, 65, 192}, {63, 63, 193},   {129, 127, 257}, {200, 16, 513},
      {2, 300, 2049}, {1, 7, 5003},  {0, 5, 9},       {4, 0, 9},       {0, 0, 3},
      {130, 1, 130},  {6, 48, 48},   {300, 130, 130},
  };
  std::vector<Case> cases;
  for (const WLayout layout : both) {
    for (const Size& size : all) {
      Case c = base("sizes_" + std::to_string(size.b) + "x" + std::to_string(size.h) + "x" +
                    std::to_string(size.v) + "_" + text(layout));
      c.b = size.b;
      c.h = size.h;
      c.v = size.v;
      c.w_layout = layout;
      c.labels = size.b > 1 ? Labels::ends : Labels::uniform;
      c.seed = static_cast<std::uint64_t>(size.b * 7 + size.v);
      cases.push_back(c);
    }
  }
  return cases;
}

std::vector<Case> types() {
  std::vector<Case> cases;
  for (const DType x : floats) {
    for (const DType w : floats) {
      for (const WLayout layout : both) {
        Case c =
            base(std::string("types_") + to_string(x) + "_" + to_string(w) + "_" + text(layout));
        // Mixed pairs alternate between the layouts; equal types have both.
        if (x != w && (layout == WLayout::hv) != (x < w)) continue;
        c.x_type = x;
        c.w_type = w;
        c.w_layout = layout;
        c.labels = Labels::some_ignored;
        c.dlse = Cotangent::given;
        cases.push_back(c);
        if (x != w) continue;
        // Other gradient types, other side types and 64-bit labels cost no other products.
        c.name += "_sides";
        c.side_type = x == DType::bf16 ? DType::f16 : DType::bf16;
        c.label_type = DType::i64;
        c.grad_x_type = x == DType::f32 ? DType::bf16 : DType::f32;
        c.grad_w_type = x == DType::f32 ? DType::f16 : DType::f32;
        c.grad_bias_type = x == DType::f32 ? DType::bf16 : DType::f16;
        c.weight = Weights::positive;
        c.class_weight = true;
        c.seed = 3;
        cases.push_back(c);
        c.name += "_accumulate";
        c.accumulate = true;
        cases.push_back(c);
      }
    }
  }
  return cases;
}

namespace {

/// Gradients that are added to what is there: all, and where there are several, some of them.
void add_accumulated_cases(const TestOperator& op, std::vector<Case>& cases, const Case& from,
                           const std::string& prefix) {
  Case c = from;
  c.labels = Labels::some_ignored;
  c.name = prefix + "accumulate";
  c.accumulate = true;
  cases.push_back(c);
  if (op.gradients().size() == 1) return;
  // The first is that of the rows, which micro-batches do not share.
  c.name = prefix + "accumulate_shared";
  c.accumulate = all_gradients & ~1u;
  cases.push_back(c);
}

void add_option_cases(const TestOperator& op, std::vector<Case>& cases, const Case& from,
                      const std::string& prefix) {
  auto add = [&](const std::string& name, auto change) {
    Case c = from;
    c.name = prefix + name;
    change(c);
    cases.push_back(c);
  };
  add("plain", [](Case& c) {
    c.bias = false;
    c.options.logsumexp_weight = 0.0f;
  });
  add("loss_alone", [](Case& c) { c.outputs = 0; });
  for (const auto reduction : {Reduction::sum, Reduction::none}) {
    add(std::string("reduction_") + to_string(reduction), [&](Case& c) {
      c.options.reduction = reduction;
      c.dloss = c.dlse = Cotangent::given;
      c.weight = Weights::signed_and_zero;
      c.labels = Labels::some_ignored;
    });
  }
  add("mean_weighted", [](Case& c) {
    c.dloss = Cotangent::given;
    c.weight = Weights::signed_and_zero;
    c.class_weight = true;
    c.labels = Labels::some_ignored;
  });
  add("cancelling_weights", [](Case& c) {
    c.weight = Weights::cancelling;
    c.dlse = Cotangent::given;
  });
  add("stride0_cotangents", [](Case& c) {
    c.options.reduction = Reduction::none;
    c.dloss = c.dlse = Cotangent::stride0;
  });
  add("scale", [](Case& c) { c.options.logit_scale = 0.7f; });
  add("soft_cap", [](Case& c) {
    c.options.logit_soft_cap = 3.0f;
    c.options.logit_scale = 1.5f;
    c.dlse = Cotangent::given;
  });
  add("smoothing", [](Case& c) { c.options.label_smoothing = 0.2f; });
  add("smoothing_1", [](Case& c) { c.options.label_smoothing = 1.0f; });
  add("smoothing_class_weights", [](Case& c) {
    c.options.label_smoothing = 0.3f;
    c.class_weight = true;
    c.labels = Labels::some_ignored;
  });
  add("everything", [](Case& c) {
    c.options.label_smoothing = 0.1f;
    c.options.logit_soft_cap = 5.0f;
    c.options.logit_scale = 1.25f;
    c.class_weight = true;
    c.weight = Weights::signed_and_zero;
    c.labels = Labels::some_ignored;
    c.dloss = c.dlse = Cotangent::given;
  });
  add("large_z_loss", [](Case& c) { c.options.logsumexp_weight = 3.0f; });
  add("ignore_index_0", [](Case& c) {
    c.options.ignore_index = 0;
    c.labels = Labels::some_ignored;
  });
  add("all_ignored", [](Case& c) {
    c.labels = Labels::all_ignored;
    c.dlse = Cotangent::given;
  });
  add("from_lse", [](Case& c) {
    c.from_lse = true;
    c.dlse = Cotangent::given;
    c.labels = Labels::some_ignored;
  });
  add_accumulated_cases(op, cases, from, prefix);
}

}  // namespace

std::vector<Case> options(const TestOperator& op) {
  std::vector<Case> cases;
  for (const DType type : {DType::f32, DType::bf16}) {
    Case from = base("");
    from.x_type = from.w_type = type;
    from.w_layout = type == DType::f32 ? WLayout::vh : WLayout::hv;
    add_option_cases(op, cases, from, std::string("options_") + to_string(type) + "_");
  }
  return cases;
}

std::vector<Case> shrunk(std::vector<Case> cases) {
  for (Case& c : cases) {
    c.name += "_tiny";
    if (c.x_layout != XLayout::leading3) c.b = std::min<std::int64_t>(c.b, 5);
    if (c.x_layout == XLayout::leading3) c.b = 6;
    c.h = std::min<std::int64_t>(c.h, 7);
    c.v = std::min<std::int64_t>(c.v, 37);
  }
  return cases;
}

bool ends_with_any(const std::string& name, std::initializer_list<const char*> ends) {
  return std::any_of(ends.begin(), ends.end(),
                     [&](const char* end) { return name.ends_with(end); });
}

std::vector<Case> interpreted_of_every_loss(const TestOperator& op) {
  auto cases = kept(options(op), [](const Case& c) {
    return ends_with_any(c.name, {"f32_plain", "everything", "f32_from_lse", "accumulate"});
  });
  for (const Case& c : kept(data(), [](const Case& c) {
         return ends_with_any(c.name, {"masked_f32", "nan_rows_f32"});
       })) {
    cases.push_back(c);
  }
  for (const Case& c : kept(target_options(), [](const Case& c) {
         return ends_with_any(c.name, {"pairs_everything_none", "dense_everything_none"});
       })) {
    cases.push_back(c);
  }
  return cases;
}

namespace {

std::vector<Case> named(const std::vector<Case>& cases, const std::string& name) {
  auto result = kept(cases, [&](const Case& c) { return c.name == name; });
  if (result.empty()) throw std::logic_error("no group of cases is called " + name);
  return result;
}

std::vector<Case> group_of(const TestOperator& op, const std::string& group) {
  if (tiny()) return named(op.interpreted(), group);
  for (const CaseGroup& known : op.groups()) {
    if (known.name == group) return known.cases;
  }
  if (group == mixed_group) return mixed_in_pairs(op);
  throw std::logic_error(std::string(op.name()) + " has no group of cases called " + group);
}

}  // namespace

std::vector<std::string> group_names(const TestOperator& op) {
  std::vector<std::string> names;
  if (tiny()) {
    // Each case is a group: one call a process is all that Oclgrind's shadow memory stands, see
    // scripts/oclgrind.sh.
    for (const Case& c : op.interpreted()) names.push_back(c.name);
  } else {
    for (const CaseGroup& group : op.groups()) names.emplace_back(group.name);
    names.emplace_back(mixed_group);
  }
  return names;
}

std::vector<Case> cases_of(const TestOperator& op, const std::string& group) {
  std::vector<Case> cases = group_of(op, group);
  for (Case& c : cases) c.op = &op;
  return cases;
}

}  // namespace tessera::test
