// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/operators/request.hpp"
#include "tuning/lookup/lookup.hpp"

/// The one order in which a call of any operator gets its block sizes and knobs: the caller's,
/// those of a table's row (tuning/lookup), the implementation's own. What a row says is given to
/// the implementation as a caller would give it; where that fails, the implementation chooses.
namespace tessera::operators {

/// By what the tables know that which an implementation runs on.
struct TunedDevice {
  std::string name{};
  std::string device_class{};
  std::int64_t default_workspace_bytes = 0;  ///< of this call
};

/// What a call reports of its blocks.
struct BlockReport {
  std::optional<BlockSource> source{};  ///< of a row that is used; nothing: what the others say
  std::string reason{};                 ///< Dispatch::block_reason
  std::vector<NamedValue> asked{};      ///< the blocks that the implementation was given of a row
  std::string warning{};                ///< of a row that gave way; empty: nothing to warn about

  /// Sets source and reason, with what became of the blocks; `notes` say why some have no effect.
  void write(Dispatch& dispatch, const std::vector<std::string>& notes = {}) const;
};

/// A call that blocks are looked up for.
struct TunedCall {
  ContextState& state;
  const Request& request;
  const std::string& implementation;
  std::function<TunedDevice()> device;
  /// A row's blocks, made to fit; what was changed and why is added to `changes`, each behind "; ".
  std::function<std::vector<NamedValue>(const tuning::Answer&, std::string& changes)> fit;
};

/// Whether a call without a row may still run after a failure with one.
bool gives_way(ErrorCode code) noexcept;
/// What is reported where a row gave way to the implementation's own choice.
BlockReport given_way(const std::string& implementation, const std::string& row,
                      const Error& error);

/// Calls `use` with the request as a row completes it, and where there is none, or `use` throws
/// what `gives_way`, with the request as it is. Once `is_final` is true, what `use` throws is the
/// call's own error: it may have begun to write.
void with_row(const TunedCall& call, const bool& is_final,
              const std::function<void(const Request&, const BlockReport&)>& use);

/// Makes the least workspace of a plan with a row that of the call `without` one, if that is less:
/// what a row asks for gives way before a call is refused.
void lower_minimum(Plan& plan, const std::function<std::int64_t()>& without);

/// Hands what is wrong with the user's file to the context's handler, once after each reading.
void warn_of_tables(const ContextState& state);
/// Warns of a row that gave way.
void warn_of_row(const ContextState& state, const BlockReport& report, Dispatch& dispatch);

/// An implementation on the host whose calls get blocks and knobs so.
std::unique_ptr<const dispatch::Implementation> with_tables(
    std::unique_ptr<const dispatch::Implementation> row);

}  // namespace tessera::operators
