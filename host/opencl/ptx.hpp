// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The PTX that NVIDIA's driver makes of OpenCL C, changed to name instructions that only `sm_90a`
/// has. The driver compiles for `sm_90`, keeps comments, and fills in operands within them: a
/// kernel has such an instruction in a line of inline PTX behind a mark, "//@ ".
namespace tessera::opencl {

/// A text that is no whole PTX, or none to patch; the message says what was found and expected.
struct PtxRefused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A text's parts, by their offsets in it.
struct PtxParts {
  struct Entry {
    std::string name;
    std::size_t body = 0;  ///< its {
    bool has_reqntid = false, has_minnctapersm = false, has_marks = false;
  };
  std::pair<int, int> version;  ///< {8, 5}
  std::string target;           ///< "sm_90"
  std::size_t target_end = 0;
  std::vector<Entry> entries;
  std::vector<std::size_t> marks;
};
/// Throws PtxRefused.
PtxParts ptx_parts(std::string_view text);

struct PatchedPtx {
  std::string text;
  std::int64_t uncovered = 0;  ///< lines that were comments
};
/// Text for `sm_90a` without marks. Entries that had some name `work_items` of a group, one group
/// at a time, where they name none: else setmaxnreg is ignored. NULs behind the text are left out.
/// Throws PtxRefused.
PatchedPtx to_sm_90a(std::string_view text, std::int64_t work_items);

}  // namespace tessera::opencl
