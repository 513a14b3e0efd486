// SPDX-License-Identifier: Apache-2.0
// Shards of the vocabulary, merged in any grouping, are the whole; backward on shards from the
// merged statistics concatenates to the whole's grad_w and adds up to its grad_x.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

class Shards : public ImplementationTest {
 protected:
  // The smallest problem of all is not one of whole blocks.
  void SetUp() override {
    if (GetParam() != "tpu_tile") ImplementationTest::SetUp();
  }
};

struct Shard {
  std::int64_t first, columns;
};

/// Unequal shards, one of a single column; the first is wholly masked in `masked` problems.
std::vector<Shard> cut(std::int64_t v) {
  const std::int64_t a = v / 3, b = v / 3 + 1;
  return {{0, a}, {a, 1}, {b, v - b}};
}

std::vector<Case> cases(const std::string& implementation) {
  const bool whole_blocks = implementation == "tpu_tile";
  Case c;
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
  add("plain", [](Case&) {});
  add("everything", [](Case& k) {
    k.options.label_smoothing = 0.2f;
    k.options.logit_soft_cap = 6.0f;
    k.class_weight = true;
    k.weight = Weights::signed_and_zero;
    k.dloss = k.dlse = Cotangent::given;
  });
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
  return all;
}

/// The inputs of one shard as views into the whole's.
lce::Inputs inputs_of(const lce::Inputs& whole, const Shard& shard) {
  lce::Inputs in = whole;
  const auto slice = [&](const View& view, int axis) {
    Dims extents = view.extents();
    extents[axis] = shard.columns;
    const auto* data =
        static_cast<const std::byte*>(view.host_data()) +
        shard.first * view.strides()[axis] * static_cast<std::int64_t>(size_of(view.dtype()));
    return View::host(data, view.dtype(), extents, view.strides());
  };
  in.w = slice(whole.w, 1);
  if (whole.bias) in.bias = slice(whole.bias, 0);
  return in;
}

LossOptions options_of(const Case& c, const Shard& shard) {
  LossOptions options = c.options;
  options.vocab_offset = shard.first;
  options.vocab_size_total = c.v;
  return options;
}

lce::ExecutionOptions on(const std::string& implementation) {
  lce::ExecutionOptions execution;
  execution.implementation = implementation;
  return execution;
}

/// Copies the fields of an owned result where Results::check reads them.
void put(Argument& to, const HostTensor& from, const char* name) {
  ASSERT_TRUE(from) << name;
  ASSERT_EQ(from.size(), to.size()) << name;
  for (std::int64_t i = 0; i < to.size(); ++i) {
    const auto k = static_cast<std::size_t>(i);
    if (from.dtype() == DType::i32) {
      to.storage->set_integer(to.at(i), from.as<std::int32_t>()[k]);
    } else {
      to.storage->set(to.at(i), from.as<float>()[k]);
    }
  }
  to.storage->upload();
}

TEST_P(Shards, MergeToTheWholeInAnyGrouping) {
  Context& context = shared_context();
  for (const Case& c : cases(GetParam())) {
    SCOPED_TRACE(c.name);
    const Expected& e = expected_of(c);
    Arguments arguments(context, c, e.problem);
    const lce::Inputs whole = arguments.linear(Pass::forward);
    std::vector<PartialResult> parts;
    for (const Shard& shard : cut(c.v)) {
      parts.push_back(lce::forward_partial(context, inputs_of(whole, shard), options_of(c, shard),
                                           on(GetParam())));
      EXPECT_EQ(parts.back().dispatch.implementation, GetParam());
    }
    using List = std::vector<PartialResult>;
    const List left{merge(List{parts[0], parts[1]}), parts[2]};
    const List right{parts[0], merge(List{parts[1], parts[2]})};
    const List backwards{parts[2], parts[1], parts[0]};
    const List once{merge(parts)};
    LossOptions options = c.options;
    options.vocab_size_total = c.v;
    options.wants = {.lse = true,
                     .argmax = true,
                     .label_logprob = true,
                     .entropy = true,
                     .z_loss = true,
                     .statistics = true};
    const CombineInputs in{
        .labels = whole.labels, .weight = whole.weight, .class_weight = whole.class_weight};
    for (const List* list : {static_cast<const List*>(&parts), &left, &right, &backwards, &once}) {
      const LossResult merged = combine(*list, in, options);
      Results results(context, c, e, Pass::forward, GetParam());
      put(results.loss, merged.loss, "loss");
      put(results.lse, merged.lse, "lse");
      put(results.argmax, merged.argmax, "argmax");
      put(results.label_logprob, merged.label_logprob, "label_logprob");
      put(results.entropy, merged.entropy, "entropy");
      put(results.z_loss, merged.z_loss, "z_loss");
      put(results.statistics, merged.statistics, "statistics");
      results.check(arguments);
    }
  }
}

