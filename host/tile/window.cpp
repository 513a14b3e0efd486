// SPDX-License-Identifier: Apache-2.0
#include "host/tile/window.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "host/tile/machine_state.hpp"
#include "host/tile/text.hpp"

namespace tessera::tile::detail {

Shape Walk::point(std::int64_t step) const {
  Shape point = grid_point(share_.extents, (step % steps_ + steps_) % steps_);
  for (std::size_t i = 0; i < point.size(); ++i) point[i] += share_.offsets[i];
  return point;
}

Window::Window(CoreState& core, Scope& scope, const Walk& walk, const BlockSpec& spec,
               const Region& array, bool output, Issuer issuer)
    : core_(core), walk_(walk), spec_(spec), array_(array), output_(output) {
  const Buffer& buffer = *array.buffer;
  shape_ = extents_of(array);
  dims_ = spec.shape.dims.value_or(BlockDims(shape_.begin(), shape_.end()));
  BlockShape block = spec.shape;
  block.is_output = output;
  // A plain block that is the whole array can only be at zero; `map` sees to it.
  block.zero_index = !spec.index || dims_ == BlockDims(shape_.begin(), shape_.end());
  if (buffer.space == MemorySpace::vmem || buffer.space == MemorySpace::smem) {
    direct_ = true;
    return;
  }
  auto violations =
      check_block(core.machine->options.chip, buffer.name, shape_, buffer.type, block, issuer);
  for (Violation& violation : violations) {
    violation.message += " (" + located(core, "'" + buffer.name + "'") + ")";
  }
  if (!core.machine->options.check_layout) {
    std::erase_if(violations, [](const Violation& violation) {
      return violation.rule == "R2" || violation.rule == "R3" || violation.rule == "R5";
    });
  }
  require(violations);
  direct_ = block.space == MemorySpace::hbm || block.space == MemorySpace::any;
  whole_ = issuer == Issuer::call || !block.dims;
  if (direct_) return;
  trivial_ = is_trivial_window(shape_, block, issuer);
  const std::size_t count = trivial_ ? 1 : static_cast<std::size_t>(block.buffer_count);
  const Shape window = ref_shape(shape_, block);
  const std::string name = buffer.name + " window";
  // A body sees a slot when its block has come, which poisons what the copy leaves out, or, of an
  // output, when `view` has poisoned it. An output's only window is seen at once.
  const bool poisoned = output && trivial_;
  if (window.size() == 1) {
    // Slots of a vector lie end to end: a leading dimension would pad each to 8 rows.
    const auto size = window[0];
    const Region all = scope.memory(block.space, buffer.type,
                                    {static_cast<std::int64_t>(count) * size}, name, poisoned);
    for (std::size_t slot = 0; slot < count; ++slot) {
      const Index part(ds(static_cast<std::int64_t>(slot) * size, size));
      slots_.push_back(slice_of(all, std::span<const Index>(&part, 1)));
    }
  } else {
    for (std::size_t slot = 0; slot < count; ++slot) {
      slots_.push_back(scope.memory(block.space, buffer.type, window, name, poisoned));
    }
  }
  for (std::size_t slot = 0; slot < count; ++slot) {
    semaphores_.push_back(
        scope.semaphore(SemaphoreKind::dma, fmt::format("{} slot {}", name, slot)));
  }
  moving_.resize(count);
  // The scheduler looks one step back, one ahead, and as far as it fetches.
  known_.resize(count + 3);
}

void Window::refuse(ErrorKind kind, const char* rule, const std::string& what) const {
  const std::string& name = array_.buffer->name;
  throw TileError(kind, fmt::format("{}: {}: {}", rule, located(name), what), rule, name);
}

std::string Window::meanwhile(std::int64_t step) const {
  const Shape point = walk_.point(step);
  if (point == core_.place->grid_point) return {};
  return fmt::format(", for the block of grid point ({})", fmt::join(point, ", "));
}

BlockIndex Window::map(std::int64_t step) const {
  if (!spec_.index) return BlockIndex::zeros(dims_.size());
  const Shape point = walk_.point(step);
  BlockIndex index;
  try {
    index = spec_.index(GridPoint(point, walk_.prefetched()));
  } catch (const TileError& error) {
    throw TileError(
        error.kind(),
        fmt::format("{} (index map of '{}'{})", error.what(), array_.buffer->name, meanwhile(step)),
        error.rule(), error.buffer());
  }
  if (index.rank() != dims_.size()) {
    refuse(ErrorKind::block_rule, "R1",
           fmt::format("the index map gives {} numbers at {} for {} dimensions", index.rank(),
                       to_text(point), dims_.size()));
  }
  return index;
}

const BlockIndex& Window::index(std::int64_t step) {
  const std::int64_t steps = walk_.steps();
  step = (step % steps + steps) % steps;
  Known& known = known_[static_cast<std::size_t>(step) % known_.size()];
  if (known.step != step) known = {step, map(step)};
  return known.index;
}

bool Window::changes(std::int64_t from, std::int64_t to) {
  const BlockIndex before = index(from);  // a copy: both may have the same place
  return before != index(to);
}

std::shared_ptr<Transfer> Window::transfer(std::int64_t step, std::size_t slot) {
  const Buffer& buffer = *array_.buffer;
  const BlockIndex index = trivial_ ? BlockIndex::zeros(dims_.size()) : this->index(step);
  std::vector<Slice> starts;
  for (std::size_t i = 0; i < index.rank(); ++i) starts.push_back(index[i]);
  std::vector<DmaSlice> parts;
  try {
    parts = dma_slice(core_.machine->options.chip, buffer.name, shape_, buffer.type, dims_, starts);
  } catch (const TileError& error) {
    throw TileError(error.kind(),
                    fmt::format("{} ({}{})", error.what(), located(buffer.name), meanwhile(step)),
                    error.rule(), buffer.name);
  }
  std::vector<Index> from;
  std::vector<Index> to;
  auto counted = static_cast<std::int64_t>(buffer.element_bytes());
  bool whole = true;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    counted *= parts[i].size;
    if (dims_[i].kind == DimKind::squeezed) {
      from.emplace_back(parts[i].start);
      continue;
    }
    from.emplace_back(ds(parts[i].start, parts[i].valid));
    to.emplace_back(ds(parts[i].window_start, parts[i].valid));
    whole = whole && parts[i].valid == dims_[i].size;
  }
  // What the copy does not reach is another block's rest on a TPU.
  if (!whole && !output_) poison(slots_[slot]);
  auto transfer = make_transfer(slice_of(array_, from), slice_of(slots_[slot], to), {});
  if (output_) std::swap(transfer->from, transfer->to);
  transfer->counted = counted;
  transfer->receive = semaphores_[slot];
  if (output_ && !array_.buffer->writable) {
    refuse(ErrorKind::usage, "R12",
           "an output is a constant view of the caller's memory; give the machine a MutableView");
  }
  return transfer;
}

