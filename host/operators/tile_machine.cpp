// SPDX-License-Identifier: Apache-2.0
#include "host/operators/tile_machine.hpp"

#include "host/arguments/offsets.hpp"

namespace tessera::operators {

ImplementationInfo tile_info() {
  return {"tpu_tile",
          "the TPU schedule on the tile machine, for the chip that the context names (v5p)", false};
}

const tile::Chip& tile_chip(const ContextState& state) {
  // v5p is what Marin's and Tokamax's kernels are mostly tuned on, and has two cores.
  return tile::find_chip(state.tile_chip.empty() ? "v5p" : state.tile_chip);
}

std::pair<std::string, std::string> tuned_names_of_chip(const ContextState& state) {
  return {tile_chip(state).name, "tpu"};
}

std::int64_t cores_of_grid(const tile::Chip& chip) { return chip.megacore ? chip.cores : 1; }

void describe_tile_call(const tile::Chip& chip, Dispatch& dispatch) {
  dispatch.implementation = "tpu_tile";
  dispatch.device = chip.name + " on the tile machine";
  dispatch.knobs = {{"cores", cores_of_grid(chip)}, {"scoped_vmem_bytes", chip.scoped_vmem_bytes}};
}

std::string text_of(const std::vector<tile::Violation>& violations) {
  std::string text;
  for (const auto& violation : violations) {
    text += (text.empty() ? "" : "; ") + violation.message;
  }
  return text;
}

bool rows_are_dense(const View& view) {
  const std::int64_t columns = view.extents().back();
  if (columns > 1 && view.strides().back() != 1) return false;
  const arguments::RowOffsets offsets(view, view.rank() - 1);
  return offsets.rank() == 0 || (offsets.rank() == 1 && offsets.stride(0) == columns) ||
         (offsets.rank() == 1 && offsets.extent(0) == 1);
}

}  // namespace tessera::operators
