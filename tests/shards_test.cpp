// SPDX-License-Identifier: Apache-2.0
// Shards of the vocabulary, merged in any grouping, are the whole; backward on shards from the
// merged statistics concatenates to the whole's gradients that have columns, and adds up to those
// that have none.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/expect_error.hpp"
#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {

class Shards : public OperatorTest {};

struct Shard {
  std::int64_t first, columns;
};

/// Unequal shards, one of a single column; the first is wholly masked in `masked` problems.
std::vector<Shard> cut(std::int64_t v) {
  const std::int64_t a = v / 3, b = v / 3 + 1;
  return {{0, a}, {a, 1}, {b, v - b}};
}

std::vector<Case> cases(const OperatorParameter& on) {
  const bool whole_blocks = on.implementation == "tpu_tile";
  Case c;
  c.op = on.op;
  c.b = tiny() ? 5 : 39;
  c.h = tiny() ? 7 : 34;
  c.v = tiny() ? 37 : 411;
  if (whole_blocks) c.b = c.h = 128;
  c.bias = true;
  c.labels = Labels::some_ignored;
  c.options.logsumexp_weight = 1e-2f;
  std::vector<Case> all;
  auto add = [&](const std::string& name, auto change) {
    Case next = c;
    next.name = "shards_" + name + (whole_blocks ? "_tile" : "");
    change(next);
    all.push_back(next);
  };
  const auto everything = [](Case& k) {
    k.options.label_smoothing = 0.2f;
    k.options.logit_soft_cap = 6.0f;
    k.class_weight = true;
    k.weight = Weights::signed_and_zero;
    k.dloss = k.dlse = Cotangent::given;
  };
  add("plain", [](Case&) {});
  add("everything", everything);
  add("none_hv", [](Case& k) {
    k.w_layout = WLayout::hv;
    k.options.reduction = Reduction::none;
    k.options.label_smoothing = 0.1f;
    k.label_type = DType::i64;
    k.dloss = Cotangent::given;
  });
  add("masked", [](Case& k) { k.data = Data::masked; });
  add("large_spread", [](Case& k) { k.data = Data::large_spread; });
  add("large_offset", [](Case& k) { k.data = Data::large_offset; });
  add("equal", [](Case& k) {
    k.data = Data::equal;
    k.bias = false;
  });
  add("nan_rows", [](Case& k) {
    k.data = Data::nan_rows;
    k.options.reduction = Reduction::none;
  });
  add("bf16", [](Case& k) { k.x_type = k.w_type = DType::bf16; });
  if (whole_blocks) return on.op->as_shards(all);  // labels alone
  for (const auto& [targets, form] :
       {std::pair{Targets::pairs, "pairs"}, std::pair{Targets::dense, "dense"}}) {
    const auto soft = [&, of = targets](const std::string& name, auto change) {
      add(form + ("_" + name), [&](Case& k) {
        k.targets = of;
        k.pairs = 40;
        if (of == Targets::dense) k.labels = Labels::uniform;
        change(k);
      });
    };
    soft("plain", [](Case&) {});
    soft("everything", everything);
    soft("masked", [](Case& k) { k.data = Data::masked; });
    soft("large_offset", [](Case& k) {
      k.data = Data::large_offset;
      k.options.reduction = Reduction::none;
    });
  }
  return on.op->as_shards(all);
}

template <class Operator>
typename Operator::Options own_options(const Case& c, const LossOptions& loss) {
  return static_cast<const TestOperatorOf<Operator>&>(*c.op).own_options(c, loss);
}

template <class Operator>
typename Operator::Options options_of(const Case& c, const Shard& shard) {
  LossOptions options = c.options;
  options.vocab_offset = shard.first;
  options.vocab_size_total = c.v;
  return own_options<Operator>(c, options);
}

/// The axis of the columns that a call has, counted from the last; nothing: it has none.
std::optional<int> column_axis(const SymbolicShape& shape) {
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape.axis(axis) == 'V') return shape.rank() - axis;
  }
  return std::nullopt;
}

