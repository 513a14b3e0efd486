// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "host/arguments/owned.hpp"
#include "host/dispatch/guarded.hpp"
#include "host/dispatch/table.hpp"
#include "host/operators/request.hpp"

/// The steps of an operator's public functions, for any operator with a table of implementations.
namespace tessera::operators {

/// Hands a call to the table. The context shares its state with a call in flight.
template <class Request>
Completion run(const dispatch::Table<Request>& table, Context& context, const Request& request) {
  return Completion(dispatch::run(table, context.state().shared_from_this(), request));
}

/// Gives the gradients that are wanted the memory of new tensors of `result`.
template <class Op>
void allocate_gradients(Request<Op>& request, typename Op::Result& result) {
  for (const auto& gradient : OperatorTraits<Op>::gradients) {
    arguments::allocate(request.gradients.*gradient.view, result.*gradient.owned, gradient.name);
  }
}

/// The block sizes that a row would use for a request, and where they come from.
template <class Request>
std::pair<typename Request::Blocks, BlockSource> blocks_of(
    const dispatch::Implementation<Request>& row, ContextState& state, const Request& request) {
  if (row.infer) return row.infer(state, request);
  if (request.execution.block_sizes) return {*request.execution.block_sizes, BlockSource::caller};
  return {Request::Blocks::get_default(), BlockSource::fallback};
}

/// The same of the row that would run it.
template <class Request>
std::pair<typename Request::Blocks, BlockSource> infer_block_sizes(
    const dispatch::Table<Request>& table, ContextState& state, const Request& request) {
  return blocks_of(dispatch::choose(table, state, request), state, request);
}

/// Why the rows under `name` would not serve the call that `make_request()` checks; nothing: one of
/// them would. A call that is wrong in itself is served by none.
template <class Request, class Make>
std::optional<std::string> why_unsupported(const dispatch::Table<Request>& table,
                                           ContextState& state, const std::string& name,
                                           const Make& make_request) {
  dispatch::require_name(table, name);
  Request request;
  try {
    request = make_request();
  } catch (const Error& error) {
    return error.what();
  }
  return dispatch::why_unsupported(table, state, request, name);
}

}  // namespace tessera::operators
