// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/random_case.hpp"

#include <algorithm>

#include "tests/support/test_operator.hpp"

namespace tessera::test::fuzz {

std::uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

namespace {

// What the oracle multiplies in some milliseconds, and keeps of logits in doubles.
constexpr std::int64_t most_products = 2'000'000;
constexpr std::int64_t most_logits = 200'000;

const std::vector<DType> floats = {DType::f32, DType::bf16, DType::f16};

/// Whether the logits are a product, of operands with extents of their own.
bool has_matrices(const Case& c) {
  const SymbolicShape shape = c.op->inputs()[0].shape;
  return shape.axis(shape.rank() - 1) == 'H';
}
bool has_teacher(const Case& c) {
  const auto& inputs = c.op->inputs();
  return std::any_of(inputs.begin(), inputs.end(), [](const operators::Input& input) {
    return std::string_view(input.name) == "teacher_x";
  });
}

/// Every extent up to `most` is possible, and edges of blocks, tiles and lanes are likely.
std::int64_t extent(Random& random, std::int64_t most) {
  static const std::vector<std::int64_t> edges = {
      1,  2,  3,  4,  5,   7,   8,   9,   12,  15,  16,  17,  24,  31,  32,  33,   47,   48,
      63, 64, 65, 96, 127, 128, 129, 191, 192, 255, 256, 257, 511, 512, 513, 1000, 1023, 1024};
  std::int64_t n = random.one_of(edges);
  switch (random.below(4)) {
    case 0:
      n = 1 + random.below(most);
      break;
    case 1:
      n = 1 + random.below(40);
      break;
    case 2:
      n += 1024 * random.below(4);
      break;
    default:
      break;
  }
  return std::min(n, most);
}

void set_extents(Case& c, Random& random, bool tile) {
  if (tile) {  // its blocks of 128 divide tokens and hidden size
    c.b = 128 * (1 + random.below(2));
    c.h = 128 * (1 + random.below(2));
    c.v = std::min<std::int64_t>(extent(random, 2000), most_products / (c.b * c.h) + 60);
    return;
  }
  c.b = extent(random, 5000);
  c.h = has_matrices(c) ? extent(random, 3000) : 1;
  c.v = extent(random, 20000);
  const bool layer = has_teacher(c);
  while (c.b * c.v > most_logits || c.b * c.h * c.v * (layer ? 2 : 1) > most_products) {
    // The largest shrinks most, so that each keeps a chance of being the large one.
    std::int64_t& largest = c.b >= c.h && c.b >= c.v ? c.b : c.h >= c.v ? c.h : c.v;
    largest = std::max<std::int64_t>(largest * (3 + random.below(5)) / 8, 1);
  }
  if (random.once_in(60)) c.b = 0;
  if (has_matrices(c) && random.once_in(60)) c.h = 0;
}

/// What kernels are compiled for.
void set_profile(Case& c, Random& random, bool tile) {
  c.op = random.one_of(tile ? std::vector<const TestOperator*>{test_operators()[0]}
                            : test_operators());
  c.x_type = random.one_of(tile ? std::vector{DType::f32, DType::bf16} : floats);
  if (tile) {  // what its MXU multiplies without a cast
    c.w_type = c.x_type;
  } else {
    c.w_type = random.once_in(4) ? random.one_of(floats) : c.x_type;
  }
  c.side_type = random.once_in(3) ? random.one_of(floats) : DType::f32;
  c.label_type = random.once_in(2) ? DType::i64 : DType::i32;
  c.w_layout = random.once_in(2) ? WLayout::hv : WLayout::vh;
  c.bias = has_matrices(c) && !random.once_in(3);
  c.class_weight = !has_teacher(c) && random.once_in(3);
  if (!tile && random.once_in(2)) {
    c.targets = random.one_of(std::vector{Targets::one_pair, Targets::pairs, Targets::dense});
  }
  if (has_teacher(c) && random.once_in(6)) c.targets = Targets::none;
  c.teaching = static_cast<std::size_t>(random.below(9));
  if (random.once_in(3)) c.options.label_smoothing = random.number(0.0f, 1.0f);
  if (random.once_in(3)) c.options.logit_soft_cap = random.number(0.5f, 30.0f);
  if (random.once_in(3)) c.options.logsumexp_weight = random.number(-1e-2f, 1e-2f);
  if (random.once_in(2)) c.outputs = static_cast<unsigned>(random.below(64)) | own_outputs;
  if (random.once_in(3)) c.grad_x_type = random.one_of(floats);
  if (random.once_in(3)) c.grad_w_type = random.one_of(floats);
  if (random.once_in(3)) c.grad_bias_type = random.one_of(floats);
  if (random.once_in(6)) c.dz_dtype = DType::f32;
  const bool can_filter = c.op == &test_operator<linear_cross_entropy::Operator>();
  if (can_filter && random.once_in(5)) {
    c.gradient_filter_eps = random.one_of(std::vector{0x1p-12f, 0x1p-7f, 0.3f});
  }
}

/// Numbers that take their own ways through the sums. Some ask for more than this.
void set_data(Case& c, Random& random) {
  static const std::vector<Data> any = {Data::gaussian, Data::gaussian, Data::gaussian,
                                        Data::dominating, Data::equal};
  static const std::vector<Data> wide = {Data::all_negative, Data::large_offset, Data::large_spread,
                                         Data::one_hot_row};
  static const std::vector<Data> masks = {Data::masked, Data::large_bias};
  static const std::vector<Data> infinite = {Data::masked_label, Data::masked_row, Data::nan_rows};
  // Whose numbers end at 65504.
  bool narrow = false;
  for (const DType type : {c.x_type, c.w_type, c.grad_x_type.value_or(c.x_type),
                           c.grad_w_type.value_or(c.w_type), c.grad_bias_type}) {
    narrow = narrow || type == DType::f16;
  }
  const bool matrices = has_matrices(c);
  c.data = random.one_of(any);
  if (c.data == Data::equal && c.bias) c.data = Data::gaussian;
  if (narrow || c.h == 0 || c.b == 0) return;
  if (random.once_in(4)) c.data = random.one_of(wide);
  // A teacher's probability of a word that the student masks is above 0 or rounded to it, which
  // says whether the divergence is infinite.
  if (random.once_in(6) && !has_teacher(c) && (c.bias || !matrices) && c.side_type != DType::f16) {
    c.data = matrices ? random.one_of(masks) : Data::masked;
  }
  if (!random.once_in(10) || (matrices && !c.bias) || has_teacher(c)) return;
  c.data = random.one_of(infinite);
  // One such row makes a sum over rows, and its own cotangent of lse, an infinity or a NaN.
  c.options.reduction = Reduction::none;
  c.options.logit_soft_cap = 0.0f;
  c.options.logsumexp_weight = 0.0f;
}

bool is_infinite(Data data) {
  return data == Data::masked_label || data == Data::masked_row || data == Data::nan_rows;
}

void set_layouts(Case& c, Random& random, bool tile) {
  static const std::vector<XLayout> rows = {XLayout::padded,   XLayout::column, XLayout::shifted,
                                            XLayout::leading3, XLayout::vector, XLayout::broadcast};
  if (random.once_in(3)) c.x_layout = random.one_of(rows);
  if (tile && (c.x_layout == XLayout::leading3 || c.x_layout == XLayout::vector)) {
    c.x_layout = XLayout::dense;  // its blocks divide the tokens
  }
  if (c.x_layout == XLayout::leading3) c.b = std::max<std::int64_t>(c.b / 6 * 6, 6);
  if (c.x_layout == XLayout::vector) c.b = 1;
  if (random.once_in(3)) {
    c.w_layout = c.w_layout == WLayout::hv ? WLayout::hv_padded : WLayout::vh_padded;
  }
  c.strided_outputs = random.once_in(4);
  c.place = random.once_in(5) ? Place::device : Place::host;
}

void set_rest(Case& c, Random& random, Pass pass, bool tile) {
  c.seed = random.next();
  c.options.reduction =
      random.one_of(std::vector{Reduction::mean, Reduction::sum, Reduction::none});
  if (random.once_in(2)) c.options.logit_scale = random.number(-2.0f, 2.0f);
  c.labels = random.one_of(std::vector{Labels::uniform, Labels::uniform, Labels::some_ignored,
                                       Labels::ends, Labels::all_ignored});
  c.weight = random.one_of(
      std::vector{Weights::none, Weights::none, Weights::positive, Weights::signed_and_zero});
  c.pairs = 1 + random.below(9);
  set_layouts(c, random, tile);
  if (has_gradients(pass)) {
    c.dloss = random.one_of(std::vector{Cotangent::none, Cotangent::given, Cotangent::stride0});
    c.dlse = random.one_of(std::vector{Cotangent::none, Cotangent::given});
    c.from_lse = pass == Pass::backward && random.once_in(3);
    const auto count = static_cast<std::int64_t>(c.op->gradients().size());
    if (random.once_in(2)) c.gradients = 1u + static_cast<unsigned>(random.below(7));
    const unsigned there = (1u << count) - 1 - (c.bias || !has_matrices(c) ? 0u : grad_bias_bit);
    if ((c.gradients & there) == 0) c.gradients = all_gradients;
    if (random.once_in(4)) c.accumulate = true;
    const bool own_type = c.grad_x_type.value_or(c.x_type) == c.x_type;
    const bool lone = !has_matrices(c);
    c.in_place = lone && own_type && c.accumulate == 0u && c.x_layout != XLayout::broadcast &&
                 random.once_in(2);
  }
  set_data(c, random);
  if (is_infinite(c.data)) {
    c.gradient_filter_eps = 0.0f;
    c.dlse = Cotangent::none;
    c.labels = Labels::uniform;
    c.options.logit_scale = 1.0f;
    c.accumulate = false;
  }
  // Under a cap an infinite logit has a loss, and gradients that nobody promises.
  c.values_only = c.data == Data::masked && c.options.logit_soft_cap != 0.0f;
  if (c.targets == Targets::dense || c.targets == Targets::none) c.labels = Labels::uniform;
  if (c.labels == Labels::ends && c.targets == Targets::pairs && c.v <= c.pairs) {
    c.labels = Labels::uniform;  // those pairs are of the words from 1 on
  }
  if (random.once_in(5)) {
    static const std::vector<std::int64_t> any = {8, 16, 32, 64, 128, 256, 512, 1024};
    static const std::vector<std::int64_t> legal = {128};
    const auto& blocks = tile ? legal : any;
    c.block_sizes = {random.one_of(blocks), random.one_of(blocks), random.one_of(blocks)};
  }
}

}  // namespace

Request random_request(const Source& source) {
  Request request;
  Case& c = request.c;
  const bool opencl = source.implementation.starts_with("opencl");
  const bool tile = source.implementation == "tpu_tile";
  Random random((source.seed << 20) + static_cast<std::uint64_t>(source.index));
  const auto profile = static_cast<std::uint64_t>(source.index % source.profiles);
  Random of_profile(opencl ? ~((source.seed << 20) + profile) : random.next());
  set_profile(c, of_profile, tile);
  set_extents(c, random, tile);
  do {
    request.pass = random.one_of(std::vector{Pass::forward, Pass::backward, Pass::value_and_grad,
                                             Pass::value_and_grad, Pass::forward_partial});
  } while (!c.op->has_pass(request.pass) ||
           (request.pass == Pass::forward_partial && !c.op->has_shards(c)));
  set_rest(c, random, request.pass, tile);
  if (request.pass == Pass::forward_partial) c.place = Place::host;
  c.name = "fuzz_" + std::to_string(source.seed) + "_" + std::to_string(source.index);
  return request;
}

}  // namespace tessera::test::fuzz
