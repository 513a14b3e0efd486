// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "peaks/host_isa.hpp"
#include "peaks/host_loops.hpp"
#include "peaks/peaks.hpp"
#include "tessera/view.hpp"

namespace tessera::peaks {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class HostMeter final : public Meter {
 public:
  explicit HostMeter(int threads)
      : threads_(threads > 0 ? threads
                             : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))) {
  }

  std::string why_absent(Kind kind) const override {
    if (kind == Kind::dot_bf16 && isa_.dot_bf16 == nullptr) {
      return "the processor has no bf16 dot product (avx512bf16)";
    }
    if (kind == Kind::write_nontemporal && isa_.stream_all == nullptr) {
      return "no stores that pass the caches by are known for this processor";
    }
    return {};
  }

  std::string description(Kind kind) const override {
    if (of_memory(kind)) {
      return fmt::format("host, {} threads, {}, {} MiB each way", threads_, isa_.name,
                         memory_bytes >> 20);
    }
    return fmt::format("host, {} threads, {}, {} vectors of {} floats{}", threads_, isa_.name,
                       chains, kind == Kind::dot_bf16 ? 16 : isa_.lanes,
                       kind == Kind::exp ? ", 2^x as a polynomial of degree 6" : "");
  }

  double sample(Kind kind) override {
    if (!has(kind)) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("the host has no peak of {}: {}", to_string(kind), why_absent(kind)));
    }
    if (of_memory(kind)) allocate();
    auto& repeats = repeats_[static_cast<std::size_t>(kind)];
    if (repeats == 0) {
      // Doubling until a sample is long enough also warms caches and clocks up. The shorter of two,
      // since a thread may have waited for another program.
      repeats = 1;
      while (std::min(timed(kind, repeats), timed(kind, repeats)) < sample_seconds / 2) {
        repeats *= 2;
      }
    }
    const double seconds = timed(kind, repeats);
    const double speed = static_cast<double>(repeats) * units(kind) / seconds;
    if (seconds < sample_seconds / 4) repeats *= 2;  // clocks have risen since
    return speed;
  }

 private:
  /// Beyond the last cache of any processor so far, for the most part.
  static constexpr std::int64_t memory_bytes = std::int64_t{256} << 20;
  /// Of a loop without memory, before the clock is looked at again: some microseconds.
  static constexpr std::int64_t rounds = 1000;

  static bool of_memory(Kind kind) {
    return kind != Kind::fma_f32 && kind != Kind::dot_bf16 && kind != Kind::exp;
  }

  /// Units of work in one repeat, all threads together.
  double units(Kind kind) const {
    const double steps = static_cast<double>(chains * rounds * threads_);
    const double bytes = static_cast<double>(share() * threads_);
    switch (kind) {
      case Kind::fma_f32:
        return 2.0 * isa_.lanes * steps;
      case Kind::dot_bf16:
        return 4.0 * 16 * steps;  // two products and two sums for each of 16 floats
      case Kind::exp:
        return isa_.lanes * steps;
      case Kind::copy:
      case Kind::read_modify_write:
        return 2.0 * bytes;
      default:
        return bytes;
    }
  }
  /// Bytes of each thread, whole pages.
  std::int64_t share() const { return memory_bytes / threads_ / 4096 * 4096; }

  double timed(Kind kind, std::int64_t repeats) {
    const auto work = [&](int thread) {
      for (std::int64_t i = 0; i < repeats; ++i) once(kind, thread);
    };
    const double start = now();
    std::vector<std::jthread> others;
    for (int thread = 1; thread < threads_; ++thread) others.emplace_back(work, thread);
    work(0);
    others.clear();  // joins
    return now() - start;
  }

  void once(Kind kind, int thread) {
    const std::int64_t floats = share() / 4;
    const auto part = [&](HostTensor& of) {
      return of ? of.as<float>().data() + floats * thread : nullptr;
    };
    float *const source = part(source_), *const target = part(target_);
    switch (kind) {
      case Kind::fma_f32:
        return use(isa_.multiply_add(rounds, 0.999f, 0.001f));
      case Kind::dot_bf16:
        return use(isa_.dot_bf16(rounds));
      case Kind::exp:
        return use(isa_.exponential(rounds));
      case Kind::read:
        return use(isa_.read_all(source, floats));
      case Kind::write:
        return isa_.write_all(target, floats, 1e-3f);
      case Kind::write_nontemporal:
        return isa_.stream_all(target, floats, 1e-3f);
      case Kind::copy:
        return isa_.copy_all(target, source, floats);
      case Kind::read_modify_write:
        return isa_.update_all(target, floats);
    }
  }
  /// Makes the compiler believe that the value is used.
  static void use(float value) { asm volatile("" : : "m"(value)); }

  /// In large pages where the system has them, as the arrays of HostTensor and numpy are: small
  /// ones are so many that looking them up is a part of what would be measured.
  void allocate() {
    if (target_) return;
    source_ = HostTensor(DType::f32, {memory_bytes / 4});
    target_ = HostTensor(DType::f32, {memory_bytes / 4});
    // Small floats, and no page left to the kernel's zero page.
    std::ranges::fill(source_.as<float>(), 1e-3f);
    std::ranges::fill(target_.as<float>(), 1e-3f);
  }

  const int threads_;
  const Isa isa_ = best_isa();
  HostTensor source_, target_;
  std::array<std::int64_t, 8> repeats_{};
};

}  // namespace

std::unique_ptr<Meter> host_meter(int threads) { return std::make_unique<HostMeter>(threads); }

}  // namespace tessera::peaks
