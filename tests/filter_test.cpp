// SPDX-License-Identifier: Apache-2.0
// gradient_filter_eps: what exactly is left out of the gradients. Logits are such that dz is large
// in a few tiles and small, though not nothing, everywhere else; from the oracle's dz and the tiles
// of the implementation follows what has to be in the sums and what has not.
#include <gtest/gtest.h>

#include <cmath>

#include "host/dispatch/knobs.hpp"
#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

class Filter : public ImplementationTest {};

constexpr float eps = 0x1p-11f;
/// filter_columns of host/linear/opencl/plan.hpp, and the most columns that grad_w
/// treats as one (complete() in opencl_choose.cpp).
constexpr std::int64_t tile_columns = 64;
constexpr std::int64_t most_together = 96;
/// Tokens whose logits are alike: a multiple of every engine's tile.
constexpr std::int64_t alike = 64;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Setting {
  std::string name;
  DType type = DType::f32;
  WLayout layout = WLayout::vh;
  std::int64_t b = 150, h = 35;
};

/// Columns in which the tokens of part `part` have all but 4% of their probability, evenly: about
/// 1e-2 each, and 1e-4 elsewhere, on both sides of eps with room to spare.
bool is_likely(std::int64_t part, std::int64_t column) {
  if (part == 1) return column >= 512 && column < 576;
  return column < (part == 0 ? 128 : 64);
}

Case case_of(const Setting& s) {
  Case c;
  c.name = "filter_" + s.name;
  c.b = s.b;
  c.h = s.h;
  c.v = 1000;
  c.x_type = c.w_type = s.type;
  c.grad_x_type = c.grad_w_type = DType::f32;
  c.w_layout = s.layout;
  c.labels = Labels::some_ignored;
  c.weight = Weights::positive;
  c.dloss = Cotangent::given;  // the threshold follows it
  return c;
}

/// Row by row, in the order in which the rows that count are packed.
std::vector<std::int64_t> counted_of(const oracle::Problem& p) {
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < p.b; ++row) {
    if (p.labels[index(row)] != p.options.ignore_index) rows.push_back(row);
  }
  return rows;
}

Expected peaked(const Case& c) {
  Expected e;
  auto& p = e.problem = make_problem(c);
  const auto counted = counted_of(p);
  for (std::int64_t i = 0; i < p.h * p.v; ++i) {
    const std::int64_t h = i / p.v;
    auto& w = p.w[index(i)];
    // The first features choose the part, the others are noise that gradients can be told by.
    w = h < 3 ? (is_likely(h, i % p.v) ? 0.0 : -5.0) : round_to(c.w_type, 0.02 * std::sin(i));
  }
  for (std::size_t k = 0; k < counted.size(); ++k) {
    const std::int64_t row = counted[k];
    const auto part = static_cast<std::int64_t>(k) / alike;
    for (std::int64_t h = 0; h < p.h; ++h) {
      auto& x = p.x[index(row * p.h + h)];
      x = h < 3 ? (h == part ? 1.0 : 0.0) : round_to(c.x_type, 0.5 * std::cos(row * p.h + h));
    }
    // A limit that is right for one part is wrong for another.
    p.weight[index(row)] = part == 0 ? 4096.0 : 1.0;
    p.labels[index(row)] = part == 1 ? 512 + static_cast<std::int64_t>(k) % alike : 3;
  }
  // One large element each in two tiles that are small otherwise: the first token, and one inside
  // of a panel.
  p.labels[index(counted.front())] = 300;
  if (counted.size() > 85) p.labels[index(counted[85])] = 900;
  e.values = oracle::forward(p);
  e.gradients = oracle::backward(p);
  e.tolerance = value_tolerance(p, e.values);
  return e;
}

/// Tokens of one tile, from the report; 0: the implementation computes exactly.
std::int64_t tile_tokens(const Dispatch& dispatch) {
  const auto at = dispatch::value_of(dispatch.knobs, "gradient_filter_eps_1e-9");
  if (at) {
    EXPECT_EQ(*at, std::llround(static_cast<double>(eps) * 1e9));
  }
  return dispatch::value_of(dispatch.knobs, "gradient_filter_tokens").value_or(0);
}

