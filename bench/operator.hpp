// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/arrays.hpp"
#include "bench/check.hpp"

namespace tessera::bench {

/// An operator as the bench sees it. What follows from its traits is in operator_of.hpp, once for
/// all; what does not is its description, a file in bench/operators.
class BenchOperator {
 public:
  virtual ~BenchOperator() = default;

  // -- From the traits ----------------------------------------------------------------------------

  virtual const char* name() const = 0;
  /// In the order of the table.
  virtual std::vector<ImplementationInfo> implementations() const = 0;
  /// Whether the operator has weights, hence a type and a layout of them; and a hidden extent.
  virtual bool has_weights() const = 0;
  virtual bool has_hidden() const = 0;
  /// Whether its ExecutionOptions have gradient_filter_eps.
  virtual bool filters_gradients() const = 0;
  /// The floating inputs that a call has to have, and those that its description adds.
  virtual std::vector<ArrayOf> operands(const ProblemKey& key) const = 0;
  /// Of the operands.
  virtual std::vector<ArrayOf> gradients(const ProblemKey& key) const = 0;
  /// What forward writes for backward to read.
  virtual std::vector<ArrayOf> saved(const ProblemKey& key) const = 0;
  ArrayOf loss() const { return {.name = "loss"}; }

  /// One call of the library for one row; blocks until the outputs are there.
  virtual Dispatch call(Context& context, const Row& row, const Options& options,
                        const Views& views) const = 0;
  virtual CostEstimate cost_of(Context& context, const Row& row, const Options& options) const = 0;
  /// Why the row cannot run; nothing: it can. Throws for names that do not exist.
  virtual std::optional<std::string> why_not(Context& context, const Row& row,
                                             const Options& options) const = 0;
  /// Adds what Data has by the streaming implementation.
  virtual void add_streamed(Data& data, int threads) const = 0;

  // -- The description ----------------------------------------------------------------------------

  /// Fills `data.arrays` with the operands; `data.labels` are there.
  virtual void make_arrays(Data& data) const = 0;
  /// Compares what a call left with the oracle (check.hpp).
  virtual Deviation judge(const Data& data, const Outcome& outcome, double filter_eps) const = 0;
  /// Its calls are bound by multiplying, not by memory: which peak is sampled beside them.
  virtual bool multiplies() const { return has_weights(); }
  /// A gradient may be written over its input (--in-place).
  virtual bool runs_in_place() const { return false; }
  /// There is --divergence.
  virtual bool has_teacher() const { return false; }
  /// There is --data trained.
  virtual bool has_trained_data() const { return false; }
  /// Why the bare products x . w, dz . w^T and x^T . dz are no baseline of it; empty: they are.
  virtual std::string why_no_products() const {
    return name() + std::string(" has no matrix product");
  }
};

/// Every operator, in the order of tessera/operators.hpp.
std::span<const BenchOperator* const> bench_operators();

}  // namespace tessera::bench
