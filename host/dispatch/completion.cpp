// SPDX-License-Identifier: Apache-2.0
#include "host/dispatch/completion.hpp"

#include <new>

#include "host/dispatch/context_state.hpp"

namespace tessera {

namespace {

void wait_for(Completion::State& state) {
  if (!state.waited) {
    state.waited = true;
    try {
      state.wait_once();
    } catch (const std::bad_alloc&) {
      state.failure = std::make_exception_ptr(
          Error(ErrorCode::execution_failed,
                "the outputs of this call are unspecified: the host ran out of memory waiting for "
                "it; free some and try again"));
    } catch (...) {
      state.failure = std::current_exception();
    }
  }
  if (state.failure) std::rethrow_exception(state.failure);
}

/// Ends a call that nobody waited for.
void drop(std::unique_ptr<Completion::State>& state) noexcept {
  // In a forked child the call is still the parent's, which waits for it.
  if (!state || state->waited || state->process != dispatch::this_process()) return;
  try {
    wait_for(*state);
  } catch (const std::exception& error) {
    if (!state->context) return;
    try {
      state->context->warnings.warn("tessera: " + state->dispatch.implementation +
                                    " failed after its Completion was dropped: " + error.what());
    } catch (...) {
      // No memory for the message.
    }
  } catch (...) {
  }
}

}  // namespace

Completion::Completion() = default;
Completion::Completion(std::unique_ptr<State> state) : state_(std::move(state)) {}
Completion::Completion(Completion&&) noexcept = default;

Completion& Completion::operator=(Completion&& other) noexcept {
  if (this != &other) {
    drop(state_);
    state_ = std::move(other.state_);
  }
  return *this;
}

Completion::~Completion() { drop(state_); }

void Completion::wait() {
  if (state_) wait_for(*state_);
}

cl_event Completion::event() const noexcept { return state_ ? state_->event() : nullptr; }

const Dispatch& Completion::dispatch() const noexcept {
  static const auto& nothing = *new Dispatch;  // never destroyed
  return state_ ? state_->dispatch : nothing;
}

}  // namespace tessera
