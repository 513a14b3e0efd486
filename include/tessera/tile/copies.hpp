// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "tessera/tile/ref.hpp"

namespace tessera::tile {

namespace detail {
struct SemaphoreState;
struct Transfer;
}  // namespace detail

/// A semaphore of the running core, from its kernel's scratch or from run_scoped. Copies name the
/// same one.
class Semaphore {
 public:
  Semaphore() = default;
  explicit Semaphore(detail::SemaphoreState* state) : state_(state) {}
  detail::SemaphoreState* state() const noexcept { return state_; }

 private:
  detail::SemaphoreState* state_ = nullptr;
};

/// One that counts the bytes of copies.
class DmaSemaphore : public Semaphore {
 public:
  using Semaphore::Semaphore;
};

/// Where a semaphore or the target of a remote copy is: the same kernel on another device or core.
struct Target {
  int device = 0;
  int core = 0;
  int subcore = 0;
  int mesh = -1;  ///< of mpmd, in the order of its parts; -1: the own one
};

struct CopyOptions {
  bool add = false;  ///< the target's elements are added to, not replaced
  int priority = 0;  ///< 0 or 1
};

/// A copy that was made and perhaps started; a copy that is started and not waited for is an error
/// at the end of its kernel.
class TESSERA_API Copy {
 public:
  Copy() = default;
  explicit Copy(std::shared_ptr<detail::Transfer> transfer) : transfer_(std::move(transfer)) {}
  void start();
  /// Until the data is there; of a remote copy: until it has left (`wait_send`) and until as many
  /// bytes have come to this core's receiving semaphore (`wait_recv`).
  void wait();
  void wait_send();
  void wait_recv();

 private:
  std::shared_ptr<detail::Transfer> transfer_;
};

namespace detail {
TESSERA_API Copy make_copy(const Region& from, const Region& to, const DmaSemaphore& semaphore,
                           const CopyOptions& options);
TESSERA_API Copy make_remote_copy(const Region& from, const Region& to, const DmaSemaphore& send,
                                  const DmaSemaphore& receive, const Target& target,
                                  const CopyOptions& options);
TESSERA_API void sync_copy(const Region& from, const Region& to);
enum class Indexed { from, to };
TESSERA_API Copy make_indexed_copy(const Region& from, const Region& to, const Region& indices,
                                   Indexed side, const DmaSemaphore& semaphore,
                                   const CopyOptions& options);
TESSERA_API void sync_indexed_copy(const Region& from, const Region& to, const Region& indices,
                                   Indexed side, const CopyOptions& options);
}  // namespace detail

/// Between any two memories of the core and its device's HBM. Throws TileError (usage) for other
/// extents on both sides, (layout, R6) for parts of tiles.
template <class T>
Copy make_async_copy(const Ref<T>& from, const Ref<T>& to, const DmaSemaphore& semaphore,
                     const CopyOptions& options = {}) {
  return detail::make_copy(from.region(), to.region(), semaphore, options);
}
template <class T>
Copy async_copy(const Ref<T>& from, const Ref<T>& to, const DmaSemaphore& semaphore,
                const CopyOptions& options = {}) {
  Copy copy = make_async_copy(from, to, semaphore, options);
  copy.start();
  return copy;
}
/// Started and waited for, on a semaphore of its own.
template <class T>
void sync_copy(const Ref<T>& from, const Ref<T>& to) {
  detail::sync_copy(from.region(), to.region());
}
/// to[i] = from[indices[i]] for every i, of rows (everything behind the first dimension): Pallas'
/// `copy(x_hbm.at[indices], to)`. For vector subcores of a SparseCore, between HBM and their VMEM,
/// where the indices are too. An index outside of `from` is an error (bounds) when the copy moves.
template <class T>
Copy make_async_gather(const Ref<T>& from, const Ref<std::int32_t>& indices, const Ref<T>& to,
                       const DmaSemaphore& semaphore) {
  return detail::make_indexed_copy(from.region(), to.region(), indices.region(),
                                   detail::Indexed::from, semaphore, {});
}
/// to[indices[i]] = from[i], or += with CopyOptions::add.
template <class T>
Copy make_async_scatter(const Ref<T>& from, const Ref<T>& to, const Ref<std::int32_t>& indices,
                        const DmaSemaphore& semaphore, const CopyOptions& options = {}) {
  return detail::make_indexed_copy(from.region(), to.region(), indices.region(),
                                   detail::Indexed::to, semaphore, options);
}
/// Started and waited for, on semaphores of their own.
template <class T>
void sync_gather(const Ref<T>& from, const Ref<std::int32_t>& indices, const Ref<T>& to) {
  detail::sync_indexed_copy(from.region(), to.region(), indices.region(), detail::Indexed::from,
                            {});
}
template <class T>
void sync_scatter(const Ref<T>& from, const Ref<T>& to, const Ref<std::int32_t>& indices,
                  const CopyOptions& options = {}) {
  detail::sync_indexed_copy(from.region(), to.region(), indices.region(), detail::Indexed::to,
                            options);
}

/// Into `to` as the kernel on `target` names it; `receive` counts there.
template <class T>
Copy make_async_remote_copy(const Ref<T>& from, const Ref<T>& to, const DmaSemaphore& send,
                            const DmaSemaphore& receive, const Target& target,
                            const CopyOptions& options = {}) {
  return detail::make_remote_copy(from.region(), to.region(), send, receive, target, options);
}

/// Adds to a regular semaphore: this core's, or the same one of `target`.
TESSERA_API void semaphore_signal(const Semaphore& semaphore, std::int64_t amount = 1,
                                  std::optional<Target> target = {});
/// Until it holds at least `amount`, which is taken from it.
TESSERA_API void semaphore_wait(const Semaphore& semaphore, std::int64_t amount = 1);
/// What it holds now, without waiting: a count of signals, or the bytes of copies that have moved.
TESSERA_API std::int64_t semaphore_read(const Semaphore& semaphore);
/// Until every core of every device of the kernel has come here.
TESSERA_API void barrier();
/// Until every vector subcore of this SparseCore has come here.
TESSERA_API void subcore_barrier();

}  // namespace tessera::tile
