// SPDX-License-Identifier: Apache-2.0
#include "host/dispatch/host_workspace.hpp"

#include <new>

namespace tessera::dispatch {

void HostWorkspaces::Free::operator()(void* memory) const noexcept {
  ::operator delete (memory, std::align_val_t{static_cast<std::size_t>(alignment)});
}

HostWorkspaces::Lease::~Lease() {
  if (block_.memory) pool_->give_back(std::move(block_));
}

HostWorkspaces::Lease HostWorkspaces::lend(std::int64_t bytes) {
  std::vector<Block> outgrown;  // freed outside of the lock
  {
    const std::lock_guard lock(mutex_);
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->bytes >= bytes && (best == free_.end() || it->bytes < best->bytes)) best = it;
    }
    if (best != free_.end()) {
      Block block = std::move(*best);
      free_.erase(best);
      return Lease(*this, std::move(block));
    }
    // A larger block is about to take the place of those that are too small.
    outgrown.swap(free_);
  }
  outgrown.clear();
  const std::int64_t size = (bytes + alignment - 1) / alignment * alignment;
  Block block;
  block.memory.reset(::operator new (static_cast<std::size_t>(size),
                                     std::align_val_t{static_cast<std::size_t>(alignment)}));
  block.bytes = size;
  return Lease(*this, std::move(block));
}

void HostWorkspaces::trim() noexcept {
  std::vector<Block> freed;
  const std::lock_guard lock(mutex_);
  freed.swap(free_);
}

void HostWorkspaces::give_back(Block block) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    free_.push_back(std::move(block));
  } catch (...) {
    // Not remembered, so freed; the next call allocates anew.
  }
}

}  // namespace tessera::dispatch