/// What is in the sums, by the definition.
class Kept {
 public:
  Kept(const Expected& e, std::int64_t tokens) : tokens_(tokens), counted_(counted_of(e.problem)) {
    const auto& p = e.problem;
    tiles_ = (p.v + tile_columns - 1) / tile_columns;
    position_.assign(index(p.b), 0);
    const auto count = static_cast<std::int64_t>(counted_.size());
    if (tokens == 0) return;
    flags_.assign(index((count + tokens - 1) / tokens * tiles_), false);
    double denominator = 0.0;
    for (const auto row : counted_) denominator += p.weight[index(row)];
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t row = counted_[index(k)];
      position_[index(row)] = k;
      // With neither smoothing nor a z-loss nor dlse the row's coefficient is this.
      const double q = std::abs(p.weight[index(row)] * p.dloss[0] / denominator);
      for (std::int64_t j = 0; j < p.v; ++j) {
        const double dz = std::abs(e.gradients.dz[index(row * p.v + j)]);
        EXPECT_TRUE(dz < 0.9 * eps * q || dz > 1.1 * eps * q) << "too close to judge";
        if (dz > eps * q) flags_[index(k / tokens * tiles_ + j / tile_columns)] = true;
      }
    }
  }
  bool in_grad_x(std::int64_t row, std::int64_t column) const {
    return tokens_ == 0 || flag(row, column / tile_columns);
  }
  /// 1 or 0; -1: it depends on which columns grad_w treats as one.
  int in_grad_w(std::int64_t row, std::int64_t column) const {
    if (in_grad_x(row, column)) return 1;
    const std::int64_t first = std::max<std::int64_t>(0, column - most_together + 1);
    const std::int64_t last = std::min(tiles_ - 1, (column + most_together - 1) / tile_columns);
    for (std::int64_t tile = first / tile_columns; tile <= last; ++tile) {
      if (flag(row, tile)) return -1;
    }
    return 0;
  }
  const std::vector<std::int64_t>& counted() const { return counted_; }

 private:
  bool flag(std::int64_t row, std::int64_t tile) const {
    return flags_[index(position_[index(row)] / tokens_ * tiles_ + tile)];
  }
  std::int64_t tokens_, tiles_ = 0;
  std::vector<std::int64_t> counted_, position_;
  std::vector<bool> flags_;
};

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

/// Runs a pass into `results`, in scratch memory full of NaN: sums that nobody clears are seen.
Dispatch run(const std::string& implementation, const Case& c, Pass pass, float filter,
             const Arguments& arguments, Results& results) {
  Context& context = shared_context();
  auto execution = on<lce::Operator>(implementation);
  execution.gradient_filter_eps = filter;
  const auto in = arguments.inputs<lce::Operator>(pass);
  const auto gradients = results.gradients<lce::Operator>(arguments);
  const auto outputs = pass == Pass::backward ? Outputs{} : results.outputs();
  const auto plan = lce::plan(context, pass, in, outputs, gradients, c.options, execution);
  Argument block;
  if (plan.workspace_bytes > 0) {
    block = make_argument(context, Place::host, DType::f32, {(plan.workspace_bytes + 3) / 4});
    execution.workspace = block.mutable_view();
  }
  Completion done =
      run_views<lce::Operator>(context, pass, in, outputs, gradients, c.options, execution);
  done.wait();
  for (Argument* a : {&results["grad_x"], &results["grad_w"], &results["grad_bias"]}) {
    if (*a) a->storage->download();
  }
  return done.dispatch();
}

