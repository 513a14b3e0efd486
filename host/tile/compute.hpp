// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "host/dispatch/thread_pool.hpp"

namespace tessera::tile {

/// Threads and buffers for the arithmetic of a machine's operations, kept from one to the next. For
/// several threads at a time.
class Compute {
 public:
  /// 0: one per hardware thread.
  explicit Compute(int threads) : pool_(threads) {}

  /// Calls body(first, last) on parts of [0, units) of at least `grain` units, each once, in any
  /// order and on several threads. Accesses to refs from within are refused.
  void run(std::int64_t units, std::int64_t grain,
           const std::function<void(std::int64_t first, std::int64_t last)>& body);

  struct Free {
    void operator()(float* data) const noexcept { ::operator delete[](data, alignment); }
  };
  struct Block {
    std::unique_ptr<float[], Free> data{};
    std::int64_t count = 0;
  };
  /// A buffer on loan.
  class Floats {
   public:
    Floats(Compute& owner, Block block) : owner_(&owner), block_(std::move(block)) {}
    ~Floats() {
      if (block_.data) owner_->give_back(std::move(block_));
    }
    Floats(Floats&& other) noexcept = default;
    Floats& operator=(Floats&&) = delete;
    float* data() const noexcept { return block_.data.get(); }
    std::int64_t count() const noexcept { return block_.count; }

   private:
    Compute* owner_;
    Block block_;
  };
  /// At least `count` floats, aligned to a cache line, with any values.
  Floats floats(std::int64_t count);

 private:
  static constexpr std::align_val_t alignment{64};
  void give_back(Block block);

  dispatch::ThreadPool pool_;
  std::mutex mutex_;
  std::vector<Block> free_;
};

}  // namespace tessera::tile
