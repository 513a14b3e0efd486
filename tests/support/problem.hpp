// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/oracle/oracle.hpp"
#include "tests/support/guarded_buffer.hpp"
#include "tests/support/operators.hpp"

/// The table's rows: what a problem looks like, and the numbers in it. A case says everything by
/// value and its numbers follow from the seed alone, so that every implementation and every pass
/// see the same problem.
namespace tessera::test {

/// Where the elements of w[H,V] (and of grad_w) lie.
enum class WLayout { hv, vh, hv_padded, vh_padded, strided };
/// Where the rows of x (and of grad_x) lie. `shifted` is x[:, :-1] with labels[:, 1:]; `leading3`
/// has three leading axes, none of which merge; `vector` is a single example without leading axes;
/// `broadcast` repeats one row by stride 0; `column` has the tokens adjacent in memory.
enum class XLayout { dense, padded, column, shifted, leading3, vector, broadcast };

enum class Data {
  gaussian,      ///< with outliers: one element in 64 is eight times larger
  dominating,    ///< one column stands 40 above the rest in every row
  all_negative,  ///< every logit below -100
  large_offset,  ///< logits of 1e4 that differ by units
  large_spread,  ///< logits of +-1e4
  equal,         ///< all logits equal, exactly: argmax is the lowest index
  one_hot_row,   ///< row 0 has logits of +-1e3, the others are ordinary
  masked,        ///< a bias of -Inf on the first half of the columns and on every seventh
  masked_label,  ///< the same, and row 0's label is masked
  masked_row,    ///< row 0 has nothing but -Inf logits
  nan_rows,      ///< row 0 has a NaN, row 2 a +Inf among its x
  large_bias,    ///< a bias of 200 more: exp of it alone overflows, as rows that pad a tile have it
  nan_bias,      ///< a NaN in the bias: every row
  denormals,     ///< of bf16, or of f16: every third element of x, every fifth of w
  rising,        ///< of logits: each eighth of a row stands 60 above the one before
};

enum class Labels { uniform, some_ignored, all_ignored, ends };
/// What says where a row's probability is: its label, the same as one pair, several pairs of which
/// the label is one (some rows with fewer, some adding up to less than 1), or every word; or
/// nothing does, of operators that need not know.
enum class Targets { labels, one_pair, pairs, dense, none };
/// Per-token weights: positive, with zeros and negatives, or summing to exactly 0.
enum class Weights { none, positive, signed_and_zero, cancelling };
enum class Cotangent { none, given, stride0 };

/// What a case asks for: the operator's outputs behind the loss, and its gradients, in the order of
/// its OperatorTraits. A gradient exists only where its input is given.
enum OutputBit : unsigned {
  lse_bit = 1,
  argmax_bit = 2,
  label_logprob_bit = 4,
  entropy_bit = 8,
  z_loss_bit = 16,
  statistics_bit = 32,
  all_outputs = 63,
  own_outputs = ~63u  ///< what an operator has besides, in the order of its description
};
enum GradientBit : unsigned {
  grad_x_bit = 1,
  grad_w_bit = 2,
  grad_bias_bit = 4,
  all_gradients = 7
};

/// Gradients by their bits, or all of them, or none.
class GradientSet {
 public:
  constexpr GradientSet() = default;
  constexpr GradientSet(std::same_as<bool> auto every)
      : bits_(every ? unsigned{all_gradients} : 0u) {}
  constexpr GradientSet(std::same_as<unsigned> auto bits) : bits_(bits) {}
  constexpr GradientSet(GradientBit bit) : bits_(bit) {}
  constexpr operator unsigned() const { return bits_; }

