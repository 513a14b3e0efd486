// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/loss/reference_loss.hpp"
#include "host/loss/targets.hpp"

/// The implementation `reference` of any loss operator: reads the arguments into vectors of double,
/// calls the oracle, and writes what it says.
namespace tessera::loss {

/// What the oracle calls the results of an operator.
struct OracleNames {
  /// Each gradient, in the order of the description.
  std::vector<std::vector<double> oracle::Gradients::*> gradients;
  /// Each output that the operator has besides the loss's.
  std::vector<std::vector<double> oracle::Values::*> own_outputs{};
  /// The rows of forward_partial that are the operator's own; nullptr: there are none.
  std::vector<double> oracle::Values::*own_partial = nullptr;
};

class Reference : public dispatch::Implementation {
 public:
  Reference(const char* description, OracleNames names)
      : Implementation({"reference", description, false}), names_(std::move(names)) {}

  std::optional<std::string> why_unsupported(ContextState& state,
                                             const dispatch::Request& request) const override;
  std::unique_ptr<Completion::State> run(const std::shared_ptr<ContextState>& state,
                                         const dispatch::Request& request,
                                         dispatch::Attempt& attempt) const override;
  Plan plan(ContextState& state, const dispatch::Request& request) const override;
  // The textbook has no blocks; any are legal and none is used.
  std::pair<std::vector<NamedValue>, BlockSource> infer(
      ContextState& state, const dispatch::Request& request) const override;

 protected:
  /// Why it does not take a request, besides what holds for every loss; nothing: it does.
  virtual std::optional<std::string> refuses(const LossRequest&) const { return std::nullopt; }
  /// What the oracle's arrays take.
  virtual std::int64_t workspace_bytes(const LossRequest& request) const = 0;
  /// Fills the problem's own half: all but labels, weights and cotangents.
  virtual void read(const LossRequest& request, dispatch::HostViews& views,
                    oracle::Problem& problem) const = 0;

 private:
  /// What it reports; throws Error workspace_too_small.
  void describe(const LossRequest& request, Dispatch& dispatch) const;

  OracleNames names_;
};

}  // namespace tessera::loss
