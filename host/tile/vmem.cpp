// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/tile/text.hpp"
#include "tessera/tile/block_spec.hpp"

namespace tessera::tile {

VmemUse vmem_use(const Chip& chip, const std::vector<Allocation>& allocations) {
  VmemUse use;
  use.limit = chip.scoped_vmem_bytes;
  for (const Allocation& allocation : allocations) {
    Shape shape = allocation.shape;
    std::int64_t copies = allocation.buffers;
    if (shape.size() == 1) {
      // A leading dimension would pad each row to whole sublanes; so slots lie end to end.
      shape[0] *= copies;
      copies = 1;
    }
    const std::int64_t bytes = copies * padded_bytes(chip, shape, allocation.type);
    use.entries.push_back({allocation.buffer, bytes});
    use.declared += bytes;
  }
  return use;
}

std::vector<Violation> check_vmem(const VmemUse& use) {
  if (use.declared <= use.limit) return {};
  std::vector<VmemUse::Entry> entries = use.entries;
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  std::string text = "R13: VMEM: windows and scratch take " + std::to_string(use.declared) +
                     " bytes, the scoped limit is " + std::to_string(use.limit) + ":";
  for (const auto& entry : entries) {
    text += " " + entry.buffer + " " + std::to_string(entry.bytes) + ",";
  }
  text.back() = ';';
  return {{"R13", ErrorKind::vmem, entries.empty() ? "" : entries.front().buffer,
           text + " use smaller blocks or fewer buffers, or raise Chip::scoped_vmem_bytes"}};
}

}  // namespace tessera::tile