/// What a call of an operator on shards is made of, by its traits.
template <class Operator>
struct Sharded {
  using Traits = OperatorTraits<Operator>;
  using Inputs = typename Operator::Inputs;
  using Gradients = typename Operator::Gradients;

  /// The inputs of one shard as views into the whole's.
  static Inputs inputs_of(const Inputs& whole, const Shard& shard) {
    Inputs in = whole;
    for (const auto& input : Traits::inputs) {
      const View& view = whole.*input.view;
      const auto from_last = column_axis(input.shape);
      if (!view || !from_last) continue;
      const int axis = view.extents().rank() - *from_last;
      Dims extents = view.extents();
      extents[axis] = shard.columns;
      const auto* data =
          static_cast<const std::byte*>(view.host_data()) +
          shard.first * view.strides()[axis] * static_cast<std::int64_t>(size_of(view.dtype()));
      in.*input.view = View::host(data, view.dtype(), extents, view.strides());
    }
    return in;
  }

  using Partial = decltype(forward_partial(shared_context(), Inputs(), {}, {}));

  static std::vector<Partial> partials(const std::string& implementation, const Case& c,
                                       const Arguments& arguments) {
    const Inputs whole = arguments.inputs<Operator>(Pass::forward_partial);
    std::vector<Partial> parts;
    for (const Shard& shard : cut(c.v)) {
      parts.push_back(forward_partial(shared_context(), inputs_of(whole, shard),
                                      options_of<Operator>(c, shard),
                                      on<Operator>(implementation)));
      EXPECT_EQ(parts.back().dispatch.implementation, implementation);
    }
    return parts;
  }

  /// Runs backward on every shard: into their part of the results that have columns, and the sum
  /// over shards into those that have none.
  static void backward_into(Results& results, const std::string& implementation, const Case& c,
                            const Inputs& whole) {
    std::map<std::string, std::vector<double>> sums;
    for (const Shard& shard : cut(c.v)) {
      Gradients gradients;
      std::map<std::string, std::vector<float>> parts;
      for (const auto& gradient : c.op->gradients()) {
        const char* name = gradient.name;
        const auto& of = c.op->input_of(gradient);
        const Argument& result = results[name];
        if (!result) continue;
        MutableView& view = gradients.*view_of(name);
        if (const auto from_last = column_axis(of.shape)) {
          const int axis = result.extents.rank() - *from_last;
          Dims extents = result.extents;
          extents[axis] = shard.columns;
          view = result.storage->mutable_view(extents, result.strides,
                                              shard.first * result.strides[axis]);
        } else {
          auto& part = parts[name];
          part.assign(static_cast<std::size_t>(result.size()), std::nanf(""));
          view = MutableView::host(part.data(), result.extents);
        }
      }
      backward(shared_context(), inputs_of(whole, shard), gradients, options_of<Operator>(c, shard),
               on<Operator>(implementation))
          .wait();
      for (const auto& [name, part] : parts) {
        auto& sum = sums[name];
        sum.resize(part.size());
        for (std::size_t i = 0; i < part.size(); ++i) sum[i] += part[i];
      }
    }
    for (const auto& [name, sum] : sums) {
      const Argument& result = results[name];
      for (std::int64_t i = 0; i < result.size(); ++i) {
        result.storage->set(result.at(i), sum[static_cast<std::size_t>(i)]);
      }
    }
  }

  static MutableView Gradients::*view_of(const std::string& name) {
    for (const auto& gradient : Traits::gradients) {
      if (gradient.name == name) return gradient.view;
    }
    throw std::logic_error(name);
  }
};

/// Calls `test.operator()<Operator>()` for the operator of the parameter.
template <class Test>
void with_operator(const TestOperator* op, const Test& test) {
  for_each_loss([&]<class Operator>(std::type_identity<Operator>) {
    if (&test_operator<Operator>() == op) test.template operator()<Operator>();
  });
}