void Window::start_in(std::int64_t step) {
  const auto slot = static_cast<std::size_t>(fetched_++) % slots_.size();
  moving_[slot] = transfer(step, slot);
  begin(moving_[slot]);
}

void Window::await(std::size_t slot) {
  if (!moving_[slot]) return;
  take(*moving_[slot]->receive, moving_[slot]->bytes);
  moving_[slot].reset();
}

void Window::fetch_whole() {
  if (output_ || direct_ || !trivial_) return;
  start_in(0);
  await(0);
}

void Window::fetch_ahead(int stage) {
  if (output_ || !moves() || stage + 1 >= buffers() || stage >= walk_.steps()) return;
  if (stage == 0) {
    start_in(0);
  } else if (spec_.shape.lookahead) {
    look_ahead(1);
  } else if (changes(stage - 1, stage)) {
    start_in(stage);
  }
}

void Window::look_ahead(std::int64_t most) {
  const std::int64_t limit = std::min(
      used_ + buffers(), most == 0 ? std::numeric_limits<std::int64_t>::max() : fetched_ + most);
  while (fetched_ < limit && next_fetch_ + 1 < walk_.steps()) {
    ++next_fetch_;
    if (changes(next_fetch_ - 1, next_fetch_)) start_in(next_fetch_);
  }
}