void check(const std::string& implementation, const Setting& setting, Pass pass) {
  const Case c = case_of(setting);
  SCOPED_TRACE(c.name + " " + to_string(pass));
  const Expected e = peaked(c);
  const auto& p = e.problem;
  Context& context = shared_context();
  Arguments arguments(context, c, p);
  arguments.add_statistics(context, e.values);
  Results results(context, c, e, pass, implementation);
  const Dispatch dispatch = run(implementation, c, pass, eps, arguments, results);
  const std::int64_t tokens = tile_tokens(dispatch);
  EXPECT_EQ(tokens > 0, implementation.starts_with("opencl"));
  const Kept kept(e, tokens);

  Precision precision;
  precision.dz = dz_type(implementation, c);
  const auto tolerance = gradient_tolerance(p, e.values, e.gradients, e.tolerance, precision);
  // What is left out is this many tolerances, to be told from rounding; that of dz to bf16 is
  // coarse.
  const double telling = precision.dz == DType::bf16 ? 5.0 : 20.0;
  double most_left_out = 0.0;
  std::vector<double> actual(index(p.h)), expected(index(p.h)), exact(index(p.h));
  for (const auto row : kept.counted()) {
    for (std::int64_t h = 0; h < p.h; ++h) {
      double sum = 0.0;
      for (std::int64_t j = 0; j < p.v; ++j) {
        if (!kept.in_grad_x(row, j)) continue;
        sum += e.gradients.dz[index(row * p.v + j)] * p.w[index(h * p.v + j)];
      }
      expected[index(h)] = sum;
      actual[index(h)] = results["grad_x"].get(row * p.h + h);
      exact[index(h)] = e.gradients.grad_x[index(row * p.h + h)];
    }
    const double allowed = tolerance.grad_x[index(row)];
    ASSERT_LE(distance(actual, expected), allowed) << "grad_x of row " << row;
    most_left_out = std::max(most_left_out, distance(expected, exact) / allowed);
  }
  if (tokens > 0) {
    EXPECT_GT(most_left_out, telling) << "nothing of grad_x was left out";
  }

  most_left_out = 0.0;
  std::int64_t judged = 0;
  for (std::int64_t j = 0; j < p.v; ++j) {
    bool certain = true;
    for (const auto row : kept.counted()) certain = certain && kept.in_grad_w(row, j) >= 0;
    if (!certain) continue;
    ++judged;
    for (std::int64_t h = 0; h < p.h; ++h) {
      double sum = 0.0;
      for (const auto row : kept.counted()) {
        if (kept.in_grad_w(row, j) == 0) continue;
        sum += e.gradients.dz[index(row * p.v + j)] * p.x[index(row * p.h + h)];
      }
      expected[index(h)] = sum;
      actual[index(h)] = results["grad_w"].get(h * p.v + j);
      exact[index(h)] = e.gradients.grad_w[index(h * p.v + j)];
    }
    const double allowed = tolerance.grad_w[index(j)];
    ASSERT_LE(distance(actual, expected), allowed) << "grad_w of column " << j;
    most_left_out = std::max(most_left_out, distance(expected, exact) / allowed);
  }
  EXPECT_GT(judged, 300);
  if (tokens > 0) {
    EXPECT_GT(most_left_out, telling) << "nothing of grad_w was left out";
  }
}

TEST_P(Filter, LeavesOutTilesThatAreSmallAndNoOthers) {
  std::vector<Setting> settings = {
      {"f32_vh"},
      {"f32_hv", DType::f32, WLayout::hv},
      {"f32_strided", DType::f32, WLayout::strided},
      {"bf16_vh", DType::bf16, WLayout::vh},
      {"f16_hv", DType::f16, WLayout::hv},
      {"few_rows", DType::f32, WLayout::vh, 5},
      // So many that steps of grad_x begin within a tile of the filter.
      {"many_rows", DType::f32, WLayout::vh, 450},
      {"in_grad_w", DType::f32, WLayout::vh, 150, 200},
      {"in_grad_w_hv", DType::f32, WLayout::hv, 150, 200}};
  if (tiny()) settings = {{"tiny", DType::f32, WLayout::vh, 3, 5}};
  // The kernels that filter are the same in both passes, so the first setting alone takes both.
  // Nothing in an implementation that filters nothing depends on the setting.
  if (!GetParam().starts_with("opencl")) settings.resize(1);
  for (std::size_t i = 0; i < settings.size(); ++i) {
    if (!is_wanted(case_of(settings[i]).name)) continue;
    if (i % 2 == 0) check(GetParam(), settings[i], Pass::backward);
    if (i % 2 == 1 || i == 0) check(GetParam(), settings[i], Pass::value_and_grad);
  }
}

