// SPDX-License-Identifier: Apache-2.0
// The layer's table and how tests steer it (driver_control.hpp).
#include "driver.hpp"

#include <CL/cl_layer.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#define TESSERA_PTX_EXPORT extern "C" __attribute__((visibility("default")))

namespace tessera_driver {

const cl_icd_dispatch* below = nullptr;

// Both are left behind at exit, where a launch may still be running.
std::mutex& Control::mutex() {
  static auto& one = *new std::mutex;
  return one;
}
Control& Control::instance() {
  static auto& one = *new Control;
  return one;
}

bool plays(const char* what) {
  return with_control([&](const Control& control) { return control.play == what; });
}
bool has_fault() {
  return with_control([](const Control& control) { return !control.fault.empty(); });
}
void add_fault(const std::string& text) {
  with_control([&](Control& control) {
    if (control.fault.empty()) control.fault = text;
  });
}

namespace {

cl_icd_dispatch layer_table{};

/// Tells of a fault that was not taken, and with TESSERA_PTX_REPORT=1 what ran.
struct AtExit {
  ~AtExit() {
    with_control([](const Control& control) {
      if (!control.fault.empty()) std::fprintf(stderr, "ptx: %s\n", control.fault.c_str());
      if (std::getenv("TESSERA_PTX_REPORT") == nullptr) return;
      std::fprintf(stderr, "ptx: %llu launches, %llu instructions of warps in %.1f s, %ld builds\n",
                   static_cast<unsigned long long>(control.launches),
                   static_cast<unsigned long long>(control.instructions), control.seconds,
                   control.builds);
    });
  }
} const at_exit;

Edit edit_of(const char* from, const char* to) {
  return from == nullptr ? Edit{} : Edit{from, to == nullptr ? "" : to};
}

}  // namespace
}  // namespace tessera_driver

using tessera_driver::Control;
using tessera_driver::with_control;

TESSERA_PTX_EXPORT void tessera_ptx_fact(const char* name, long long value) {
  with_control([&](Control& control) { control.facts[name] = value; });
}
TESSERA_PTX_EXPORT const char* tessera_ptx_fault() {
  thread_local std::string taken;
  taken = with_control([](Control& control) { return std::exchange(control.fault, {}); });
  return taken.c_str();
}
TESSERA_PTX_EXPORT void tessera_ptx_seed(unsigned long long seed) {
  with_control([&](Control& control) {
    control.seed = seed;
    control.launches = 0;
  });
}
TESSERA_PTX_EXPORT long tessera_ptx_builds() {
  return with_control([](const Control& control) { return control.builds; });
}
TESSERA_PTX_EXPORT void tessera_ptx_reset() {
  with_control([](Control& control) { control = {}; });
}
TESSERA_PTX_EXPORT void tessera_ptx_edit(const char* from, const char* to) {
  with_control([&](Control& control) { control.edit = tessera_driver::edit_of(from, to); });
}
TESSERA_PTX_EXPORT void tessera_ptx_play(const char* what) {
  with_control([&](Control& control) { control.play = what; });
}

TESSERA_PTX_EXPORT cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, std::size_t size,
                                                     void* value, std::size_t* needed) {
  constexpr cl_layer_api_version version = CL_LAYER_API_VERSION_100;
  if (what == CL_LAYER_API_VERSION) return tessera_driver::answer(version, size, value, needed);
  if (what != CL_LAYER_NAME) return CL_INVALID_VALUE;
  return tessera_driver::answer(std::string("tessera's interpreted NVIDIA"), size, value, needed);
}

TESSERA_PTX_EXPORT cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch* target,
                                                  cl_uint* entries_returned,
                                                  const cl_icd_dispatch** layer) {
  if (target == nullptr || layer == nullptr || entries_returned == nullptr) return CL_INVALID_VALUE;
  using tessera_driver::layer_table;
  constexpr std::size_t entry = sizeof(layer_table.clGetPlatformIDs);
  tessera_driver::below = target;
  std::memcpy(&layer_table, target, std::min(sizeof(layer_table), entries * entry));
  tessera_driver::install_facts(layer_table);
  tessera_driver::install_programs(layer_table);
  tessera_driver::install_kernels(layer_table);
  tessera_driver::install_commands(layer_table);
  *layer = &layer_table;
  *entries_returned = static_cast<cl_uint>(sizeof(layer_table) / entry);
  return CL_SUCCESS;
}
