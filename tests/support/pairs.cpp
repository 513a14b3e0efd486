// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pairs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "tests/support/cases.hpp"
#include "tests/support/runner.hpp"

namespace tessera::test {
namespace {

constexpr std::array passes = {Pass::forward, Pass::backward, Pass::value_and_grad,
                               Pass::forward_partial};

struct Call {
  std::string case_name;
  Pass pass = Pass::forward;
  std::string group;
  bool may_be_refused = false;        ///< for its blocks
  std::vector<std::string> features;  ///< each value in its place, the pass first
  std::size_t paired = 0;             ///< of them, the first, each of which meets each,
  std::size_t alone = 0;              ///< and those up to here, which meet none in particular
  std::set<std::string> variants;     ///< of kernels that it compiles
};

template <class T>
double number(const T& value) {
  return static_cast<double>(value);
}

template <class T>
double number(const std::optional<T>& value) {
  return value ? number(*value) : -1;
}

/// Gives the call its features: what it has of each, "" where the pass does not look at it.
void add_features(Call& call, const TestOperator& op, const Case& c) {
  const Pass pass = call.pass;
  const LossOptions& o = c.options;
  auto& all = call.features = {to_string(pass)};
  const auto add_if = [&](bool is_read, std::initializer_list<double> values) {
    for (const double value : values) {
      all.push_back(is_read ? fmt::format("{}", value) : std::string());
    }
  };
  std::string blocks;
  if (const auto& b = c.block_sizes) {
    blocks = fmt::format("{}.{}.{}", b->b_block_size, b->h_block_size, b->v_block_size);
  }
  // Each of these meets each other one in some call: kernels are compiled for most of them. Where
  // an operator has kernels of its own, the others are another operator's, whose calls pair them.
  const auto own = op.own_features(c);
  all.insert(all.end(), own.begin(), own.end());
  add_if(true, {number(o.logit_soft_cap != 0), number(o.reduction)});
  if (!own.empty()) call.paired = all.size();
  const double smoothing = o.label_smoothing;
  add_if(true,
         {number(c.x_type), number(c.w_type), number(c.w_layout), number(c.targets), number(c.bias),
          number(c.class_weight), smoothing == 0 || smoothing == 1 ? smoothing : 0.5});
  add_if(pass == Pass::backward, {number(c.from_lse)});
  add_if(has_gradients(pass), {number(c.accumulate != 0u), number(c.gradient_filter_eps != 0)});
  call.alone = all.size();
  if (own.empty()) call.paired = call.alone;
  // Each of these meets each pass: what a kernel does with them depends on no option or type.
  add_if(true, {number(c.side_type), number(c.label_type), number(c.x_layout), number(c.data),
                number(c.labels), number(c.pairs), number(c.weight), number(c.place),
                number(c.values_only), number(o.ignore_index), number(o.logsumexp_weight),
                number(o.logit_scale != 1), number(c.workspace_bytes),
                number(c.targets == Targets::dense && c.x_layout == XLayout::column)});
  add_if(pass != Pass::backward, {number(c.strided_outputs), number(c.outputs)});
  add_if(
      has_gradients(pass),
      {number(c.dloss), number(c.dlse), number(c.grad_x_type), number(c.grad_w_type),
       number(c.grad_bias_type), number(c.grad_w_layout), number(unsigned{c.accumulate}),
       number(c.gradients), number(c.in_place), number(c.dz_dtype), number(c.gradient_filter_eps)});
  all.push_back(blocks);
  all.push_back(fmt::format("{}x{}x{}", c.b, c.h, c.v));
}

/// An estimate of which variants of kernels a call compiles: tiles have one of four heights, and
/// kernels tell three layouts of a matrix apart.
std::set<std::string> variants_of(const TestOperator& op, Pass pass, const Case& c) {
  const LossOptions& o = c.options;
  const int rows = c.b > 32 ? 64 : c.b > 16 ? 32 : c.b > 8 ? 16 : 8;
  const auto layout = [](WLayout of) {
    return of == WLayout::hv_padded   ? number(WLayout::hv)
           : of == WLayout::vh_padded ? number(WLayout::vh)
                                      : number(of);
  };
  const std::string w = fmt::format("{} {} {}", rows, number(c.w_type), layout(c.w_layout));
  const std::string dz =
      fmt::format("{} {}", number(c.dz_dtype), has_gradients(pass) && c.gradient_filter_eps != 0);
  const double values = pass == Pass::backward ? 0 : pass == Pass::forward_partial ? 1 : 2;
  std::set<std::string> all = {
      fmt::format("pack {} {} {}", rows, number(c.x_type), c.x_layout == XLayout::column),
      fmt::format("forward {} {} {} {} {} {} {} {} {} {}", w, values, has_gradients(pass),
                  o.logit_soft_cap != 0, c.bias, c.class_weight,
                  c.bias || c.class_weight ? number(c.side_type) : 0, number(c.targets),
                  o.label_smoothing != 0, c.outputs == 0)};
  for (const auto& own : op.own_features(c)) {
    all.insert(fmt::format("{} {} {} {}", own, rows, number(c.side_type), layout(c.w_layout)));
  }
  if (!has_gradients(pass)) return all;
  const unsigned wanted = c.gradients;
  if ((wanted & grad_w_bit) != 0) {
    all.insert(fmt::format("grad_w {} {} {} {}", rows, number(c.grad_w_type),
                           layout(c.grad_w_layout.value_or(c.w_layout)), dz));
  }
  if ((wanted & grad_x_bit) != 0) {
    all.insert(fmt::format("grad_x {} {}", w, dz));
    all.insert(fmt::format("write_x {}", number(c.grad_x_type)));
  }
  if (c.bias && (wanted & grad_bias_bit) != 0) {
    all.insert(fmt::format("grad_bias {} {}", rows, number(c.grad_bias_type)));
  }
  return all;
}

std::vector<Call> calls_of(const TestOperator& op, const std::string& implementation) {
  std::vector<CaseGroup> groups = op.groups();
  groups.push_back({mixed_group, mixed(op)});
  std::vector<Call> calls;
  std::size_t first = 0;  // calls of equal worth are taken in order: each case begins with another
                          // pass than the one before it
  for (const CaseGroup& group : groups) {
    for (const Case& c : group.cases) {
      ++first;
      for (std::size_t i = 0; i < passes.size(); ++i) {
        const Pass pass = passes[(first + i) % passes.size()];
        if (!can_take(op, implementation, pass, c)) continue;
        Call& call = calls.emplace_back();
        call.case_name = c.name;
        call.pass = pass;
        call.group = group.name;
        call.may_be_refused = c.block_sizes.has_value();
        add_features(call, op, c);
        call.variants = variants_of(op, pass, c);
      }
    }
  }
  return calls;
}

/// Numbers the features and pairs that the table has, and lists for each call those that it has.
/// A mixed case adds none of its own.
std::vector<std::vector<std::size_t>> items_of(const std::vector<Call>& calls, bool in_pairs) {
  std::map<std::string, std::size_t> known;
  std::vector<std::vector<std::size_t>> items;
  for (const Call& call : calls) {
    auto& of_call = items.emplace_back();
    const auto add = [&](const std::string& item) {
      const auto found = known.find(item);
      if (found != known.end()) return of_call.push_back(found->second);
      if (call.group == mixed_group) return;
      of_call.push_back(known.size());
      known.emplace(item, known.size());
    };
    const auto& f = call.features;
    for (std::size_t i = 0; i < f.size(); ++i) {
      add(fmt::format("{}:{}", i, f[i]));
      for (std::size_t j = i + 1; in_pairs && j < f.size(); ++j) {
        if (j >= call.paired && (i > 0 || j < call.alone)) continue;
        if (!f[i].empty() && !f[j].empty()) add(fmt::format("{}:{},{}:{}", i, f[i], j, f[j]));
      }
    }
    if (!call.may_be_refused) add(fmt::format("{} {}", call.group, to_string(call.pass)));
  }
  return items;
}

using Chosen = std::set<std::pair<std::string, Pass>>;

/// Chooses calls until every feature and pair is in one: each time the call with the most that are
/// still missing, in relation to the variants that it compiles anew.
Chosen covering(const std::vector<Call>& calls, bool in_pairs) {
  const auto items = items_of(calls, in_pairs);
  std::vector<std::vector<std::size_t>> calls_with;
  std::vector<std::size_t> gains(calls.size());
  for (std::size_t call = 0; call < calls.size(); ++call) {
    gains[call] = items[call].size();
    for (const std::size_t item : items[call]) {
      calls_with.resize(std::max(calls_with.size(), item + 1));
      calls_with[item].push_back(call);
    }
  }
  std::set<std::string> variants;
  const auto cost = [&](const Call& call) {
    double sum = 0.5;  // the oracle and the kernels themselves, where compiling one is 1
    for (const auto& variant : call.variants) sum += variants.count(variant) == 0 ? 1 : 0;
    return sum;
  };
  Chosen chosen;
  for (;;) {
    std::size_t best = 0;
    double most = 0;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (gains[i] == 0) continue;
      if (const double worth = static_cast<double>(gains[i]) / cost(calls[i]); worth > most) {
        best = i;
        most = worth;
      }
    }
    if (most == 0) return chosen;
    for (const std::size_t item : items[best]) {
      for (const std::size_t call : calls_with[item]) --gains[call];
      calls_with[item].clear();
    }
    variants.insert(calls[best].variants.begin(), calls[best].variants.end());
    chosen.emplace(calls[best].case_name, calls[best].pass);
  }
}

const Chosen& chosen_of(const TestOperator& op, const std::string& implementation) {
  static std::map<std::pair<std::string, std::string>, Chosen> known;
  const auto [entry, is_new] = known.try_emplace({op.name(), implementation});
  if (is_new) {
    entry->second = covering(calls_of(op, implementation), implementation == "opencl.cpu");
  }
  return entry->second;
}

}  // namespace

