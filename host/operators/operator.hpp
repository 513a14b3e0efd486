// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>

#include "host/operators/request.hpp"
#include "host/operators/tuned.hpp"

/// What stands behind an operator's public functions: its description, the checks of its calls, and
/// its table of implementations.
namespace tessera::operators {

class AnyOperator {
 public:
  virtual ~AnyOperator() = default;

  /// Hands a checked call to `use` in its normal form. Throws Error before anything is touched.
  /// Form::owned: outputs and gradients are described by the call's wants, without memory yet.
  /// By reference, because a request is large: glibc's malloc takes microseconds for such a block.
  virtual void check(const ContextState& state, Call&& call, Form form,
                     const std::function<void(Request&)>& use) const = 0;
  /// The implementations, in the order to try them. Made at the first call.
  virtual const dispatch::Table& table() const = 0;
};

/// An operator that is no loss. Its description says all that is checked; `check_own` adds what the
/// description cannot say.
class PlainOperator : public AnyOperator {
 public:
  explicit PlainOperator(dispatch::Table rows) : rows_(std::move(rows)) {}

  void check(const ContextState& state, Call&& call, Form form,
             const std::function<void(Request&)>& use) const final;
  const dispatch::Table& table() const final { return rows_; }

 protected:
  /// Checks that follow from nothing in the description.
  virtual void check_own(const arguments::Checks&, const Call&) const {}

 private:
  dispatch::Table rows_;
};

/// The rows of an operator: those that `opencl(0)` returns, which is not compiled in without
/// OpenCL, then those of the host. All of them look for blocks in the tables.
template <class Opencl, class... Rows>
dispatch::Table make_table([[maybe_unused]] const Opencl& opencl, Rows... host) {
#ifdef TESSERA_OPENCL
  dispatch::Table rows = opencl(0);
#else
  dispatch::Table rows;
  rows.push_back(
      dispatch::left_out("opencl", "this library was built without OpenCL (TESSERA_OPENCL=OFF)"));
#endif
  (rows.push_back(with_tables(std::move(host))), ...);
  return rows;
}

/// Hands a checked call to the table. The context shares its state with a call in flight.
Completion run_checked(Context& context, Request& request);

}  // namespace tessera::operators
