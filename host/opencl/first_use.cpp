// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/first_use.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <signal.h>

#include <array>
#include <cstring>
#endif

namespace tessera::opencl {
namespace {

#if defined(__unix__) || defined(__APPLE__)
/// What the process does on each signal, put back at the end.
class KeptSignals {
 public:
  KeptSignals() noexcept {
    for (int signal = 1; signal < NSIG; ++signal) {
      auto& one = before_[static_cast<std::size_t>(signal)];
      one.is_known = sigaction(signal, nullptr, &one.action) == 0;
    }
  }
  ~KeptSignals() {
    for (int signal = 1; signal < NSIG; ++signal) {
      const auto& one = before_[static_cast<std::size_t>(signal)];
      struct sigaction now {};
      if (!one.is_known || sigaction(signal, nullptr, &now) != 0) continue;
      if (is_same(one.action, now)) continue;
      if (signal == SIGFPE && one.action.sa_handler == SIG_DFL) continue;
      sigaction(signal, &one.action, nullptr);
    }
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  struct Known {
    bool is_known = false;
    struct sigaction action {};
  };

  static bool is_same(const struct sigaction& a, const struct sigaction& b) noexcept {
    const bool same_handler = (a.sa_flags & SA_SIGINFO) != 0 ? a.sa_sigaction == b.sa_sigaction
                                                             : a.sa_handler == b.sa_handler;
    return same_handler && a.sa_flags == b.sa_flags &&
           std::memcmp(&a.sa_mask, &b.sa_mask, sizeof(a.sa_mask)) == 0;
  }

  std::array<Known, NSIG> before_{};
};
#else
struct KeptSignals {};
#endif

}  // namespace

void first_use(const void* driver, const std::function<void()>& use) {
  static auto& mutex = *new std::mutex;  // never destroyed: a Context may be made very late
  static auto& used = *new std::vector<const void*>;
  std::unique_lock lock(mutex);
  if (std::find(used.begin(), used.end(), driver) != used.end()) {
    lock.unlock();
    return use();
  }
  {
    [[maybe_unused]] const KeptSignals kept;
    use();
  }
  used.push_back(driver);
}

}  // namespace tessera::opencl
