// SPDX-License-Identifier: Apache-2.0
// Whether the processor's instruction for products of bf16 pairs is there to be used.
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "host/engines/cpu.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tessera::engines {
namespace {

/// What the processor calls itself ("AMD EPYC 9R14"); empty where it does not say.
std::string processor_name() {
  std::string name;
#if defined(__x86_64__)
  std::array<unsigned, 4> part{};
  for (unsigned leaf = 0x80000002u; leaf <= 0x80000004u; ++leaf) {
    if (__get_cpuid(leaf, &part[0], &part[1], &part[2], &part[3]) == 0) return {};
    name.append(reinterpret_cast<const char*>(part.data()), sizeof(part));
  }
  name.resize(std::strlen(name.c_str()));
  const auto first = name.find_first_not_of(' ');
  if (first == std::string::npos) return {};
  name = name.substr(first, name.find_last_not_of(' ') + 1 - first);
#endif
  return name;
}

/// The first gate. An instruction that the processor does not have would end the process.
std::string why_no_instruction(const opencl::DeviceFacts& facts, const DeviceInfo& info) {
  if (!facts.is_cpu || !facts.zero_copy) return "the device is not the host's processor";
  bool has_instruction = false;
#if defined(__x86_64__)
  // With what the operating system keeps of the registers: the compiler's runtime asks XGETBV.
  has_instruction = __builtin_cpu_supports("avx512bf16") != 0;
#endif
  if (!has_instruction) return "the processor has no bf16 dot product (avx512bf16)";
  const std::string name = processor_name();
  // Drivers put it into the device's name. A CPU elsewhere, behind a network, has another.
  if (name.empty() || info.name.find(name) == std::string::npos) {
    return fmt::format("the device does not name this processor (\"{}\")", name);
  }
  return {};
}

}  // namespace

DotBf16Verdict dot_bf16_of(opencl::Runtime& runtime, Gates& gates) {
  using opencl::Bf16Products;
  const auto& facts = runtime.facts();
  const bool emulated = facts.bf16_products == Bf16Products::emulated;
  const DotBf16 dot = emulated ? DotBf16::emulated : DotBf16::instruction;
  const auto why_not_reported = [&]() -> std::string {
    if (emulated) return {};
    if (facts.bf16_products == Bf16Products::detected) {
      auto reason = why_no_instruction(facts, runtime.info());
      if (!reason.empty()) return reason;
    }
    // The instruction is used on whole registers; a driver that compiles for narrower ones may have
    // none of that width to give.
    return facts.native_float_vector < 16 ? "the driver compiles for vectors of less than 16 floats"
                                          : "";
  };
  const auto engine = make_cpu_engine(facts, std::int64_t{1} << 31, dot);
  std::string reason = gates.why_closed(runtime, *engine, DType::bf16, why_not_reported);
  return reason.empty() ? DotBf16Verdict{dot, {}}
                        : DotBf16Verdict{DotBf16::none, std::move(reason)};
}

}  // namespace tessera::engines