template <class Operator>
CombineInputs combine_inputs(const Arguments& arguments) {
  const auto whole = arguments.inputs<Operator>(Pass::forward_partial);
  CombineInputs in{.labels = whole.labels,
                   .weight = whole.weight,
                   .target_indices = whole.target_indices,
                   .target_probs = whole.target_probs,
                   .targets = whole.targets};
  if constexpr (requires { whole.class_weight; }) in.class_weight = whole.class_weight;
  return in;
}

template <class Operator>
typename Operator::Options merging(const Case& c) {
  LossOptions options = c.options;
  options.vocab_size_total = c.v;
  options.wants = every_output<Operator>();
  return own_options<Operator>(c, options);
}

TEST_P(Shards, MergeToTheWholeInAnyGrouping) {
  const auto& [op, implementation] = GetParam();
  Context& context = shared_context();
  for (const Case& c : cases(GetParam())) {
    SCOPED_TRACE(c.name);
    const Expected& e = expected_of(c);
    Arguments arguments(context, c, e.problem);
    int lists = 0;
    with_operator(op, [&]<class Operator>() {
      const auto parts = Sharded<Operator>::partials(implementation, c, arguments);
      using List = std::vector<typename Sharded<Operator>::Partial>;
      const auto merged = [](List list) { return merge(list); };
      const List left{merged({parts[0], parts[1]}), parts[2]};
      const List right{parts[0], merged({parts[1], parts[2]})};
      const List backwards{parts[2], parts[1], parts[0]};
      for (const List& list : {parts, left, right, backwards, List{merged(parts)}}) {
        Results results(context, c, e, Pass::forward, implementation);
        results.take<Operator>(
            combine(list, combine_inputs<Operator>(arguments), merging<Operator>(c)));
        results.check(arguments);
        ++lists;
      }
    });
    EXPECT_EQ(lists, 5);
  }
}

TEST_P(Shards, BackwardFromMergedStatistics) {
  const auto& [op, implementation] = GetParam();
  Context& context = shared_context();
  for (const Case& c : cases(GetParam())) {
    SCOPED_TRACE(c.name);
    const Expected& e = expected_of(c);
    Arguments arguments(context, c, e.problem);
    // Gradients of 16-bit operands in f32, so that the sum over shards is not rounded twice.
    Case in_f32 = c;
    in_f32.grad_x_type = in_f32.grad_w_type = DType::f32;
    Results results(context, in_f32, e, Pass::backward, implementation);
    bool ran = false;
    with_operator(op, [&]<class Operator>() {
      const auto parts = Sharded<Operator>::partials(implementation, c, arguments);
      const auto merged = combine(parts, combine_inputs<Operator>(arguments), merging<Operator>(c));
      auto whole = arguments.template inputs<Operator>(Pass::backward);
      whole.statistics = merged.statistics.view();
      if constexpr (requires { merged.divergence_statistics; }) {
        whole.divergence_statistics = merged.divergence_statistics.view();
      }
      Sharded<Operator>::backward_into(results, implementation, c, whole);
      ran = true;
    });
    ASSERT_TRUE(ran);
    results.check(arguments);
  }
}

TEST_P(Shards, ValueAndGradOnAShardIsRefused) {
  const auto& [op, implementation] = GetParam();
  const Case c = cases(GetParam()).front();
  const Expected& e = expected_of(c);
  Arguments arguments(shared_context(), c, e.problem);
  const Shard shard = cut(c.v)[1];
  expect_error(ErrorCode::invalid_argument, {"forward_partial"}, [&] {
    with_operator(op, [&]<class Operator>() {
      value_and_grad(shared_context(),
                     Sharded<Operator>::inputs_of(arguments.template inputs<Operator>(), shard),
                     options_of<Operator>(c, shard), on<Operator>(implementation));
    });
  });
}

/// Of the operators that have shards.
std::vector<OperatorParameter> sharded() {
  auto all = operators_and_implementations();
  std::erase_if(all, [](const auto& each) { return !each.op->has_pass(Pass::forward_partial); });
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Shards, testing::ValuesIn(sharded()), operator_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Shards);

}  // namespace
}  // namespace tessera::test