void Window::copy_in(std::int64_t step) {
  if (output_ || !moves()) return;
  if (spec_.shape.lookahead) {
    if (step == 0 && fetched_ == 0) start_in(0);  // a single buffer has no prologue
    look_ahead(0);
    return;
  }
  const std::int64_t ahead = step + buffers() - 1;
  if (buffers() == 1 ? step == 0 || changes(step - 1, step)
                     : ahead < walk_.steps() && changes(ahead - 1, ahead)) {
    start_in(ahead);
  }
}

void Window::wait_in(std::int64_t step) {
  if (output_ || !moves()) return;
  if (step == 0 || changes(step - 1, step)) await(static_cast<std::size_t>(used_) % slots_.size());
}

const Region& Window::view(std::int64_t step) {
  if (direct_) {
    if (whole_ && array_.buffer->space == MemorySpace::hbm) {
      if (spec_.index && map(step) != BlockIndex::zeros(dims_.size())) {
        refuse(ErrorKind::block_rule, "R4", "an index map of an array that stays in HBM moves");
      }
      return array_;
    }
    const BlockIndex block = map(step);
    std::vector<Index> part;
    for (std::size_t i = 0; i < block.rank(); ++i) {
      const BlockDim& dim = dims_[i];
      if (dim.kind == DimKind::squeezed) {
        part.emplace_back(block[i].start);
      } else if (dim.kind == DimKind::bounded_slice) {
        part.emplace_back(block[i]);
      } else {
        const auto unit = dim.kind == DimKind::element ? 1 : dim.size;
        std::int64_t start = 0;
        if (__builtin_mul_overflow(block[i].start, unit, &start)) {
          refuse(ErrorKind::bounds, "R12",
                 fmt::format("the index map gives block {} of {} elements in dimension {}",
                             block[i].start, unit, i));
        }
        part.emplace_back(ds(start, dim.size));
      }
    }
    part_ = slice_of(array_, part);
    return part_;
  }
  if (trivial_) {
    if (spec_.index && map(step) != BlockIndex::zeros(dims_.size())) {
      refuse(ErrorKind::block_rule, "R12",
             fmt::format("the block at {} is outside: one block is the whole array",
                         to_text(walk_.point(step))));
    }
    return slots_[0];
  }
  const auto slot = static_cast<std::size_t>(used_) % slots_.size();
  if (output_ && fresh_) {
    fresh_ = false;
    check_revisit(index(step));
    poison(slots_[slot]);
  }
  return slots_[slot];
}

void Window::check_revisit(const BlockIndex& index) {
  Shape starts;
  for (std::size_t i = 0; i < index.rank(); ++i) starts.push_back(index[i].start);
  if (finished_.insert(starts).second) return;
  refuse(ErrorKind::revisit, "R12",
         fmt::format("output block {} is visited again after another one; visit it in consecutive "
                     "steps, or add up in scratch",
                     to_text(starts)));
}

void Window::copy_out(std::int64_t step) {
  if (!output_ || !moves()) return;
  if (step + 1 != walk_.steps() && !changes(step, step + 1)) return;
  const auto slot = static_cast<std::size_t>(used_) % slots_.size();
  moving_[slot] = transfer(step, slot);
  begin(moving_[slot]);
  if (buffers() == 1) await(slot);
}

void Window::wait_out(std::int64_t step) {
  if (!output_ || !moves() || step == 0 || !changes(step - 1, step)) return;
  await(static_cast<std::size_t>(used_ - 1) % slots_.size());
}

void Window::advance(std::int64_t step) {
  if (!moves()) return;
  if (step + 1 != walk_.steps() && !changes(step, step + 1)) return;
  ++used_;
  fresh_ = true;
}

void Window::finish() {
  if (!output_ || direct_) return;
  if (trivial_) {
    moving_[0] = transfer(walk_.steps() - 1, 0);
    begin(moving_[0]);
    await(0);
    return;
  }
  await(static_cast<std::size_t>(used_ - 1) % slots_.size());
}

}  // namespace tessera::tile::detail
