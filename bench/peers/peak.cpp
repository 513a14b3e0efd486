// SPDX-License-Identifier: Apache-2.0
// Samples of the host's peak for a process of Python: attention.py loads this library, so that its
// contenders and the peak share one process. The loops are those of tessera-info --peaks.
#include "peaks/peaks.hpp"

namespace {

struct HostPeak {
  std::unique_ptr<tessera::peaks::Meter> meter;
  tessera::peaks::Kind kind;
  std::string description;
};

}  // namespace

#define EXPORTED extern "C" [[gnu::visibility("default")]]

/// The peak of products in bf16, or in f32. It lives as long as the process.
EXPORTED void* tessera_peak_open(int threads, int bf16) {
  using namespace tessera::peaks;
  const auto type = bf16 != 0 ? tessera::DType::bf16 : tessera::DType::f32;
  auto meter = host_meter(threads);
  const Kind kind = multiplication(*meter, type, type);
  std::string description = std::string(to_string(kind)) + ": " + meter->description(kind);
  if (bf16 != 0 && kind != Kind::dot_bf16) {
    description += " (of f32: " + meter->why_absent(Kind::dot_bf16) + ")";
  }
  return new HostPeak{std::move(meter), kind, std::move(description)};
}

/// FLOP/s.
EXPORTED double tessera_peak_sample(void* peak) {
  auto& p = *static_cast<HostPeak*>(peak);
  return p.meter->sample(p.kind);
}

EXPORTED const char* tessera_peak_description(void* peak) {
  return static_cast<HostPeak*>(peak)->description.c_str();
}
