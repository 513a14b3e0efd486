// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "host/arguments/bytes.hpp"
#include "host/arguments/checks.hpp"
#include "host/dispatch/host_views.hpp"
#include "host/dispatch/table.hpp"
#include "host/operators/call.hpp"
#include "host/operators/symbols.hpp"

/// What every operator makes of a call, from its description.
namespace tessera::operators {

using arguments::Form;

/// A validated call, the same for every implementation: shapes agree, types are legal, writable
/// views do not overlap anything, block sizes are positive. A kind of operators derives from it
/// what its calls have besides (loss::LossRequest).
struct Request : dispatch::Request {
  explicit Request(Call&& checked) : call(std::move(checked)) {}

  Call call;  ///< every view in its normal shape; workspace_bytes bounds a lent workspace too

  std::string operation() const override;
  std::string output_names() const override;
  const std::vector<std::string>& implementation_names() const override {
    return call.implementation.names();
  }
  const std::vector<NamedValue>& knobs() const override { return call.knobs; }

  bool wants_any_output() const noexcept;
  bool wants_any_gradient() const noexcept;
  /// The inputs that are given.
  std::vector<arguments::NamedView> input_views() const;
  /// Outputs and gradients that are given.
  std::vector<arguments::NamedView> output_views() const;
  /// Each input and output once, and what is added to read too.
  std::int64_t ideal_bytes() const;
  /// Calls `use(name, view)` for every view that the call writes, given or not.
  template <class Use>
  void for_writes(const Use& use) const {
    for_writes(*this, use);
  }
  template <class Use>
  void for_writes(const Use& use) {
    for_writes(*this, use);
  }
  /// Forgets the gradients that have no element (H of 0): nothing writes them.
  void drop_empty_gradients() noexcept;
  /// Hands `use` a copy, in which the call may be completed.
  virtual void copied(const std::function<void(Request&)>& use) const = 0;
  /// Puts host views in the place of all views. They are mapped at once, as they may share memory.
  void map_to_host(dispatch::HostViews& views);

 protected:
  ~Request() = default;
  /// The rows of forward_partial, which a loss writes besides outputs and gradients; the library
  /// turns them into its result.
  Values<MutableView, 2> rows_{};

 private:
  template <class Self, class Use>
  static void for_writes(Self& self, const Use& use) {
    const auto& op = *self.call.op;
    for (std::size_t i = 0; i < op.outputs.size(); ++i)
      use(op.outputs[i].name, self.call.outputs[i]);
    for (auto& view : self.rows_) use("partial", view);
    for (std::size_t i = 0; i < op.gradients.size(); ++i) {
      use(op.gradients[i].name, self.call.gradients[i]);
    }
  }
};

/// A call of an operator that is no loss.
struct PlainRequest final : Request {
  using Request::Request;
  void copied(const std::function<void(Request&)>& use) const override {
    PlainRequest copy = *this;
    use(copy);
  }
};

/// The block sizes that the caller gave, else the operator's default.
std::pair<std::vector<NamedValue>, BlockSource> given_or_default_blocks(const Call& call);

/// Announces the inputs [begin, end), in this order, and binds the letters of their shapes. Those
/// that are always read have to be given. The call must stay where it is.
void check_inputs(arguments::Checks& checks, const Call& call, std::size_t begin, std::size_t end,
                  Symbols& symbols);
/// Error that names option, value and limit for one that is not in its range.
void check_options(const arguments::Checks& checks, const Call& call);
/// Announces the gradients and compares their shapes with those of their inputs.
void check_gradients(arguments::Checks& checks, Call& call);
/// Handles, workspace and block sizes; afterwards `block_sizes` says what `block_size` said, and
/// `workspace_bytes` what the lent workspace has.
void check_execution(arguments::Checks& checks, Call& call);
/// Describes the gradients that a call which owns its results returns, without memory yet. One
/// whose input is a matrix without leading axes lies in memory as that does.
void describe_gradients(Call& call);
/// Error where a pass that computes gradients is asked for none, or forward with views is asked for
/// no output.
void require_results(const arguments::Checks& checks, const Request& request, Form form);
/// Error where an output touches an input or another output, but for a gradient in place of its
/// input; and where such a one is to be added to what it comes from.
void check_overlaps(const arguments::Checks& checks, const Call& call);

}  // namespace tessera::operators