bool wants_product() {
  const char* text = std::getenv("TESSERA_TEST_PRODUCT");
  if (text != nullptr && *text != '\0') return std::string(text) != "0";
  return !wants_all();
}

std::vector<Case> mixed_in_pairs(const TestOperator& op) {
  return kept(mixed(op), [&](const Case& c) {
    for (const char* implementation : {"opencl.cpu", "opencl.simt"}) {
      for (const Pass pass : passes) {
        if (chosen_of(op, implementation).count({c.name, pass}) > 0) return true;
      }
    }
    return false;
  });
}

bool can_take(const TestOperator& op, const std::string& implementation, Pass pass, const Case& c) {
  // The merged outputs of one shard need targets in host memory, and are always dense.
  if (pass == Pass::forward_partial && c.place != Place::host) return false;
  if (pass == Pass::forward_partial && !op.has_shards(c)) return false;
  if (!op.has_pass(pass)) return false;
  return implementation == "tpu_tile" || implementation == default_order ||
         serves(implementation, pass, c);
}

bool is_in_pairs(const TestOperator& op, const std::string& implementation, Pass pass,
                 const Case& c) {
  if (implementation != "opencl.cpu" && implementation != "opencl.simt") return true;
  if (tiny() || wants_product()) return true;
  return chosen_of(op, implementation).count({c.name, pass}) > 0;
}

}  // namespace tessera::test
