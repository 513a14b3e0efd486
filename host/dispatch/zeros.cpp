// SPDX-License-Identifier: Apache-2.0
// Where a HostTensor's elements lie.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <new>

#include "tessera/view.hpp"

namespace tessera {
namespace {

constexpr std::align_val_t line{64};

/// Two large pages, so that one at least is whole wherever they begin. As in numpy.
constexpr std::size_t many_bytes = std::size_t{4} << 20;

}  // namespace

void use_large_pages(void* memory, std::size_t bytes) noexcept {
#ifdef MADV_HUGEPAGE
  if (bytes < many_bytes) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t first = (begin + page - 1) / page * page,
                       end = (begin + bytes) / page * page;
  ::madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#endif
}

/// Many come from the system itself: they are zero without being written, and their pages are
/// mapped by the threads of the call that fills them.
void* HostTensor::allocate_zeros(std::size_t bytes) {
  if (bytes < many_bytes) return std::memset(::operator new(bytes, line), 0, bytes);
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  use_large_pages(memory, bytes);
  return memory;
}

void HostTensor::free_zeros(void* memory, std::size_t bytes) noexcept {
  if (bytes < many_bytes) {
    ::operator delete(memory, line);
  } else {
    ::munmap(memory, bytes);
  }
}

}  // namespace tessera
