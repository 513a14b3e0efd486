// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/arguments.h"
#include "host/dispatch/table.hpp"
#include "host/opencl/program_cache.hpp"
#include "host/opencl/runtime.hpp"
#include "tessera/view.hpp"

namespace tessera::opencl {

/// Memory a kernel may use: a buffer, the offset of element 0 in elements, and strides in elements.
/// As a kernel's argument it is a Memory; empty, a null buffer and the offset 0.
struct Binding {
  cl_mem memory = nullptr;
  std::int64_t offset = 0;
  DType dtype = DType::f32;
  Dims extents{};
  Dims strides{};
  bool writes_caller = false;  ///< launching with it touches a caller's output
  std::int64_t epoch = 0;      ///< of pooled scratch, see WorkspacePool::Lease

  operator Memory() const noexcept { return {memory, offset, epoch, writes_caller}; }
};

/// Scratch of one call, in f32 words; as an argument it is a Binding.
using Scratch = Binding;

/// Extents and strides of leading axes, as a struct argument.
using Geometry = kernels::row_geometry;

/// Work sizes of a launch; `local` all 0: the driver's choice.
struct Range {
  std::array<std::size_t, 3> global{1, 1, 1};
  std::array<std::size_t, 3> local{0, 0, 0};
};

/// How a call uses queue, events and lent scratch; taken from ExecutionOptions.
struct CallOptions {
  cl_command_queue queue = nullptr;
  std::vector<cl_event> wait_for{};
  MutableView workspace{};
};

/// One call in flight: commands in order on the caller's queue (in-order or not), with everything
/// they need kept alive until they have run.
class Call {
 public:
  Call(std::shared_ptr<ContextState> state, Runtime& runtime, const CallOptions& options,
       dispatch::Attempt& attempt);
  ~Call();  ///< an unfinished call waits for what it enqueued, without throwing
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Runtime& runtime() noexcept;

  /// Makes a view readable by kernels. Device memory as it is; host memory is wrapped where the
  /// device shares it, else copied to the device densely (then the strides differ). A view whose
  /// reach exceeds the maximum allocation is copied densely; a dense copy beyond it is Error
  /// out_of_memory (split first). `argument` is for messages.
  Binding read(const View& view, const char* argument);
  /// Makes a view writable by kernels. With `keep` kernels also read what is there (accumulate), or
  /// do not write every element.
  Binding write(const MutableView& view, const char* argument, bool keep);
  /// Memory of the pool for a copy of `argument` in another layout, which counts as staged.
  Scratch staging(std::int64_t bytes, const char* argument);
  /// Retains memory until the commands have run.
  void keep(cl_mem memory);
  /// True when the view, bound as it is, stays within the maximum allocation.
  bool fits(const View& view) const;

  /// Scratch of at least `words` f32 words, 64-byte aligned, from the lent block or the pool.
  /// Each region is at most the maximum allocation (else Error out_of_memory).
  Scratch scratch(std::int64_t words, const char* purpose);
  std::int64_t scratch_bytes() const noexcept;  ///< so far

  /// For calls that walk a large array piece by piece: what is staged so far stays until `finish`.
  void keep_staging();
  /// Copies outputs staged since `keep_staging` back to the caller and frees their buffers and
  /// those of the inputs staged since; Bindings made by that staging become invalid. Blocks when
  /// there is any, does nothing for wrapped host memory and device memory.
  void release_staging();

  /// Enqueues the kernel that these arguments are of (cl_kernels/common/arguments.h): its pointers,
  /// its scalars, and further structs by value.
  template <class Pointers, class... Structs>
  requires requires { typename Pointers::Sizes; }
  void launch(const Specialisation& specialisation, const Range& range, const Pointers& pointers,
              const typename Pointers::Sizes& sizes, const Structs&... structs) {
    auto lease = kernel(specialisation, Pointers::entry);
    constexpr std::size_t most_pointers = 24;
    std::array<std::int64_t, most_pointers + sizeof(sizes) / 8> words;
    cl_uint index = 0;
    bool touches = false;
    pointers.each([&](const Memory& memory) {
      words[index] = memory.offset;
      set_memory(*lease, index, memory);
      touches |= memory.writes_caller;
    });
    std::memcpy(words.data() + index, &sizes, sizeof(sizes));
    set_struct(*lease, index, words.data(), index * 8 + sizeof(sizes));
    (set_struct(*lease, index, &structs, sizeof(structs)), ...);
    enqueue(*lease, Pointers::entry, range, touches);
  }
  /// An argument of a kernel that is not the library's: `size` bytes by value, or of local memory
  /// where `value` is null; with a size of 0, memory, which may be null.
  struct Argument {
    Memory memory{};
    const void* value = nullptr;
    std::size_t size = 0;  ///< of what is no memory
  };
  void launch(const Specialisation& specialisation, const std::string& entry, const Range& range,
              const std::vector<Argument>& arguments);
  /// Reads scratch into memory that lives as long as the completion; valid after it.
  void read_back(const Scratch& from, std::int64_t words, std::shared_ptr<std::vector<float>> to);
  /// Runs after the commands, when somebody waits: throws what the outputs say is wrong.
  void check_on_completion(std::function<void()> check);

  /// Copies staged outputs back and hands over what is in flight. Blocks when any view was host
  /// memory. The Call is empty afterwards.
  std::unique_ptr<Completion::State> finish();

 private:
  ProgramCache::Lease kernel(const Specialisation& specialisation, std::string_view entry);
  void set_memory(KernelObject& kernel, cl_uint& index, const Memory& value);
  void set_struct(KernelObject& kernel, cl_uint& index, const void* value, std::size_t size);
  void enqueue(const KernelObject& kernel, std::string_view entry, const Range& range,
               bool touches);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::opencl
