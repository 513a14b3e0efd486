// SPDX-License-Identifier: Apache-2.0
#include "python/src/torch/context.hpp"

#include <torch/csrc/stable/c/shim.h>

#include <atomic>
#include <mutex>
#include <optional>

namespace tessera::torch_operators {
namespace {

std::atomic<void (*)(const char*)> keep_warning = nullptr;
std::atomic<void (*)()> hand_over = nullptr;
std::atomic<void (*)(const void*)> fail = nullptr;

std::mutex guard;
// Never destroyed: a driver's own static objects may be gone before it is.
std::optional<Context>& held() {
  static auto& context = *new std::optional<Context>();
  return context;
}

}  // namespace

Context context() {
  const std::lock_guard lock(guard);
  if (!held()) {
    std::uint32_t threads = 0;  // all, should PyTorch not say
    if (torch_get_num_threads(&threads) != 0) threads = 0;
    held().emplace(ContextOptions{.threads = static_cast<int>(threads),
                                  .warning_handler = [](const std::string& message) {
                                    if (auto* keep = keep_warning.load()) keep(message.c_str());
                                  }});
  }
  return *held();
}

void hand_over_warnings() noexcept {
  if (auto* give = hand_over.load()) give();
}

void keep_error(const Error& error) noexcept {
  if (auto* keep = fail.load()) keep(&error);
}

}  // namespace tessera::torch_operators

void tessera_torch_connect(void (*keep)(const char*), void (*give)(), void (*failed)(const void*)) {
  tessera::torch_operators::keep_warning = keep;
  tessera::torch_operators::hand_over = give;
  tessera::torch_operators::fail = failed;
}

void tessera_torch_set_context(const void* context) {
  using namespace tessera::torch_operators;
  const std::lock_guard lock(guard);
  held().reset();
  if (context != nullptr) held().emplace(*static_cast<const tessera::Context*>(context));
}
