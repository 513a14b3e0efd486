// SPDX-License-Identifier: Apache-2.0
#include "bench/latency/first_call.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace tessera::bench::latency {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

nlohmann::json run_child(const std::string& command) {
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start " + command);
  std::string text;
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    text.append(buffer, n);
  }
  if (pclose(pipe) != 0) throw std::runtime_error("failed: " + command);
  return nlohmann::json::parse(text);
}

/// A folder of its own, removed at the end.
class EmptyFolder {
 public:
  EmptyFolder()
      : path_((std::filesystem::temp_directory_path() / "tessera-latency-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make " + path_);
  }
  EmptyFolder(const EmptyFolder&) = delete;
  EmptyFolder& operator=(const EmptyFolder&) = delete;
  ~EmptyFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

nlohmann::json first_call(const std::string& device, const std::string& cache_folder,
                          const Case& wanted) {
  const auto start = Clock::now();
  Context context({.device = device, .cache_folder = cache_folder});
  const double made = seconds_since(start);
  Problem problem(context, wanted);
  const auto called = Clock::now();
  problem.call();
  const double first = seconds_since(called);
  const auto again = Clock::now();
  problem.call();
  return {{"context_seconds", made},
          {"first_call_seconds", first},
          {"second_call_seconds", seconds_since(again)}};
}

nlohmann::json first_calls(const std::string& child, int warm) {
  nlohmann::json result;
  const auto run = [&](const std::string& command, const char* first, const char* later) {
    result[first] = run_child(command);
    for (int i = 0; i < warm; ++i) result[later].push_back(run_child(command));
  };
  for (const bool keeps : {false, true}) {
    const EmptyFolder folder;
    setenv("POCL_CACHE_DIR", folder.path().c_str(), 1);
    if (keeps) {
      run(child + " --cache-folder '" + folder.path() + "/tessera'", "filling", "kept");
    } else {
      run(child, "cold", "warm");
    }
  }
  return result;
}

}  // namespace tessera::bench::latency
