// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>
#include <set>

#include "host/tile/core.hpp"
#include "host/tile/semaphore.hpp"
#include "host/tile/transfer.hpp"
#include "tessera/tile/pipeline.hpp"

namespace tessera::tile::detail {

/// The part of a grid that one core walks, step by step.
class Walk {
 public:
  Walk(CoreGrid share, std::span<const Region> prefetched)
      : share_(std::move(share)), prefetched_(prefetched), steps_(steps_of(share_.extents)) {}
  std::int64_t steps() const { return steps_; }
  /// In the whole grid. `step` counts from 0; behind the last it goes on with the first, as the
  /// scheduler's look at its neighbours does.
  Shape point(std::int64_t step) const;
  std::span<const Region> prefetched() const { return prefetched_; }

 private:
  CoreGrid share_;
  std::span<const Region> prefetched_;
  std::int64_t steps_;
};

/// One operand of a pipeline: its slots on chip, and what is on its way. The functions are those of
/// Pallas' scheduler and are called in its order; each decides by itself whether it has to do
/// something at `step`.
class Window {
 public:
  Window(CoreState& core, Scope& scope, const Walk& walk, const BlockSpec& spec,
         const Region& array, bool output, Issuer issuer);

  int buffers() const { return static_cast<int>(slots_.size()); }

  /// A window that never moves is fetched once, before the grid.
  void fetch_whole();
  /// Before the first step, for each stage of the pipeline.
  void fetch_ahead(int stage);
  void copy_in(std::int64_t step);
  void wait_in(std::int64_t step);
  /// What the body sees.
  const Region& view(std::int64_t step);
  void copy_out(std::int64_t step);
  void wait_out(std::int64_t step);
  void advance(std::int64_t step);
  /// After the last step.
  void finish();

 private:
  bool moves() const { return !direct_ && !trivial_; }
  /// The block at a step, remembered while neighbours may ask again.
  const BlockIndex& index(std::int64_t step);
  BlockIndex map(std::int64_t step) const;
  bool changes(std::int64_t from, std::int64_t to);
  void start_in(std::int64_t step);
  void look_ahead(std::int64_t most);
  void await(std::size_t slot);
  /// "" at the grid point of `step` itself; elsewhere what the pipeline does ahead, or behind.
  std::string meanwhile(std::int64_t step) const;
  std::shared_ptr<Transfer> transfer(std::int64_t step, std::size_t slot);
  void check_revisit(const BlockIndex& index);
  void refuse(ErrorKind kind, const char* rule, const std::string& what) const;

  CoreState& core_;
  const Walk& walk_;
  const BlockSpec& spec_;
  Region array_;
  bool output_;
  Shape shape_;  ///< of the ref that is cut into blocks
  BlockDims dims_;
  bool direct_ = false;   ///< used where it is, without copies
  bool whole_ = true;     ///< an array in HBM is passed whole, not block by block
  bool trivial_ = false;  ///< the whole array: one copy
  std::vector<Region> slots_;
  std::vector<std::shared_ptr<SemaphoreState>> semaphores_;
  std::vector<std::shared_ptr<Transfer>> moving_;  ///< by slot: started and not waited for
  // As many as have been started and used; modulo the slots they say where.
  std::int64_t fetched_ = 0;
  std::int64_t used_ = 0;
  std::int64_t next_fetch_ = 0;  ///< look-ahead: the step whose block was fetched last
  bool fresh_ = true;            ///< an output's slot has not been opened for its block
  std::set<Shape> finished_;
  struct Known {
    std::int64_t step = -1;
    BlockIndex index{};
  };
  std::vector<Known> known_;
  Region part_;  ///< of a ref on chip, at this step
};

}  // namespace tessera::tile::detail
