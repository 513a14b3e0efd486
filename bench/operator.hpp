// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cctype>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/arrays.hpp"
#include "bench/check.hpp"
#include "host/operators/call.hpp"

namespace tessera::bench {

/// An operator as the bench sees it: its description says most of it, a file in bench/operators
/// the rest.
class BenchOperator {
 public:
  explicit BenchOperator(const char* name) : op_(operators::description(name)) {}
  virtual ~BenchOperator() = default;

  const char* name() const { return op_.name; }
  /// In the order of the table.
  std::vector<ImplementationInfo> implementations() const { return op_.implementations(); }
  const operators::Description& description() const { return op_; }
  /// The operator has weights (with a type and a layout), labels, a pass.
  bool has_weights() const { return op_.has_weights(); }
  bool has_labels() const { return op_.input("labels") != nullptr; }
  bool has(Pass pass) const { return op_.has(pass); }
  bool filters_gradients() const { return op_.option("gradient_filter_eps") != nullptr; }
  /// The problem that a given shape comes to; nothing: the operator has none of its letters.
  std::optional<ProblemExtents> shape_of(const GivenShape& given, std::int64_t tokens) const;
  std::string text_of(const ProblemExtents& shape) const { return programs::text_of(op_, shape); }
  std::int64_t tokens_of(const ProblemExtents& shape) const;
  /// An option of the row's calls.
  OptionValue option_of(const ProblemKey& key, std::string_view option) const;
  /// The floating inputs that a call has to have, and those that `gives` adds.
  std::vector<ArrayOf> operands(const ProblemKey& key) const;
  /// Of the operands.
  std::vector<ArrayOf> gradients(const ProblemKey& key) const;
  /// What forward writes for backward to read.
  std::vector<ArrayOf> saved(const ProblemKey& key) const;
  /// What the operator is for, its first output: the loss, or y.
  ArrayOf result(const ProblemKey& key) const;

  /// The axes that it is cut along, each with its default.
  const std::vector<NamedValue>& block_axes() const { return op_.block_sizes; }
  /// Block sizes by name; empty: they are not those of the operator.
  std::vector<NamedValue> own_blocks(const std::vector<std::int64_t>& sizes) const;
  /// Beyond this a block along the axis of that name is the whole problem.
  virtual std::int64_t extent_along(const ProblemExtents& shape, const std::string& axis) const {
    return shape[static_cast<char>(std::toupper(axis.front()))];
  }
  /// One call of the library for one row; blocks until the outputs are there.
  Dispatch call(Context& context, const Row& row, const Options& options, const Views& views) const;
  /// Compiles all that the row's calls need; how they are cut.
  Plan compile(Context& context, const Row& row, const Options& options, const Views& views) const;
  CostEstimate cost_of(Context& context, const Row& row, const Options& options) const;
  /// What block sizes and knobs the row can have, and what a call with those it has reports;
  /// nothing is compiled.
  std::vector<dispatch::Choice> choices(Context& context, const Row& row,
                                        const Options& options) const;
  Dispatch foresee(Context& context, const Row& row, const Options& options) const;
  /// Why the row cannot run; nothing: it can. Throws for names that do not exist.
  std::optional<std::string> why_not(Context& context, const Row& row,
                                     const Options& options) const;
  /// Adds what Data has by the streaming implementation.
  void add_streamed(Data& data, int threads) const;

  /// Fills `data.arrays` with the operands; `data.labels` are there.
  virtual void make_arrays(Data& data) const = 0;
  /// Compares what a call left with the oracle (check.hpp).
  virtual Deviation judge(const Data& data, const Outcome& outcome, double filter_eps) const = 0;
  /// Its calls are bound by multiplying, not by memory: which peak is sampled beside them.
  virtual bool multiplies() const { return has_weights(); }
  /// Its rows may set this option (--set), which `judge` then knows.
  virtual bool sets(std::string_view /*option*/) const { return false; }
  /// A gradient may be written over its input (--in-place).
  virtual bool runs_in_place() const { return false; }
  /// There is --divergence.
  bool has_teacher() const { return op_.option("divergence") != nullptr; }
  /// There is --data trained.
  virtual bool has_trained_data() const { return false; }
  /// Why the bare products x . w, dz . w^T and x^T . dz are no baseline of it; empty: they are.
  virtual std::string why_no_products() const {
    return name() + std::string(" has no matrix product");
  }

 protected:
  /// Whether calls of the bench are given this input, which they need not have.
  virtual bool gives(std::string_view /*input*/) const { return false; }

 private:
  bool is_operand(const operators::Input& input) const;
  bool is_saved(std::string_view output) const;
  Dims extents_of(const ProblemKey& key, const SymbolicShape& shape) const;
  ArrayOf array_of(const ProblemKey& key, const operators::Input& input) const;
  operators::Call call_of(const Row& row, const Options& options, const Views& views) const;

  const operators::Description& op_;
};

/// Every operator, in the order of host/catalog/operators.hpp.
std::span<const BenchOperator* const> bench_operators();

}  // namespace tessera::bench