 private:
  unsigned bits_ = 0;
};

struct Case {
  const TestOperator* op = &test_operator<linear_cross_entropy::Operator>();
  std::string name{};
  std::int64_t b = 5, h = 7, v = 37;
  DType x_type = DType::f32;  ///< of the first input, which has the rows
  DType w_type = DType::f32;
  DType side_type = DType::f32;  ///< bias, weights and cotangents
  DType label_type = DType::i32;
  WLayout w_layout = WLayout::vh;
  XLayout x_layout = XLayout::dense;
  Data data = Data::gaussian;
  Labels labels = Labels::uniform;
  Targets targets = Targets::labels;
  std::int64_t pairs = 4;  ///< of a row with Targets::pairs
  LossOptions options{};
  bool bias = false;
  bool class_weight = false;
  Weights weight = Weights::none;
  Cotangent dloss = Cotangent::none;
  Cotangent dlse = Cotangent::none;
  std::optional<DType> grad_x_type{};  ///< default: x's
  std::optional<DType> grad_w_type{};  ///< default: w's
  DType grad_bias_type = DType::f32;
  std::optional<WLayout> grad_w_layout{};  ///< default: w's
  GradientSet accumulate{};                ///< gradients that are added to
  bool strided_outputs = false;            ///< every other element of the per-token outputs' memory
  bool from_lse = false;                   ///< backward gets lse, not statistics
  unsigned outputs = all_outputs | own_outputs;  ///< optional outputs asked for, bits of OutputBit
  unsigned gradients = all_gradients;            ///< gradients asked for, bits of GradientBit
  bool in_place = false;     ///< the first gradient is the very view of its input
  bool values_only = false;  ///< gradients are unspecified (an infinite logit under a cap)
  Place place = Place::host;
  /// An operator takes those that its own block sizes have, by name.
  std::optional<linear_cross_entropy::BlockSizes> block_sizes{};
  std::vector<NamedValue> knobs{};
  std::optional<std::size_t> workspace_bytes{};
  float gradient_filter_eps = 0.0f;  ///< of operators that have the option
  std::optional<DType> dz_dtype{};   ///< and this one
  /// Of operators with options of their own: which of those that their file has.
  std::size_t teaching = 0;
  std::uint64_t seed = 1;
};

/// Case 0 as GoogleTest prints it.
void PrintTo(const Case& c, std::ostream* out);

/// The numbers of a case (TestOperator::make_problem).
oracle::Problem make_problem(const Case& c);

/// Extents, strides and memory of x, or logits, and everything that is per token.
struct RowLayout {
  Dims leading{};               ///< extents
  Dims x_strides{};             ///< of x, [leading, h]
  Dims label_strides{};         ///< [leading]
  std::int64_t x_elements = 0;  ///< of the memory behind x
  std::int64_t label_offset = 0;
  std::int64_t label_elements = 0;
};
RowLayout row_layout(XLayout layout, std::int64_t b, std::int64_t h);

/// Strides and memory of w.
struct MatrixLayout {
  Dims strides{};
  std::int64_t elements = 0;
};
MatrixLayout matrix_layout(WLayout layout, std::int64_t h, std::int64_t v);

/// Offset in elements of flat row `row` over extents and strides of the leading axes.
std::int64_t row_offset(const Dims& leading, const Dims& strides, std::int64_t row);

/// One argument: memory and the way the case looks at it.
struct Argument {
  std::unique_ptr<Storage> storage{};
  Dims extents{}, strides{};
  std::int64_t offset = 0;

  explicit operator bool() const { return storage != nullptr; }
  View view() const { return storage ? storage->view(extents, strides, offset) : View(); }
  MutableView mutable_view() const {
    return storage ? storage->mutable_view(extents, strides, offset) : MutableView();
  }
  /// Element offset of the flat row-major index `i` of the view.
  std::int64_t at(std::int64_t i) const { return offset + row_offset(extents, strides, i); }
  double get(std::int64_t i) const { return storage->get(at(i)); }
  std::int64_t size() const { return extents.product(); }
};

/// Arguments by name; one that a case does not have is there, and empty.
class NamedArguments {
 public:
  Argument& add(std::string name) { return all_.emplace_back(std::move(name), Argument()).second; }
  /// Throws std::logic_error for a name that was not added.
  Argument& operator[](std::string_view name);
  const Argument& operator[](std::string_view name) const;
  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }

 private:
  std::vector<std::pair<std::string, Argument>> all_;
};

/// The inputs of a case's operator in guarded memory, laid out as the case says; what no view
/// reaches is poison.
class Arguments {
 public:
  Arguments(Context& context, const Case& c, const oracle::Problem& problem);

  Argument& operator[](std::string_view name) { return memory_[name]; }
  const Argument& operator[](std::string_view name) const { return memory_[name]; }

  /// Only what the pass reads: cotangents with gradients, statistics in backward.
  template <class Operator>
  typename Operator::Inputs inputs(Pass pass = Pass::value_and_grad) const {
    typename Operator::Inputs all;
    for (const auto& input : OperatorTraits<Operator>::inputs) {
      if (reads_in(pass, input.reads)) all.*input.view = memory_[input.name].view();
    }
    return all;
  }
  /// Statistics or lse for backward, from the oracle's values, rounded to f32.
  void add_statistics(Context& context, const oracle::Values& values);
  /// Empty, or which input was written to or beside.
  std::string damage();

  const RowLayout& rows() const { return rows_; }

 private:
  Argument make_labels(Context& context, const oracle::Problem& problem) const;
  Argument make_indices(Context& context, const oracle::Problem& problem) const;
  Case case_;
  RowLayout rows_;
  NamedArguments memory_;
};

/// An argument of these extents and strides over new memory, poisoned.
Argument make_argument(Context& context, Place place, DType type, const Dims& extents,
                       const Dims& strides = {}, std::int64_t offset = 0,
                       std::int64_t elements = -1);

}  // namespace tessera::test
