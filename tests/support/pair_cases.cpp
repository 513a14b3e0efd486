// SPDX-License-Identifier: Apache-2.0
#include "tests/support/case_groups.hpp"

namespace tessera::test {

/// Both operands in bf16, which may be multiplied by pairs: depths around pairs, vectors and steps,
/// in every layout. What lies beside an odd row is NaN, and must not be multiplied even by 0.
std::vector<Case> pairs() {
  struct Layout {
    WLayout w;
    XLayout x;
    const char* name;
  };
  constexpr Layout layouts[] = {{WLayout::vh, XLayout::dense, "vh"},
                                {WLayout::hv, XLayout::dense, "hv"},
                                {WLayout::vh_padded, XLayout::padded, "vh_padded"},
                                {WLayout::strided, XLayout::column, "strided"}};
  struct Size {
    std::int64_t b, h, v;
  };
  constexpr Size sizes[] = {{1, 1, 1},    {5, 2, 7},    {17, 3, 13},  {33, 15, 49}, {65, 31, 50},
                            {2, 33, 301}, {37, 34, 77}, {70, 65, 61}, {9, 129, 191}};
  std::vector<Case> cases;
  const auto add = [&](const Layout& layout, const Size& size, const std::string& more) -> Case& {
    Case c = base(std::string("pairs_bf16_") + layout.name + "_" + std::to_string(size.b) + "x" +
                  std::to_string(size.h) + "x" + std::to_string(size.v) + more);
    c.b = size.b;
    c.h = size.h;
    c.v = size.v;
    c.x_type = c.w_type = DType::bf16;
    c.x_layout = layout.x;
    c.w_layout = layout.w;
    cases.push_back(c);
    return cases.back();
  };
  for (const Layout& layout : layouts) {
    for (const Size& size : sizes) add(layout, size, "");
    // H in steps, the last of which is half a pair, or one, or whole.
    for (const std::int64_t h : {131, 130, 129, 128}) {
      add(layout, {67, h, 193}, "_steps").block_sizes = {64, 64, 64};
    }
    add(layout, {40, 67, 130}, "_denormals").data = Data::denormals;
    Case& infinite = add(layout, {40, 67, 130}, "_nan_rows");
    infinite.data = Data::nan_rows;
    infinite.options.reduction = Reduction::none;
  }
  return cases;
}

}  // namespace tessera::test
