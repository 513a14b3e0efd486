// SPDX-License-Identifier: Apache-2.0
// How a test steers the layer from its own process (layer_control.hpp).
#include <CL/cl_layer.h>

#include <cstring>

#include "control.hpp"

using tessera_layer::control;

TESSERA_LAYER_EXPORT cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, std::size_t size,
                                                       void* value, std::size_t* needed) {
  const auto answer = [&](const void* data, std::size_t length) -> cl_int {
    if (needed != nullptr) *needed = length;
    if (value == nullptr) return CL_SUCCESS;
    if (size < length) return CL_INVALID_VALUE;
    std::memcpy(value, data, length);
    return CL_SUCCESS;
  };
  constexpr cl_layer_api_version version = CL_LAYER_API_VERSION_100;
  constexpr char name[] = "tessera test layer";
  switch (what) {
    case CL_LAYER_API_VERSION:
      return answer(&version, sizeof(version));
    case CL_LAYER_NAME:
      return answer(name, sizeof(name));
    default:
      return CL_INVALID_VALUE;
  }
}

/// Forgets calls, bytes, limits that a test set, and what was to fail, to come late or to be gone;
/// live objects stay counted.
TESSERA_LAYER_EXPORT void tessera_layer_reset() {
  auto& c = control();
  std::lock_guard lock(c.mutex);
  c.calls.clear();
  c.bytes.clear();
  c.limits = c.lasting_limits;
  c.fail_kind.clear();
  c.fail_at = 0;
  c.failed = 0;
  c.fail_builds = false;
  c.delays.clear();
  c.entered = c.lost_at = 0;
  c.lost = false;
  c.shuffle = 0;
}
/// The k-th call of `kind` from now on, counted from 1, fails with `code`.
TESSERA_LAYER_EXPORT void tessera_layer_fail(const char* kind, long k, int code) {
  auto& c = control();
  std::lock_guard lock(c.mutex);
  c.fail_kind = kind;
  c.fail_at = c.calls[kind] + k;
  c.fail_code = code;
}
/// Each call of `kind` from now on comes so much later.
TESSERA_LAYER_EXPORT void tessera_layer_delay(const char* kind, long microseconds) {
  auto& c = control();
  std::lock_guard lock(c.mutex);
  c.delays[kind] = microseconds;
}
/// The k-th call from now on, counted from 1, and all after it fail as on a device that is gone.
TESSERA_LAYER_EXPORT void tessera_layer_lose(long k) {
  auto& c = control();
  std::lock_guard lock(c.mutex);
  c.lost = false;
  c.lost_at = k == 0 ? 0 : c.entered + k;
}
/// Holds commands for a random while besides what they wait for; 0: no longer.
TESSERA_LAYER_EXPORT void tessera_layer_shuffle(unsigned long long seed) {
  auto& c = control();
  std::lock_guard lock(c.mutex);
  c.shuffle = seed;
}
TESSERA_LAYER_EXPORT long tessera_layer_entered() {
  auto& c = control();
  std::lock_guard lock(c.mutex);
  return c.entered;
}
TESSERA_LAYER_EXPORT void tessera_layer_fail_builds(int on) { control().fail_builds = on != 0; }
TESSERA_LAYER_EXPORT void tessera_layer_limit(const char* name, long long value) {
  auto& c = control();
  std::lock_guard lock(c.mutex);
  c.limits[name] = value;
}
TESSERA_LAYER_EXPORT long tessera_layer_calls(const char* kind) {
  auto& c = control();
  std::lock_guard lock(c.mutex);
  return c.calls[kind];
}
TESSERA_LAYER_EXPORT long long tessera_layer_bytes(const char* kind) {
  auto& c = control();
  std::lock_guard lock(c.mutex);
  return c.bytes[kind];
}
TESSERA_LAYER_EXPORT long tessera_layer_live(const char* kind) {
  auto& c = control();
  std::lock_guard lock(c.mutex);
  return static_cast<long>(c.references[kind].size());
}
TESSERA_LAYER_EXPORT long tessera_layer_failed() {
  auto& c = control();
  std::lock_guard lock(c.mutex);
  return c.failed;
}
