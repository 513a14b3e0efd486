// SPDX-License-Identifier: Apache-2.0
// Packed operands of the wgmma engine (cl_kernels/engines/wgmma/operand.cl): each word, and that no
// other is written. Kernels that pack run on any device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "host/engines/engine.hpp"
#include "host/opencl/specialise.hpp"
#include "linear/arguments.h"
#include "tests/support/opencl_fixture.hpp"

namespace tessera::test {
namespace {

using engines::ceil_div;
using engines::round_up;

constexpr std::int64_t tile_n = 128, run = 8;
constexpr std::int64_t guard = 16;  ///< elements before and behind what a kernel may write
constexpr const char* engine_options = "-DLANES=1 -DTILE_M=256 -DTILE_N=128 -DPACK_STEP=2";
constexpr std::uint16_t poison = 0x7fc1;  // a NaN

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

class WgmmaOperands : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = opencl::Runtime::open({});
    if (!opened) GTEST_SKIP() << "no OpenCL device";
    state_ = std::make_shared<ContextState>(ContextOptions{}, std::move(opened));
    runtime_ = opencl::runtime_of(*state_);
  }
  template <class Launch>
  void run_call(const Launch& launch) {
    dispatch::Attempt attempt;
    opencl::Call call(state_, *runtime_, {}, attempt);
    launch(call);
    call.finish()->wait_once();
  }
  static opencl::Specialisation program(const std::string& file, const std::string& options) {
    return {file, engine_options + (" " + options), "wgmma"};
  }

  std::shared_ptr<ContextState> state_;
  opencl::Runtime* runtime_ = nullptr;
};

/// Memory that kernels write, as 16-bit elements between guards.
struct Elements {
  std::vector<std::uint16_t> bits;
  explicit Elements(std::int64_t count) : bits(index(count + 2 * guard), poison) {}
  std::uint16_t at(std::int64_t i) const { return bits[index(guard + i)]; }
  opencl::Binding bind(opencl::Call& call) {
    // Typed f32, since words are what kernels count in.
    auto to = call.write(MutableView::host(bits.data(), DType::f32,
                                           {static_cast<std::int64_t>(bits.size()) / 2}, {1}),
                         "out", true);
    to.offset += guard / 2;
    return to;
  }
  void expect_guards() const {
    for (std::int64_t i = 0; i < guard; ++i) {
      ASSERT_EQ(bits[index(i)], poison) << "before";
      ASSERT_EQ(bits[bits.size() - 1 - index(i)], poison) << "behind";
    }
  }
};

/// Rows of x as they lie; a call's rows come in two parts with arrays of their own.
struct Rows {
  std::int64_t h, row_stride, h_stride;
  bool contiguous;
};

constexpr std::int64_t call_rows = 150, first_part = 70;
/// All rows but these count.
bool is_ignored(std::int64_t row) { return row % 5 == 3; }
std::uint16_t element(std::int64_t row, std::int64_t h) {
  return static_cast<std::uint16_t>(1 + (row * 523 + h * 7) % 30000);
}

class WgmmaPacks : public WgmmaOperands {
 protected:
  WgmmaPacks() {
    info_.assign(16, 0);
    for (std::int64_t row = 0; row < call_rows; ++row) {
      if (!is_ignored(row)) rows_.push_back(static_cast<std::int32_t>(row));
    }
    info_[0] = static_cast<std::int32_t>(rows_.size());
  }
  std::int64_t counted() const { return info_[0]; }