/// Probabilities below the threshold in every row: sums of nothing are zeros, and what is added to
/// stays.
TEST_P(Filter, NothingLeftIsZero) {
  for (const bool accumulate : {false, true}) {
    Case c = case_of({accumulate ? "nothing_added" : "nothing"});
    if (!accumulate) {  // several tiles and steps of grad_x for every group
      c.h = 4000;
      c.v = 200;
    }
    if (tiny()) c.b = 3, c.h = 5, c.v = 70;
    c.accumulate = accumulate;
    c.data = Data::equal;
    c.options.reduction = Reduction::sum;
    c.dloss = Cotangent::none;
    const Expected& e = expected_of(c);
    Context& context = shared_context();
    Arguments arguments(context, c, e.problem);
    arguments.add_statistics(context, e.values);
    for (const Pass pass : {Pass::backward, Pass::value_and_grad}) {
      Results results(context, c, e, pass, GetParam());
      const auto before = [&](const Argument& a) {
        std::vector<double> values;
        for (std::int64_t i = 0; i < a.size(); ++i) values.push_back(accumulate ? a.get(i) : 0.0);
        return values;
      };
      const auto x = before(results["grad_x"]), w = before(results["grad_w"]);
      // 1e-3 everywhere, and 1 - 1e-3 for labels.
      run(GetParam(), c, pass, 0.9999f, arguments, results);
      if (!GetParam().starts_with("opencl")) continue;
      for (std::int64_t i = 0; i < results["grad_x"].size(); ++i) {
        ASSERT_EQ(results["grad_x"].get(i), x[index(i)]) << "grad_x, element " << i;
      }
      for (std::int64_t i = 0; i < results["grad_w"].size(); ++i) {
        ASSERT_EQ(results["grad_w"].get(i), w[index(i)]) << "grad_w, element " << i;
      }
    }
  }
}

/// Every byte of the gradients.
std::vector<std::byte> gradients(const std::string& implementation, Pass pass, const Case& c,
                                 float filter) {
  const Expected& e = expected_of(c);
  Context& context = shared_context();
  Arguments arguments(context, c, e.problem);
  arguments.add_statistics(context, e.values);
  Results results(context, c, e, pass, implementation);
  const Dispatch dispatch = run(implementation, c, pass, filter, arguments, results);
  if (filter == 0.0f) {
    EXPECT_EQ(tile_tokens(dispatch), 0);
  }
  std::vector<std::byte> bytes;
  for (Argument* a : {&results["grad_x"], &results["grad_w"], &results["grad_bias"]}) {
    const auto n = static_cast<std::size_t>(a->storage->elements()) * size_of(a->storage->type());
    bytes.insert(bytes.end(), a->storage->bytes(), a->storage->bytes() + n);
  }
  return bytes;
}

TEST_P(Filter, ZeroGivesTheBitsOfTheDefault) {
  for (const DType type : {DType::f32, DType::bf16}) {
    Case c = case_of({std::string("bits_") + to_string(type), type});
    c.bias = true;
    if (tiny()) c.b = 3, c.h = 5, c.v = 70;
    for (const Pass pass : {Pass::backward, Pass::value_and_grad}) {
      const auto before =
          gradients(GetParam(), pass, c, lce::ExecutionOptions{}.gradient_filter_eps);
      // A filtered call between them leaves nothing behind.
      gradients(GetParam(), pass, c, 0x1p-3f);
      EXPECT_TRUE(before == gradients(GetParam(), pass, c, 0.0f)) << to_string(pass);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Filter,
                         testing::ValuesIn(implementations_of<lce::Operator>(takes_any_shape)),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Filter);

}  // namespace
}  // namespace tessera::test
