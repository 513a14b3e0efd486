// SPDX-License-Identifier: Apache-2.0
// Where a HostTensor's elements lie.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

#include "tessera/view.hpp"

namespace tessera {
namespace {

constexpr std::align_val_t line{64};

/// Two large pages, of which one at least is whole wherever they begin; numpy does so too.
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

void* HostTensor::allocate(std::size_t bytes) {
  void* const memory = ::operator new(bytes, line);
  use_large_pages(memory, bytes);
  return memory;
}

void HostTensor::deallocate(void* memory) noexcept { ::operator delete(memory, line); }

}  // namespace tessera
