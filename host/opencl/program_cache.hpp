// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/opencl.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "host/opencl/binary_cache.hpp"
#include "host/opencl/program_dump.hpp"

namespace tessera::opencl {

/// A specialisation of one kernel file: what is compiled.
struct Specialisation {
  std::string file;      ///< path inside cl_kernels
  std::string options;   ///< "-DLANES=8 -DX_TYPE=1 ..."; part of the cache key
  std::string engine{};  ///< the folder that `ENGINE` is in its includes; empty: it has none
  /// A caller's own text, of which `file` is then just the name; null: the embedded file.
  std::shared_ptr<const std::string> source{};
  /// Work-items of a group of a program whose PTX is patched for sm_90a (ptx.hpp); 0: it is not.
  std::int64_t patched_items = 0;
  /// hash_of both, where somebody who keeps it has formed it; 0: not yet.
  std::uint64_t hash = 0;

  /// Whether both are one program; `hash` follows from the rest.
  friend bool operator==(const Specialisation& a, const Specialisation& b) noexcept {
    return a.file == b.file && a.options == b.options && a.engine == b.engine &&
           a.patched_items == b.patched_items &&
           (a.source == b.source || (a.source && b.source && *a.source == *b.source));
  }
};
std::uint64_t hash_of(const Specialisation& specialisation) noexcept;

/// A kernel object and what its arguments hold. Drivers copy and check each argument that is set,
/// so that in a steady call, where most have not changed, the setting costs as much as the
/// launches.
class KernelObject {
 public:
  explicit KernelObject(cl::Kernel kernel) : kernel_(std::move(kernel)) {}
  const cl::Kernel& kernel() const noexcept { return kernel_; }

  /// clSetKernelArg, left out where the argument holds this value already. Returns its status.
  template <class T>
  cl_int set(cl_uint index, const T& value) {
    if constexpr (sizeof(T) <= sizeof(Held::word)) {
      std::uint64_t word = 0;
      std::memcpy(&word, &value, sizeof(T));
      auto& known = held(index);
      if (known.is_set && known.word == word) return CL_SUCCESS;
      return set_word(index, sizeof(T), &value, word);
    } else {
      return set_bytes(index, sizeof(T), &value);
    }
  }
  /// The same for memory. A handle that is the same may be that of another buffer, made where the
  /// one before was released: only null is left out, and pooled scratch while the pool has the
  /// `epoch` (0: no scratch of the pool) in which the argument was set.
  cl_int set_memory(cl_uint index, cl_mem memory, std::int64_t epoch);
  /// The same for a struct.
  cl_int set_bytes(cl_uint index, std::size_t size, const void* value);

 private:
  struct Held {
    std::uint64_t word = 0;   ///< of a small argument
    std::int64_t epoch = 0;   ///< of memory
    std::int32_t large = -1;  ///< index in large_
    bool is_set = false;
  };
  Held& held(cl_uint index) {
    if (index >= held_.size()) held_.resize(index + 1);
    return held_[index];
  }
  cl_int set_word(cl_uint index, std::size_t size, const void* value, std::uint64_t word);

  cl::Kernel kernel_;
  std::vector<Held> held_;
  std::vector<std::vector<std::byte>> large_;
};

/// Builds each specialisation once per Context, and lends cl_kernel objects (which hold their
/// arguments, so that two threads must not share one).
class ProgramCache {
 public:
  ProgramCache(const cl::Context& context, const cl::Device& device);
  ~ProgramCache();

  /// A kernel of the specialisation, returned to the cache when the lease ends.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&&) noexcept;
    Lease& operator=(Lease&&) noexcept;
    ~Lease();
    KernelObject& operator*() const noexcept { return *object_; }
    KernelObject* operator->() const noexcept { return object_.get(); }

   private:
    friend class ProgramCache;
    struct Shelf;  // where idle kernels of one entry wait; lives as long as the cache
    Shelf* shelf_ = nullptr;
    std::unique_ptr<KernelObject> object_;
  };

  /// Compiles on first use; threads that ask for the same specialisation wait for one build.
  /// A failed build throws Error build_failed with the compiler's log, or with the reason why PTX
  /// cannot be patched, is remembered, and throws the same again. (Running out of memory while
  /// building is not remembered.)
  Lease kernel(const Specialisation& specialisation, std::string_view entry);

  /// Before the first use: looks for what is compiled there first, and leaves it there. The key
  /// says all that a binary depends on beside source and options: device, driver, this library.
  void keep_in(BinaryCache binaries, std::string device_key);

  /// Before the first use: programs are compiled, whatever is kept, and leave there what came of
  /// it; their code when the cache ends, since drivers compile as late as when a kernel runs.
  void dump_to(ProgramDump dump);

  /// Times the compiler ran so far, failures included (for tests and reports).
  std::int64_t builds() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::opencl
