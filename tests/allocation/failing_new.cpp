// SPDX-License-Identifier: Apache-2.0
#include "tests/allocation/failing_new.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <new>

namespace tessera::test::allocation {
namespace {

struct State {
  bool counts = false;
  long calls = 0;
  long fails_at = 0;
  bool failed = false;
};
thread_local State state;

struct Range {
  std::uintptr_t begin = 0, end = 0;
  bool has(const void* address) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return begin <= at && at < end;
  }
};

/// The loaded segments of the object that has this address in it.
Range object_with(const void* address) {
  struct Search {
    Range found;
    const void* address;
  } search = {{}, address};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& s = *static_cast<Search*>(data);
        Range all{UINTPTR_MAX, 0};
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD) continue;
          const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
          all.begin = begin < all.begin ? begin : all.begin;
          all.end = begin + part.p_memsz > all.end ? begin + part.p_memsz : all.end;
        }
        if (all.has(s.address)) s.found = all;
        return 0;
      },
      &search);
  return search.found;
}

struct Objects {
  Range program = object_with(reinterpret_cast<const void*>(&live_blocks));
  Range standard_library =
      object_with(dlsym(RTLD_DEFAULT,
                        "_ZNSt13runtime_errorC1ERKNSt7__cxx1112basic_stringIcSt11"
                        "char_traitsIcESaIcEEE"));
};
const Objects& objects() {
  static const Objects instance;
  return instance;
}

/// Whether the program called, where the standard library's own frames do not count.
bool is_ours(const void* caller) {
  if (objects().program.has(caller)) return true;
  if (!objects().standard_library.has(caller)) return false;
  std::array<void*, 24> frames{};
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  bool seen = false;  // the standard library's frames come after those of this file
  for (int i = 0; i < count; ++i) {
    const void* frame = frames[static_cast<std::size_t>(i)];
    if (objects().standard_library.has(frame)) {
      seen = true;
    } else if (seen) {
      return objects().program.has(frame);
    }
  }
  return false;
}

/// Open addressing without memory of its own; a block that finds no place is not followed.
class Blocks {
 public:
  void add(void* block) {
    const Lock lock(busy_);
    for (std::size_t i = 0; i < places_.size(); ++i) {
      void*& place = at(block, i);
      if (place != nullptr && place != freed()) continue;
      place = block;
      ++live_;
      return;
    }
  }
  void remove(void* block) {
    if (block == nullptr || live_ == 0) return;
    const Lock lock(busy_);
    for (std::size_t i = 0; i < places_.size(); ++i) {
      void*& place = at(block, i);
      if (place == nullptr) return;
      if (place != block) continue;
      place = freed();
      --live_;
      return;
    }
  }
  long live() const { return live_; }

 private:
  struct Lock {
    explicit Lock(std::atomic_flag& flag) : busy(flag) {
      while (busy.test_and_set(std::memory_order_acquire)) {
      }
    }
    ~Lock() { busy.clear(std::memory_order_release); }
    std::atomic_flag& busy;
  };
  static void* freed() { return reinterpret_cast<void*>(std::uintptr_t{1}); }
  void*& at(void* block, std::size_t step) {
    return places_[((reinterpret_cast<std::uintptr_t>(block) >> 4) * 0x9e3779b97f4a7c15ull + step) %
                   places_.size()];
  }

  std::array<void*, 1 << 16> places_{};
  std::atomic<long> live_ = 0;
  std::atomic_flag busy_{};
};
constinit Blocks blocks;

}  // namespace

Counted::Counted(long k) {
  // What these load on first use, they load now.
  std::array<void*, 2> frames{};
  backtrace(frames.data(), 2);
  objects();
  state = {true, 0, k, false};
}
Counted::~Counted() { state.counts = false; }
long Counted::calls() { return state.calls; }
bool Counted::has_failed() { return state.failed; }
long live_blocks() { return blocks.live(); }

/// nullptr: the call fails.
void* allocate(std::size_t bytes, std::size_t alignment, const void* caller) noexcept {
  bool follow = false;
  if (state.counts) {
    state.counts = false;  // unwinding may allocate
    follow = is_ours(caller);
    state.counts = true;
    if (follow && ++state.calls == state.fails_at) {
      state.failed = true;
      return nullptr;
    }
  }
  if (bytes == 0) bytes = 1;
  void* block =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(bytes)
          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (follow && block != nullptr) blocks.add(block);
  return block;
}

void release(void* block) noexcept {
  blocks.remove(block);
  std::free(block);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment, const void* caller) {
  void* block = allocate(bytes, alignment, caller);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

}  // namespace tessera::test::allocation

// All forms of the standard's, since a program replaces all or is at the mercy of who calls which.
#define TESSERA_CALLER __builtin_return_address(0)
namespace allocation = tessera::test::allocation;
void* operator new(std::size_t n) { return allocation::allocate_or_throw(n, 1, TESSERA_CALLER); }
void* operator new[](std::size_t n) { return allocation::allocate_or_throw(n, 1, TESSERA_CALLER); }
void* operator new(std::size_t n, std::align_val_t a) {
  return allocation::allocate_or_throw(n, static_cast<std::size_t>(a), TESSERA_CALLER);
}
void* operator new[](std::size_t n, std::align_val_t a) {
  return allocation::allocate_or_throw(n, static_cast<std::size_t>(a), TESSERA_CALLER);
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  return allocation::allocate(n, 1, TESSERA_CALLER);
}
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return allocation::allocate(n, 1, TESSERA_CALLER);
}
void operator delete(void* p) noexcept { allocation::release(p); }
void operator delete[](void* p) noexcept { allocation::release(p); }
void operator delete(void* p, std::size_t) noexcept { allocation::release(p); }
void operator delete[](void* p, std::size_t) noexcept { allocation::release(p); }
void operator delete(void* p, std::align_val_t) noexcept { allocation::release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { allocation::release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { allocation::release(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { allocation::release(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { allocation::release(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { allocation::release(p); }