TEST_P(Shards, BackwardFromMergedStatistics) {
  Context& context = shared_context();
  for (const Case& c : cases(GetParam())) {
    SCOPED_TRACE(c.name);
    const Expected& e = expected_of(c);
    Arguments arguments(context, c, e.problem);
    lce::Inputs whole = arguments.linear();
    std::vector<PartialResult> parts;
    for (const Shard& shard : cut(c.v)) {
      parts.push_back(lce::forward_partial(context,
                                           inputs_of(arguments.linear(Pass::forward), shard),
                                           options_of(c, shard), on(GetParam())));
    }
    LossOptions options = c.options;
    options.vocab_size_total = c.v;
    options.wants.statistics = true;
    const LossResult merged = combine(
        parts, {.labels = whole.labels, .weight = whole.weight, .class_weight = whole.class_weight},
        options);
    whole.statistics = merged.statistics.view();

    // Gradients of 16-bit operands in f32, so that the sum over shards is not rounded twice.
    Case in_f32 = c;
    in_f32.grad_x_type = in_f32.grad_w_type = DType::f32;
    Results results(context, in_f32, e, Pass::backward, GetParam());
    std::vector<double> grad_x(static_cast<std::size_t>(c.b * c.h), 0.0);
    for (const Shard& shard : cut(c.v)) {
      const lce::Inputs in = inputs_of(whole, shard);
      std::vector<float> part(grad_x.size(), std::nanf(""));
      lce::Gradients gradients;
      gradients.grad_x = MutableView::host(part.data(), {c.b, c.h});
      const Argument& w = results.grad_w;
      gradients.grad_w =
          w.storage->mutable_view({c.h, shard.columns}, w.strides, shard.first * w.strides[1]);
      if (results.grad_bias) {
        gradients.grad_bias =
            results.grad_bias.storage->mutable_view({shard.columns}, {1}, shard.first);
      }
      lce::backward(context, in, gradients, options_of(c, shard), on(GetParam())).wait();
      for (std::size_t i = 0; i < part.size(); ++i) grad_x[i] += part[i];
    }
    for (std::int64_t i = 0; i < results.grad_x.size(); ++i) {
      results.grad_x.storage->set(results.grad_x.at(i), grad_x[static_cast<std::size_t>(i)]);
    }
    results.check(arguments);
  }
}

TEST_P(Shards, ValueAndGradOnAShardIsRefused) {
  const Case c = cases(GetParam()).front();
  const Expected& e = expected_of(c);
  Arguments arguments(shared_context(), c, e.problem);
  const Shard shard = cut(c.v)[1];
  try {
    lce::value_and_grad(shared_context(), inputs_of(arguments.linear(), shard),
                        options_of(c, shard), on(GetParam()));
    FAIL() << "a shard alone has no loss";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("forward_partial"), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(All, Shards, testing::ValuesIn(linear_implementations()),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Shards);

}  // namespace
}  // namespace tessera::test