  /// Calls `launch(call, x, segment, info, rows)` for each part of x. With `only` the other part's
  /// rows stay as they are.
  template <class Launch>
  void for_parts(const Rows& x, std::int64_t skipped_part, const Launch& launch) {
    for (std::int64_t part = 0; part < 2; ++part) {
      if (part == skipped_part) continue;
      const std::int64_t begin = part == 0 ? 0 : first_part;
      const std::int64_t end = part == 0 ? first_part : call_rows;
      std::vector<std::uint16_t> memory(index((end - begin) * x.row_stride + guard), poison);
      for (std::int64_t row = begin; row < end; ++row) {
        for (std::int64_t h = 0; h < x.h; ++h) {
          memory[index((row - begin) * x.row_stride + h * x.h_stride)] = element(row, h);
        }
      }
      kernels::row_segment segment{
          .geometry = {}, .h_stride = x.h_stride, .begin = begin, .end = end};
      for (int axis = 0; axis < 8; ++axis) segment.geometry.extent[axis] = 1;
      segment.geometry.extent[0] = end - begin;
      segment.geometry.stride[0] = x.row_stride;
      run_call([&](opencl::Call& call) {
        launch(call,
               call.read(View::host(memory.data(), DType::bf16,
                                    {static_cast<std::int64_t>(memory.size())}, {1}),
                         "x"),
               segment, call.read(View::host(info_.data(), DType::i32, {16}, {1}), "info"),
               call.read(View::host(rows_.data(), DType::i32, {counted()}, {1}), "rows"));
      });
    }
  }
  /// The part of x that a compact row is in; 0 of what pads.
  std::int64_t part_of(std::int64_t i) const {
    return i < counted() && rows_[index(i)] >= first_part ? 1 : 0;
  }
  /// Element h of compact row i, and 0 of what pads or lies beyond.
  std::uint16_t expected(std::int64_t i, std::int64_t h, const Rows& x) const {
    return i < counted() && h < x.h ? element(rows_[index(i)], h) : 0;
  }
  static std::string options(const Rows& x) {
    return "-DX_TYPE=1 -DX_CONTIGUOUS=" + std::to_string(static_cast<int>(x.contiguous));
  }

  std::vector<std::int32_t> info_, rows_;
};

/// Rows on 16 bytes and not, whole runs and not, more than a group takes, and gaps.
const Rows cases[] = {{8, 8, 1, true},       {1, 1, 1, true},     {7, 9, 1, true},
                      {4097, 4104, 1, true}, {136, 139, 1, true}, {30, 64, 2, false}};

TEST_F(WgmmaPacks, RowsLieAsTheyDid) {
  constexpr std::int64_t panels = 2;
  for (const Rows& x : cases) {
    SCOPED_TRACE("h " + std::to_string(x.h));
    const std::int64_t ld = round_up(x.h, run);
    for (const std::int64_t skipped : {-1, 1}) {
      Elements out(panels * tile_n * ld);
      for_parts(
          x, skipped,
          [&](auto& call, const auto& from, const auto& segment, const auto& info,
              const auto& rows) {
            const auto range = opencl::with_second(
                {{index(ceil_div(x.h, PACK_EDGE * 2) * PACK_GROUP), 1, 1}, {PACK_GROUP, 1, 1}},
                panels * tile_n / PACK_EDGE);
            call.launch(program("linear/pack_x.cl", options(x)), range,
                        kernels::pack_rows_memory{
                            .x = from, .info = info, .rows = rows, .out = out.bind(call)},
                        {.x = segment, .chunk_begin = 0, .h_count = x.h, .panels = panels});
          });
      for (std::int64_t i = 0; i < panels * tile_n; ++i) {
        const bool is_left = part_of(i) == skipped;
        for (std::int64_t h = 0; h < ld; ++h) {
          ASSERT_EQ(out.at(i * ld + h), is_left ? poison : expected(i, h, x)) << i << ", " << h;
        }
      }
      out.expect_guards();
    }
  }
}

TEST_F(WgmmaPacks, ColumnsLieAsTheyDid) {
  constexpr std::int64_t panel_step = 2, row_count = 131;
  for (const Rows& x : cases) {
    SCOPED_TRACE("h " + std::to_string(x.h));
    const std::int64_t ld = round_up(x.h, run);
    for (const std::int64_t skipped : {-1, 0}) {
      Elements out(row_count * ld);
      for_parts(x, skipped,
                [&](auto& call, const auto& from, const auto& segment, const auto& info,
                    const auto& rows) {
                  const auto range = opencl::with_second(
                      {{index(ceil_div(ceil_div(x.h, tile_n), panel_step) * 64), 1, 1}, {64, 1, 1}},
                      ceil_div(row_count, 2));
                  call.launch(
                      program("linear/pack_x.cl",
                              options(x) + " -DPANEL_STEP=" + std::to_string(panel_step)),
                      range,
                      kernels::pack_columns_memory{
                          .x = from, .info = info, .rows = rows, .out = out.bind(call)},
                      {.x = segment, .chunk_begin = 0, .h_count = x.h, .row_count = row_count});
                });
      for (std::int64_t i = 0; i < row_count; ++i) {
        const bool is_left = i < counted() && part_of(i) == skipped;
        for (std::int64_t h = 0; h < ld; ++h) {
          ASSERT_EQ(out.at(i * ld + h), is_left ? poison : expected(i, h, x)) << i << ", " << h;
        }
      }
      out.expect_guards();
    }
  }
}

}  // namespace
}  // namespace tessera::test
