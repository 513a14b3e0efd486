// SPDX-License-Identifier: Apache-2.0
#include "host/dispatch/openmp.hpp"

#ifdef __linux__
#include <dlfcn.h>
#include <link.h>
#include <strings.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "host/dispatch/process.hpp"
#endif

namespace tessera::dispatch {

#ifdef __linux__
namespace {

/// A team that rests costs a tenth of a millisecond, or a tick of the scheduler on a busy machine,
/// against the milliseconds that libgomp's threads spin. So the call should take two milliseconds
/// or more. A thread multiplies at most some 10^11 times a second, and reads at most some 10^10
/// bytes.
constexpr std::int64_t min_flops = 200'000'000, min_bytes = 20'000'000;

/// The two functions of an OpenMP runtime (OpenMP 5.0) that are called here.
struct OpenMp {
  int (*in_parallel)() = nullptr;
  int (*pause)(int kind) = nullptr;
  static constexpr int soft = 1;  ///< omp_pause_soft
};

/// How many objects the loader has ever loaded: rises where an OpenMP may have come.
unsigned long long loads() noexcept {
  unsigned long long count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        *static_cast<unsigned long long*>(result) = info->dlpi_adds;
        return 1;  // every object says the same
      },
      &count);
  return count;
}

/// Paths of the libraries that are OpenMP runtimes by their names. Python loads libraries for
/// themselves, so that no search among the global symbols would find them.
std::vector<std::string> loaded_paths() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        const std::string path = info->dlpi_name != nullptr ? info->dlpi_name : "";
        const std::string name = path.substr(path.rfind('/') + 1);
        for (const char* start : {"libgomp", "libomp", "libiomp"}) {
          if (name.starts_with(start))
            static_cast<std::vector<std::string>*>(result)->push_back(path);
        }
        return 0;
      },
      &paths);
  return paths;
}

void add(std::vector<OpenMp>& all, void* library) {
  OpenMp one;
  one.in_parallel = reinterpret_cast<int (*)()>(dlsym(library, "omp_in_parallel"));
  one.pause = reinterpret_cast<int (*)(int)>(dlsym(library, "omp_pause_resource_all"));
  const auto is_same = [&](const OpenMp& other) { return other.pause == one.pause; };
  if (one.in_parallel == nullptr || one.pause == nullptr) return;
  if (std::none_of(all.begin(), all.end(), is_same)) all.push_back(one);
}

/// Whether this process was forked and has executed no program since. Then the teams' threads may
/// be its parent's, and what waits for them, as a pause does, would wait for ever.
bool is_forked() {
  constexpr unsigned long forked_without_exec = 0x40;  // the kernel's PF_FORKNOEXEC
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  // "1234 (name) S parent group session terminal its_group flags"; the name may have blanks.
  std::istringstream rest(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string state;
  long other = 0;
  unsigned long flags = 0;
  rest >> state;
  for (int i = 0; i < 5; ++i) rest >> other;
  return !(rest >> flags) || (flags & forked_without_exec) != 0;
}

std::vector<OpenMp> search() {
  const char* policy = std::getenv("OMP_WAIT_POLICY");
  if (policy != nullptr && strcasecmp(policy, "passive") == 0) return {};  // they sleep at once
  if (is_forked()) return {};
  std::vector<OpenMp> all;
  add(all, RTLD_DEFAULT);
  for (const auto& path : loaded_paths()) {
    // Never closed, so that the functions stay.
    if (void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD)) add(all, library);
  }
  return all;
}

/// Those of this process; looked for again only after something was loaded, or a fork.
std::vector<OpenMp> loaded() {
  static auto& mutex = *new std::mutex;  // never destroyed: calls may be made very late
  static auto& known = *new std::vector<OpenMp>;
  static std::atomic<unsigned long long> searched{0};  // loads() at the last search
  static std::atomic<bool> is_any{false};
  static std::int64_t process = 0;  // that searched
  const unsigned long long now = loads();
  if (searched.load(std::memory_order_acquire) == now && !is_any) return {};
  const std::lock_guard lock(mutex);
  if (searched != now || process != this_process()) {
    known = search();
    is_any = !known.empty();
    process = this_process();
    searched.store(now, std::memory_order_release);
  }
  return known;
}

}  // namespace

void rest_openmp(const std::function<CostEstimate()>& cost, std::int64_t threads) noexcept {
  try {
    const auto all = loaded();
    if (all.empty()) return;
    const CostEstimate costs = cost();
    if (costs.flops < min_flops * threads && costs.bytes_ideal < min_bytes * threads) return;
    for (const auto& one : all) {
      if (one.in_parallel() == 0) one.pause(OpenMp::soft);
    }
  } catch (...) {
    // No memory, or a call that its implementation will refuse: they may spin.
  }
}
#else
void rest_openmp(const std::function<CostEstimate()>&, std::int64_t) noexcept {}
#endif

}  // namespace tessera::dispatch
