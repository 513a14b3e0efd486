// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/shrink.hpp"

#include <string>
#include <vector>

namespace tessera::test::fuzz {
namespace {

constexpr int most_tries = 300;

using Change = std::function<void(Case&)>;

/// A field as a default Case has it.
template <class T>
Change plain(T Case::*field) {
  return [field](Case& c) { c.*field = Case().*field; };
}
template <class T>
Change plain(T LossOptions::*field) {
  return [field](Case& c) { c.options.*field = LossOptions().*field; };
}

const std::vector<Change>& plainer() {
  static const std::vector<Change> all = {plain(&Case::workspace_bytes),
                                          plain(&Case::block_sizes),
                                          plain(&Case::knobs),
                                          plain(&Case::targets),
                                          plain(&Case::labels),
                                          plain(&Case::weight),
                                          plain(&Case::dloss),
                                          plain(&Case::dlse),
                                          plain(&Case::accumulate),
                                          plain(&Case::strided_outputs),
                                          plain(&Case::place),
                                          plain(&Case::x_layout),
                                          plain(&Case::w_layout),
                                          plain(&Case::data),
                                          plain(&Case::class_weight),
                                          plain(&Case::bias),
                                          plain(&LossOptions::label_smoothing),
                                          plain(&LossOptions::logit_soft_cap),
                                          plain(&LossOptions::logit_scale),
                                          plain(&LossOptions::logsumexp_weight),
                                          plain(&LossOptions::reduction),
                                          plain(&Case::side_type),
                                          plain(&Case::label_type),
                                          plain(&Case::grad_x_type),
                                          plain(&Case::grad_w_type),
                                          plain(&Case::grad_bias_type),
                                          plain(&Case::w_type),
                                          plain(&Case::x_type),
                                          plain(&Case::from_lse),
                                          plain(&Case::in_place),
                                          plain(&Case::gradient_filter_eps),
                                          plain(&Case::dz_dtype),
                                          [](Case& c) { c.outputs = own_outputs; },
                                          [](Case& c) { c.gradients = grad_x_bit; },
                                          [](Case& c) { c.teaching = 0; }};
  return all;
}

/// Whether the two differ in nothing that a test sees; `plainer` is tried once for each field.
std::vector<Change> smaller() {
  std::vector<Change> all;
  for (std::int64_t Case::*extent : {&Case::b, &Case::v, &Case::h, &Case::pairs}) {
    all.push_back([=](Case& c) { c.*extent /= 2; });
    all.push_back([=](Case& c) { c.*extent -= c.*extent / 8 + 1; });
    all.push_back([=](Case& c) { c.*extent -= 1; });
  }
  return all;
}

bool makes_sense(const Case& c) {
  return c.b >= 0 && c.h >= 0 && c.v > 0 && c.pairs > 0 &&
         (c.x_layout != XLayout::leading3 || (c.b % 6 == 0 && c.b > 0)) &&
         (c.x_layout != XLayout::vector || c.b == 1);
}

}  // namespace

Case shrink(const Case& failing, const std::function<bool(const Case&)>& fails) {
  Case best = failing;
  int tries = 0;
  const auto keep_if_it_fails = [&](const Change& change) {
    Case next = best;
    change(next);
    if (tries >= most_tries || !makes_sense(next)) return false;
    next.name = failing.name + "_" + std::to_string(++tries);
    if (!fails(next)) return false;
    best = next;
    return true;
  };
  for (const Change& change : plainer()) keep_if_it_fails(change);
  for (bool any = true; any;) {
    any = false;
    for (const Change& change : smaller()) {
      while (keep_if_it_fails(change)) any = true;
    }
  }
  for (const Change& change : plainer()) keep_if_it_fails(change);
  return best;
}

}  // namespace tessera::test::fuzz
