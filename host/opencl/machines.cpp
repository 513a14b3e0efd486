// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/machines.hpp"

#include <algorithm>

#include "tessera/error.hpp"

namespace tessera::opencl {
namespace {

constexpr std::int64_t kib = 1024, mib = 1024 * kib, gib = 1024 * mib;

Machine machine(const std::string& name, DeviceFacts facts) {
  add_architecture_facts(facts);
  Machine result;
  result.info.name = name;
  result.info.vendor = facts.vendor;
  result.info.platform = "none: a description";
  result.info.version = "not here";
  result.info.type = facts.is_cpu ? "cpu" : "gpu";
  result.info.compute_units = facts.compute_units;
  result.info.global_memory_bytes = facts.global_memory_bytes;
  result.info.max_allocation_bytes = facts.max_allocation_bytes;
  result.info.local_memory_bytes = facts.local_memory_bytes;
  result.info.max_work_group_size = facts.max_work_group_size;
  result.info.shares_host_memory = facts.zero_copy;
  result.facts = std::move(facts);
  return result;
}

/// A CPU with vectors of 16, 16 MiB of cache for every 8 cores, as a driver may report it, and room
/// for everything.
Machine cpu(std::int64_t cores) {
  DeviceFacts facts;
  facts.is_cpu = facts.zero_copy = facts.shares_memory = true;
  facts.native_float_vector = 16;
  facts.compute_units = cores;
  facts.cache_bytes = 16 * mib * std::max<std::int64_t>(1, cores / 8);
  facts.max_work_group_size = 4096;
  facts.global_memory_bytes = 256 * gib;
  facts.max_allocation_bytes = 64 * gib;
  return machine("cpu-" + std::to_string(cores), facts);
}

/// Units and memory of data sheets, the local memory of a work-group as OpenCL drivers report it;
/// the rest follows from the architecture.
Machine gpu(const char* name, const char* vendor, const char* architecture, std::int64_t units,
            std::int64_t local_kib, std::int64_t memory_gib) {
  DeviceFacts facts;
  facts.is_gpu = true;
  facts.vendor = vendor;
  facts.architecture = architecture;
  facts.compute_units = units;
  facts.local_memory_bytes = local_kib * kib;
  facts.cache_bytes = mib;
  facts.max_work_group_size = 1024;
  facts.global_memory_bytes = memory_gib * gib;
  facts.max_allocation_bytes = memory_gib * gib / 4;
  return machine(name, facts);
}

}  // namespace

const std::vector<Machine>& machines() {
  static const auto& all = *new std::vector<Machine>([] {
    std::vector<Machine> list;
    for (const std::int64_t cores : {2, 8, 16, 32, 64, 128, 192}) list.push_back(cpu(cores));
    list.push_back(gpu("a100", "NVIDIA", "sm_80", 108, 48, 80));
    list.push_back(gpu("h100", "NVIDIA", "sm_90", 132, 48, 80));
    list.push_back(gpu("rtx4090", "NVIDIA", "sm_89", 128, 48, 24));
    list.push_back(gpu("mi250", "AMD", "gfx90a", 104, 64, 64));
    list.push_back(gpu("mi300x", "AMD", "gfx942", 304, 64, 192));
    list.push_back(gpu("rx7900", "AMD", "gfx1100", 48, 64, 24));
    list.push_back(gpu("a770", "Intel", "xe-hpg", 32, 64, 16));
    list.push_back(gpu("max1550", "Intel", "xe-hpc", 64, 128, 64));
    list.push_back(gpu("8-units", "", "", 8, 32, 4));
    return list;
  }());
  return all;
}

const Machine& machine_of(const std::string& name) {
  std::string known;
  for (const auto& one : machines()) {
    if (one.info.name == name) return one;
    known += (known.empty() ? "" : ", ") + one.info.name;
  }
  throw Error(ErrorCode::device_not_found, "ContextOptions::plan_for is \"" + name +
                                               "\", which is no machine that is described here; "
                                               "known are " +
                                               known);
}

}  // namespace tessera::opencl
