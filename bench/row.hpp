// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "programs/problem.hpp"
#include "tessera/tessera.hpp"

namespace tessera::bench {

class BenchOperator;

/// A shape that was asked for. Each operator takes the letters that it has.
struct GivenShape {
  std::string text{};
  ProblemExtents extents{};
  /// The number of tokens may come from --tokens: B, or where an operator has an S that.
  bool lacks_tokens = false;
  /// One of a list for many operators: passed over where none of those asked for has its letters.
  bool is_of_many = false;
};

/// The extents of a last layer: tokens, hidden and vocabulary, as far as the operator has them.
struct LayerExtents {
  std::int64_t b, h, v;
};

/// What the rows of one problem share: the arrays they read.
struct ProblemKey {
  const BenchOperator* op = nullptr;
  DType x = DType::f32;  ///< of arrays with an element or more per token: x, the logits
  DType w = DType::f32;  ///< of weights
  bool w_is_vh = true;
  ProblemExtents shape{};  ///< of each letter of the operator
  std::vector<programs::SetOption> set{};
  double ignored = 0.0;  ///< share of the rows whose label says that they do not count
  bool trained = false;  ///< words are predicted as a model does
  /// Pairs of word and probability that a row has in place of its label; 0: it has the label.
  std::int64_t target_pairs = 0;
  bool dense_targets = false;  ///< a row has a probability for every word instead
  /// Of operators with a teacher.
  linear_distillation::Divergence divergence = linear_distillation::Divergence::forward_kl;

  LayerExtents layer() const { return {shape['B'], shape['H'], shape['V']}; }
  friend bool operator==(const ProblemKey&, const ProblemKey&) = default;
};

/// An array of a call that the bench makes.
struct ArrayOf {
  const char* name;
  DType type = DType::f32;
  Dims extents{}, strides{};
  bool per_token = true;     ///< has an element or more per token; false: weights
  const char* of = nullptr;  ///< of a gradient, the input

  std::int64_t bytes() const {
    return extents.product() * static_cast<std::int64_t>(size_of(type));
  }
};

/// One line of the report. What its operator has no use for is as it is by default.
struct Row {
  ProblemKey problem{};
  Pass pass = Pass::forward;
  std::string implementation{};  ///< with its family
  bool grad_x = true, grad_w = true;
  bool in_place = false;  ///< the gradient is written over its input
  float gradient_filter_eps = 0.0f;
  std::vector<NamedValue> block_sizes{};  ///< empty: the implementation's own
  bool names_blocks = false;              ///< there are rows with others beside it

  bool gradients() const { return pass != Pass::forward; }
  bool values() const { return pass != Pass::backward; }
  /// Whether it forms this gradient.
  bool forms(const ArrayOf& gradient) const {
    return gradients() && (gradient.per_token ? grad_x : grad_w);
  }
  /// The contract's name: linear_cross_entropy/forward/opencl.cpu/f32/vh/B512/H2048/V32768.
  std::string name() const;
};

/// The bench's own row beside the library's: bare products of the same shape.
constexpr const char* eigen_gemm = "eigen.gemm";

/// The command line.
struct Options {
  std::vector<const BenchOperator*> operators{};
  std::vector<Pass> passes{Pass::forward, Pass::backward, Pass::value_and_grad};
  std::vector<std::string> implementations{"opencl", "eigen"};
  std::vector<std::pair<DType, DType>> dtypes{{DType::f32, DType::f32}};
  std::vector<bool> layouts{true};  ///< w_is_vh
  std::vector<std::int64_t> target_pairs{0};
  std::vector<bool> dense_targets{false};
  std::vector<linear_distillation::Divergence> divergences{
      linear_distillation::Divergence::forward_kl};
  std::vector<GivenShape> shapes{};
  std::vector<programs::SetOption> set{};
  std::int64_t tokens = 512;
  double ignored = 0.0;
  bool grad_x = true, grad_w = true;
  bool in_place = false;
  bool trained = false;
  float gradient_filter_eps = 0.0f;
  /// Each has rows of its own; an operator takes those that are as many as it has, or B, H, V.
  std::vector<std::vector<std::int64_t>> block_sizes{};
  bool include_inferred = false;  ///< rows with the implementation's own block sizes beside them
  std::vector<NamedValue> knobs{};
  std::optional<std::int64_t> workspace_bytes{};
  std::string device{};
  std::optional<std::int64_t> threads{};
  std::optional<std::int64_t> rotate_bytes{};
  int samples = 9;
  double max_seconds = 12.0;
  bool lists_peaks = true;  ///< all of them; false: only the one beside the samples is measured
  std::string compare{};    ///< another build's program; empty: this one is measured alone
  std::string custom{};     ///< a file with rows of a custom kernel; empty: the library's operators
  std::string candidate{};  ///< the only one of its rows (custom.hpp, find_candidate); empty: all
  std::string profile{};    ///< the file of a trace, of a few calls of each row; empty: none
  std::string dump{};       ///< a folder for what was compiled, and the rows; empty: none
  bool decompose = false;   ///< the time of calls by their parts, instead of rows
  std::vector<std::string> compare_dumps{};  ///< one or two such folders; empty: rows are measured
  std::string turns{};  ///< the row that this process runs in turns with another
};

}  // namespace tessera::bench
