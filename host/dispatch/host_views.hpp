// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "host/dispatch/context_state.hpp"

namespace tessera::dispatch {

/// Lets an implementation that runs on the host read and write any view: device memory is mapped
/// for the lifetime of this object, host memory passes through.
class HostViews {
 public:
  HostViews(ContextState& state, cl_command_queue queue) : state_(state), queue_(queue) {}
  ~HostViews();  ///< unmaps what `finish` has not; never throws
  HostViews(const HostViews&) = delete;
  HostViews& operator=(const HostViews&) = delete;

  /// Maps device ranges of several views up front, merging those that overlap where one is written
  /// (in-place gradients, interleaved outputs), which OpenCL does not allow to be mapped apart.
  /// `read` and `write` then find them. Only needed where views may share memory.
  void reserve(std::span<const View* const> reads, std::span<const MutableView* const> writes);
  /// The same view over host memory. An empty view stays empty.
  View read(const View& view);
  MutableView write(const MutableView& view);
  /// Unmaps everything, so that the device sees what was written; throws what failed.
  void finish();

 private:
  struct Mapping {
    cl_mem memory;
    void* pointer;
    std::int64_t begin;  ///< bytes into the memory
    std::int64_t end;
    bool write;
  };
  void* map(cl_mem memory, std::int64_t begin, std::int64_t end, bool write);

  ContextState& state_;
  cl_command_queue queue_;
  std::vector<Mapping> mappings_;
};

/// The scratch block of a call: the caller's lent one, or one of the context's.
class HostWorkspace {
 public:
  HostWorkspace(ContextState& state, HostViews& views, const MutableView& lent, std::int64_t bytes);
  void* data() const noexcept { return data_; }

 private:
  std::optional<HostWorkspaces::Lease> lease_;
  void* data_ = nullptr;
};

/// Slack that lets a lent block of any alignment start on a cache line.
inline constexpr std::int64_t workspace_slack = HostWorkspaces::alignment;

/// Bytes from element 0 to the end of the last element a view can reach; 0 for an empty one.
std::int64_t footprint_bytes(const View& view);

}  // namespace tessera::dispatch
