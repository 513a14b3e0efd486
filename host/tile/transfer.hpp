// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "host/tile/races.hpp"
#include "tessera/tile/copies.hpp"

// Copies between memories, from their start to the moment they have moved.
namespace tessera::tile::detail {

struct SemaphoreState;

/// One DMA.
struct Transfer {
  Region from{}, to{};
  Region indices{};  ///< of rows of one side; no buffer: none
  Indexed side = Indexed::from;
  std::shared_ptr<SemaphoreState> send{};         ///< of a remote copy: counts what has left
  std::shared_ptr<SemaphoreState> receive{};      ///< counts what has come
  std::shared_ptr<SemaphoreState> own_receive{};  ///< remote: the issuer's, of wait_recv
  /// On which the issuer waits until the data has left, and on which it waits for what comes.
  const std::shared_ptr<SemaphoreState>& own() const { return send != nullptr ? send : receive; }
  const std::shared_ptr<SemaphoreState>& own_receiver() const {
    return own_receive != nullptr ? own_receive : receive;
  }
  CopyOptions options{};
  std::int64_t bytes = 0;    ///< of the elements: what semaphores count
  std::int64_t counted = 0;  ///< what the memory system moves: whole tiles
  bool started = false;
  bool moved = false;
  Stamp stamp{};
  Clock clock{};  ///< what its issuer knew, and its own event
  std::shared_ptr<const Place> place{};
};

/// Without the checks of a copy that a kernel's author makes.
std::shared_ptr<Transfer> make_transfer(Region from, Region to, const CopyOptions& options);
/// Starts a transfer of the running core. Throws TileError (usage) when it was started before.
void begin(const std::shared_ptr<Transfer>& transfer);
/// What one copy moves from where to where: everything, or row by row as its indices say. Throws
/// TileError (bounds) for an index outside, (race) where it writes a row twice. In a dry run the
/// rows are not known, and none is given.
void for_each_part(const Transfer& transfer,
                   const std::function<void(const Region& from, const Region& to)>& body);
/// Copies (or adds) the elements; nothing where one side has no values.
void move_elements(const Transfer& transfer);
/// In a dry run: whether the target's values are known when this transfer has moved.
void note_unknown(const Transfer& transfer);
/// Moves a transfer's data and signals its semaphores.
void move_data(const std::shared_ptr<Transfer>& transfer);

/// "copy 'x' -> 'tile'"
std::string title(const Transfer& transfer);

}  // namespace tessera::tile::detail
