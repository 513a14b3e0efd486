// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "host/tile/races.hpp"
#include "tessera/tile/ref.hpp"

// Memory of the machine: arrays in HBM, scratch and arguments on chip.
namespace tessera::tile::detail {

struct MachineState;

/// One array or one piece of scratch. Regions share it, so that one that outlives its memory still
/// has its name.
struct Buffer : std::enable_shared_from_this<Buffer> {
  MachineState* machine = nullptr;
  std::string name{};
  MemorySpace space = MemorySpace::hbm;
  ElementType type = ElementType::f32;
  Shape shape{};
  Shape strides{};  ///< in elements
  int device = 0;
  int agent = -1;                   ///< whose on-chip memory it is
  const std::byte* data = nullptr;  ///< null where a dry run has no values
  std::byte* target = nullptr;      ///< the same, but null for a constant view of the caller's
  std::unique_ptr<std::byte[]> owned{};
  bool writable = true;  ///< also in a dry run
  bool frozen = false;
  /// A dry run: something without values was copied into it.
  bool unknown = false;
  std::string ended_with{};       ///< "its run_scoped" or "kernel 'add'"; empty while it lives
  std::int64_t padded_bytes = 0;  ///< what it takes on chip
  std::size_t report = 0;         ///< of Report::buffers
  AccessLog log{};
  int in_flight = 0;  ///< copies from or to it that were started and not waited for
  /// The same scratch or argument of every core, by agent, while a kernel runs that others know it
  /// in.
  const std::vector<Buffer*>* siblings = nullptr;

  std::size_t element_bytes() const { return static_cast<std::size_t>(bits_of(type)) / 8; }
};

/// Strides of consecutive elements.
Shape row_major(const Shape& shape);
/// Row-major, without memory. Throws TileError (usage) for extents below 1.
std::shared_ptr<Buffer> make_buffer(MachineState& machine, std::string name, MemorySpace space,
                                    ElementType type, const Shape& extents, int device);
/// Memory of its own; in a dry run only to SMEM, or where it `steers` what is in SMEM.
void give_memory(Buffer& buffer, bool poisoned = true, bool steers = false);
/// Scratch that nobody may use from now on; `with` what it has ended.
void end(Buffer& buffer, const std::string& with);
/// Throws TileError (usage) for a ref without a value.
Buffer& buffer_of(const Region& region);
Region whole(Buffer& buffer);
/// Fills with what uninitialised memory holds.
void poison(const Region& region);

/// Where an element of the region's first corner lies, and the extents and strides of what is left.
Elements elements_of(const Region& region);
/// Throws TileError (race) where `log` has something that `known` does not order.
void record_access(Buffer& buffer, const std::vector<Slice>& where, bool writes, bool copy,
                   const Stamp& stamp, const Clock& known,
                   const std::shared_ptr<const Place>& place);

}  // namespace tessera::tile::detail
