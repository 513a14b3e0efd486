// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/context.hpp"
#include "tessera/dtype.hpp"

/// What a machine can do at best, measured by code that does nothing else. Speeds of real kernels
/// are judged against these, never against a data sheet.
namespace tessera::peaks {

enum class Kind {
  fma_f32,            ///< multiply and add in f32; FLOP/s, two per multiply-add
  dot_bf16,           ///< products of bf16 pairs summed in f32 by one instruction; FLOP/s
  read,               ///< bytes/s
  write,              ///< bytes/s
  write_nontemporal,  ///< bytes/s of stores that pass the caches by
  copy,               ///< bytes/s, each byte counted once read and once written
  read_modify_write,  ///< bytes/s of updates in place, each byte counted twice
  exp,                ///< 2^x in f32 to full accuracy; evaluations/s
};

/// The enumerator's own name.
const char* to_string(Kind kind) noexcept;
/// "FLOP/s", "bytes/s" or "exp/s".
const char* unit(Kind kind) noexcept;
const std::vector<Kind>& all_kinds();

/// Seconds that one sample takes, about: long against the start of a launch (some 25 us) and
/// against a scheduler's tick, short enough to bracket every measurement.
constexpr double sample_seconds = 0.020;

/// Takes samples of the peaks of one device, or of the host's threads. Not thread-safe.
class Meter {
 public:
  virtual ~Meter() = default;
  /// Why there is no such peak: no such unit here, or no way to use it from here. Empty: there is.
  virtual std::string why_absent(Kind kind) const = 0;
  bool has(Kind kind) const { return why_absent(kind).empty(); }
  /// One sample, in units per second. The first one of a kind compiles, allocates and warms up.
  /// Throws `Error execution_failed` or `out_of_memory`.
  virtual double sample(Kind kind) = 0;
  /// Which code is measured: "OpenCL, 12 float8 accumulators, 8 work-items".
  virtual std::string description(Kind kind) const = 0;
};

/// The host's own threads; 0: one per hardware thread.
std::unique_ptr<Meter> host_meter(int threads);
/// The context's device, through a queue of its own. nullptr: no device.
std::unique_ptr<Meter> device_meter(const Context& context);

/// The peak that multiplies operands of these types: dot_bf16 where both are bf16 and there is
/// one, else fma_f32, to which 16-bit operands are widened.
Kind multiplication(const Meter& meter, DType x, DType w);

struct Peak {
  Kind kind = Kind::fma_f32;
  double best = 0.0;    ///< units per second
  double median = 0.0;  ///< a median far below the best tells of a machine that is shared
  int samples = 0;      ///< 0: absent, and `description` says why
  std::string description{};
};

/// `samples` samples of every kind; kinds the meter does not have are listed as absent.
std::vector<Peak> measure(Meter& meter, int samples = 11);

}  // namespace tessera::peaks
