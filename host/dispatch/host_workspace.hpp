// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace tessera::dispatch {

/// Host scratch memory that outlives a call, so that a steady call allocates nothing. Each call in
/// flight holds a block of its own.
class HostWorkspaces {
 public:
  /// Blocks start on, and are counted in, cache lines.
  static constexpr std::int64_t alignment = 64;

  struct Free {
    void operator()(void* memory) const noexcept;
  };
  struct Block {
    std::unique_ptr<void, Free> memory{};
    std::int64_t bytes = 0;
  };

  /// A block on loan; goes back to the pool when dropped.
  class Lease {
   public:
    Lease(HostWorkspaces& pool, Block block) : pool_(&pool), block_(std::move(block)) {}
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease();
    void* data() const noexcept { return block_.memory.get(); }

   private:
    HostWorkspaces* pool_;
    Block block_;
  };

  /// The smallest free block of at least `bytes`, or a new one; uninitialised. Throws
  /// std::bad_alloc.
  Lease lend(std::int64_t bytes);
  /// Frees what no call uses at the moment.
  void trim() noexcept;
  /// Bytes that the pool holds free.
  std::int64_t free_bytes() const noexcept;

 private:
  void give_back(Block block) noexcept;

  mutable std::mutex mutex_;
  std::vector<Block> free_;
};

}  // namespace tessera::dispatch
