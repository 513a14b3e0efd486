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

/// A semaphore of the running core, from its kernel's scratch or from run_scoped, in which it is of
/// use: later, or made without a value, it is a TileError (usage). Copies name the same one.
class Semaphore {
 public:
  Semaphore() = default;
  explicit Semaphore(std::shared_ptr<detail::SemaphoreState> state) : state_(std::move(state)) {}
  const std::shared_ptr<detail::SemaphoreState>& state() const noexcept { return state_; }

 private:
  std::shared_ptr<detail::SemaphoreState> state_{};
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
/// (unfinished_dma) at the end of its kernel. All of these are for the body of the kernel that made
/// it: elsewhere, and of a Copy without a value, they throw TileError (usage). Copies of a Copy
/// name the same DMA.
class TESSERA_API Copy {
 public:
  Copy() = default;
  explicit Copy(std::shared_ptr<detail::Transfer> transfer) : transfer_(std::move(transfer)) {}
  /// Does not wait. Throws TileError (usage) for a copy that was started before. Where nothing
  /// orders it after what else touches its elements, TileError (race) is thrown when its data
  /// moves: here or in a wait (MachineOptions::dma).
  void start();
  /// The running core waits until the data is there; of a remote copy: until it has left
  /// (`wait_send`) and until as many bytes have come to this core's receiving semaphore
  /// (`wait_recv`). It takes these bytes from the semaphore, so a copy of the same size that was
  /// made anew can be waited for in place of the one that was started. Throws TileError (deadlock)
  /// where nobody can go on.
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

/// Between any two memories of the core and its device's HBM, not started yet. `from` and `to` have
/// the same extents. Throws TileError (usage) for other extents or types on both sides, a target
/// that is a constant view and a priority that is neither 0 nor 1, (layout, R6) for parts of
/// tiles.
template <class T>
Copy make_async_copy(const Ref<T>& from, const Ref<T>& to, const DmaSemaphore& semaphore,
                     const CopyOptions& options = {}) {
  return detail::make_copy(from.region(), to.region(), semaphore, options);
}
/// The same, started; whoever needs the data waits for it.
template <class T>
Copy async_copy(const Ref<T>& from, const Ref<T>& to, const DmaSemaphore& semaphore,
                const CopyOptions& options = {}) {
  Copy copy = make_async_copy(from, to, semaphore, options);
  copy.start();
  return copy;
}
/// Started and waited for, on a semaphore of its own. Throws as make_async_copy does.
template <class T>
void sync_copy(const Ref<T>& from, const Ref<T>& to) {
  detail::sync_copy(from.region(), to.region());
}
/// to[i] = from[indices[i]] for every i, of rows (everything behind the first dimension): Pallas'
/// `copy(x_hbm.at[indices], to)`. For vector subcores of a SparseCore, between HBM and their VMEM,
/// where the indices are too: `indices` is [n], `to` [n, ...], `from` [any, ...]. Not started yet.
/// Throws TileError (usage) for other extents or another kind of core, (space) for indices that are
/// not in this core's VMEM; an index outside of `from` is an error (bounds) when the copy moves.
template <class T>
Copy make_async_gather(const Ref<T>& from, const Ref<std::int32_t>& indices, const Ref<T>& to,
                       const DmaSemaphore& semaphore) {
  return detail::make_indexed_copy(from.region(), to.region(), indices.region(),
                                   detail::Indexed::from, semaphore, {});
}
/// to[indices[i]] = from[i], or += with CopyOptions::add; as make_async_gather with the sides
/// exchanged. No source says in which order a TPU writes the rows of one copy, so that without
/// `add` two equal indices are an error (race) when the copy moves; two copies in flight to one row
/// are a race in any case.
template <class T>
Copy make_async_scatter(const Ref<T>& from, const Ref<T>& to, const Ref<std::int32_t>& indices,
                        const DmaSemaphore& semaphore, const CopyOptions& options = {}) {
  return detail::make_indexed_copy(from.region(), to.region(), indices.region(),
                                   detail::Indexed::to, semaphore, options);
}
/// Started and waited for, on semaphores of their own; they throw as the two above.
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

/// Into `to` as the kernel on `target` names it, not started yet; extents are equal. `send` counts
/// here when the data has left, `receive` there when it has come: the target waits for it with
/// `wait_recv` of a copy of its own that names the same semaphore, or by a copy back. Throws
/// TileError (bounds) for a target that the kernel has not, (usage) for what only
/// this core or device has: scratch of run_scoped, an array that was not given once per device.
template <class T>
Copy make_async_remote_copy(const Ref<T>& from, const Ref<T>& to, const DmaSemaphore& send,
                            const DmaSemaphore& receive, const Target& target,
                            const CopyOptions& options = {}) {
  return detail::make_remote_copy(from.region(), to.region(), send, receive, target, options);
}

/// Adds to a regular semaphore: this core's, or the same one of `target`. Does not wait. Throws
/// TileError (usage) for an amount below 0, a DMA semaphore, or one of run_scoped with a target,
/// (bounds) for a target that the kernel has not, (semaphore) beyond what 64 bits count. A
/// semaphore that is not zero when its kernel ends is an error (semaphore).
TESSERA_API void semaphore_signal(const Semaphore& semaphore, std::int64_t amount = 1,
                                  std::optional<Target> target = {});
/// The running core waits until a regular semaphore holds at least `amount`, which is taken from
/// it. What the signalling core did before is ordered before what follows. Throws TileError (usage)
/// for a DMA semaphore, (deadlock) where nobody can go on.
TESSERA_API void semaphore_wait(const Semaphore& semaphore, std::int64_t amount = 1);
/// What it holds now: a count of signals, or the bytes of copies that have moved. Others have a
/// turn before it returns, so that a loop may poll what another core signals; a copy that nobody
/// waits for moves when it is polled again. Throws TileError (usage) for a semaphore of another
/// core, (deadlock) where every core waits, or polls thousands of times while nothing happens.
TESSERA_API std::int64_t semaphore_read(const Semaphore& semaphore);
/// The running core waits until every core of every device of the kernel has come here, which
/// orders what they did before. Throws TileError (deadlock) where one never comes.
TESSERA_API void barrier();
/// The same for the vector subcores of this SparseCore. Throws TileError (usage) on other cores.
TESSERA_API void subcore_barrier();

}  // namespace tessera::tile
