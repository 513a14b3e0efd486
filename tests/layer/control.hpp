// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/cl.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#define TESSERA_LAYER_EXPORT extern "C" __attribute__((visibility("default")))

namespace tessera_layer {

/// What the layer counts, and what it is to fail or to report.
struct Control {
  std::mutex mutex;
  std::map<std::string, long> calls;
  std::map<std::string, long long> bytes;
  std::map<std::string, long long> limits;
  std::map<std::string, long long> lasting_limits;  // of the environment: a reset brings them back
  std::map<std::string, std::map<void*, long>> references;
  std::set<cl_program> unbuilt;
  std::string fail_kind;
  long fail_at = 0;  // 0: nothing fails
  cl_int fail_code = CL_SUCCESS;
  long failed = 0;
  bool fail_builds = false;
  std::map<std::string, long> delays;  // microseconds before a call of a kind
  long entered = 0;                    // calls of every kind since the last reset
  long lost_at = 0;                    // 0: the device stays
  bool lost = false;
  void (*when_lost)() = nullptr;
  std::uint64_t shuffle = 0;  // 0: commands begin when their wait lists say so
  std::string report;

  /// TESSERA_LAYER_FAIL=kind:k:code, TESSERA_LAYER_LIMITS=name=value,...,
  /// TESSERA_LAYER_FAIL_BUILDS, TESSERA_LAYER_REPORT=file (written at exit).
  Control() {
    if (const char* text = std::getenv("TESSERA_LAYER_FAIL")) {
      char kind[64] = "";
      if (std::sscanf(text, "%63[^:]:%ld:%d", kind, &fail_at, &fail_code) == 3) fail_kind = kind;
    }
    if (const char* text = std::getenv("TESSERA_LAYER_LIMITS")) {
      char name[64] = "";
      long long value = 0;
      int used = 0;
      while (std::sscanf(text, "%63[^=]=%lld%n", name, &value, &used) == 2) {
        limits[name] = lasting_limits[name] = value;
        text += used;
        if (*text != ',') break;
        ++text;
      }
    }
    fail_builds = std::getenv("TESSERA_LAYER_FAIL_BUILDS") != nullptr;
    if (const char* text = std::getenv("TESSERA_LAYER_REPORT")) report = text;
  }
  ~Control() {
    if (report.empty()) return;
    std::FILE* file = std::fopen(report.c_str(), "w");
    if (file == nullptr) return;
    for (const auto& [kind, count] : calls) {
      std::fprintf(file, "calls %s %ld\n", kind.c_str(), count);
    }
    for (const auto& [kind, count] : bytes) {
      std::fprintf(file, "bytes %s %lld\n", kind.c_str(), count);
    }
    for (const auto& [kind, live] : references) {
      std::fprintf(file, "live %s %zu\n", kind.c_str(), live.size());
    }
    std::fprintf(file, "failed %ld\n", failed);
    std::fclose(file);
  }

  /// Records a call; what it must fail with, or CL_SUCCESS.
  cl_int enter(const char* kind, std::size_t size = 0) {
    wait_before(kind);
    if (loses_now()) when_lost();
    std::lock_guard lock(mutex);
    if (lost) {
      ++failed;
      return CL_DEVICE_NOT_AVAILABLE;
    }
    const long number = ++calls[kind];
    if (fail_at > 0 && number == fail_at && fail_kind == kind) {
      ++failed;
      return fail_code;
    }
    if (size > 0) bytes[kind] += static_cast<long long>(size);
    return CL_SUCCESS;
  }
  void wait_before(const char* kind) {
    long microseconds = 0;
    {
      std::lock_guard lock(mutex);
      const auto found = delays.find(kind);
      if (found != delays.end()) microseconds = found->second;
    }
    if (microseconds > 0) std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  }
  /// Counts a call; true for the first that finds the device gone.
  bool loses_now() {
    std::lock_guard lock(mutex);
    if (++entered < lost_at || lost_at == 0 || lost) return false;
    lost = true;
    return true;
  }
  long long limit(const char* name) {
    std::lock_guard lock(mutex);
    const auto found = limits.find(name);
    return found == limits.end() ? -1 : found->second;
  }
  void born(const char* kind, void* object) {
    if (object == nullptr) return;
    std::lock_guard lock(mutex);
    references[kind][object] = 1;
  }
  void change(const char* kind, void* object, long by) {
    std::lock_guard lock(mutex);
    auto& live = references[kind];
    const auto found = live.find(object);
    if (found != live.end() && (found->second += by) <= 0) live.erase(found);
  }
};

/// The one of this process.
inline Control& control() {
  static Control instance;
  return instance;
}

}  // namespace tessera_layer
