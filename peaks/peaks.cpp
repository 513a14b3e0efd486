// SPDX-License-Identifier: Apache-2.0
#include "peaks/peaks.hpp"

#include <algorithm>

namespace tessera::peaks {

const char* to_string(Kind kind) noexcept {
  switch (kind) {
    case Kind::fma_f32:
      return "fma_f32";
    case Kind::dot_bf16:
      return "dot_bf16";
    case Kind::read:
      return "read";
    case Kind::write:
      return "write";
    case Kind::write_nontemporal:
      return "write_nontemporal";
    case Kind::copy:
      return "copy";
    case Kind::read_modify_write:
      return "read_modify_write";
    case Kind::exp:
      return "exp";
  }
  return "?";
}

const char* unit(Kind kind) noexcept {
  switch (kind) {
    case Kind::fma_f32:
    case Kind::dot_bf16:
      return "FLOP/s";
    case Kind::read:
    case Kind::write:
    case Kind::write_nontemporal:
    case Kind::copy:
    case Kind::read_modify_write:
      return "bytes/s";
    case Kind::exp:
      return "exp/s";
  }
  return "?";
}

const std::vector<Kind>& all_kinds() {
  static const std::vector<Kind> kinds = {
      Kind::fma_f32, Kind::dot_bf16,          Kind::read, Kind::write, Kind::write_nontemporal,
      Kind::copy,    Kind::read_modify_write, Kind::exp};
  return kinds;
}

Kind multiplication(const Meter& meter, DType x, DType w) {
  const bool bf16_only = x == DType::bf16 && w == DType::bf16;
  return bf16_only && meter.has(Kind::dot_bf16) ? Kind::dot_bf16 : Kind::fma_f32;
}

std::vector<Peak> measure(Meter& meter, int samples) {
  std::vector<Peak> result;
  for (const Kind kind : all_kinds()) {
    if (!meter.has(kind)) {
      result.push_back({kind, 0.0, 0.0, 0, meter.why_absent(kind)});
      continue;
    }
    std::vector<double> values;
    for (int i = 0; i < std::max(samples, 1); ++i) values.push_back(meter.sample(kind));
    std::sort(values.begin(), values.end());
    result.push_back({kind, values.back(), values[values.size() / 2],
                      static_cast<int>(values.size()), meter.description(kind)});
  }
  return result;
}

#ifndef TESSERA_OPENCL
std::unique_ptr<Meter> device_meter(const Context&) { return nullptr; }
#endif

}  // namespace tessera::peaks
