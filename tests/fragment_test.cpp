// SPDX-License-Identifier: Apache-2.0
// The table of matrix units, against the vendors' documents read the other way: which lane has an
// element. Lanes filled by the table are multiplied by that rule, and C is read by the table again.
#include "host/engines/fragment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "host/engines/gates.hpp"
#include "host/opencl/runtime.hpp"
#include "tessera/tessera.hpp"

namespace tessera::test {
namespace {

using engines::Fragment;

/// Element i of a lane.
struct Holder {
  int lane, i;
};
/// The unit as its vendor describes it.
struct Unit {
  int m, n, k, lanes;
  Holder (*a)(int m, int k);
  Holder (*b)(int k, int n);
  Holder (*c)(int m, int n);
};

/// PTX ISA, the figures of "Matrix Fragments for mma.m16n8k16 with floating point type". A row of
/// A or C, or a column of B, is with a group of 4 lanes, the upper 8 rows with the same ones as the
/// lower 8.
Holder mma_sync_a(int m, int k) { return {m % 8 * 4 + k % 8 / 2, k / 8 * 4 + m / 8 * 2 + k % 2}; }
Holder mma_sync_b(int k, int n) { return {n * 4 + k % 8 / 2, k / 8 * 2 + k % 2}; }
Holder mma_sync_c(int m, int n) { return {m % 8 * 4 + n / 2, m / 8 * 2 + n % 2}; }
/// AMD Matrix Instruction Calculator, of one block: a half of the lanes has 4 of k, and 4 rows of
/// each 8 of C.
Holder mfma_a(int m, int k) { return {m + 32 * (k / 4), k % 4}; }
Holder mfma_b(int k, int n) { return {n + 32 * (k / 4), k % 4}; }
Holder mfma_c(int m, int n) { return {n + 32 * (m / 4 % 2), m / 8 * 4 + m % 4}; }

Unit unit_of(const Fragment& row) {
  static const std::map<std::string, Unit> units = {
      {"mma.sync.m16n8k16", {16, 8, 16, 32, mma_sync_a, mma_sync_b, mma_sync_c}},
      {"v_mfma_f32_32x32x8_bf16_1k", {32, 32, 8, 64, mfma_a, mfma_b, mfma_c}}};
  return units.at(row.name);
}

/// [row][column].
struct Matrix {
  int rows, columns;
  std::vector<int> elements = std::vector<int>(static_cast<std::size_t>(rows * columns));
  int& at(int row, int column) {
    return elements.at(static_cast<std::size_t>(row * columns + column));
  }
};
/// [lane][i].
using Lanes = Matrix;

Lanes lanes_for(const Fragment& row, const Matrix& matrix) {
  return {row.lanes, matrix.rows * matrix.columns / row.lanes};
}

Lanes distribute(const Fragment& row, Matrix& matrix, const engines::Places& places) {
  Lanes lanes = lanes_for(row, matrix);
  for (int lane = 0; lane < lanes.rows; ++lane) {
    for (int i = 0; i < lanes.columns; ++i) {
      lanes.at(lane, i) = matrix.at(places.row(i, lane), places.column(i, lane));
    }
  }
  return lanes;
}

/// True: lanes that are filled and read by the row form the product of two matrices.
bool multiplies(const Fragment& row, const Unit& unit) {
  std::mt19937 random(1);
  Matrix a{row.m, row.k}, b{row.k, row.n}, expected{row.m, row.n}, result{row.m, row.n};
  for (Matrix* matrix : {&a, &b}) {
    for (int& element : matrix->elements) element = static_cast<int>(random() % 201) - 100;
  }
  for (int m = 0; m < row.m; ++m) {
    for (int n = 0; n < row.n; ++n) {
      for (int k = 0; k < row.k; ++k) expected.at(m, n) += a.at(m, k) * b.at(k, n);
    }
  }
  Lanes of_a = distribute(row, a, row.a), of_b = distribute(row, b, row.b);
  Lanes of_c = lanes_for(row, result);
  const auto in = [](Lanes& lanes, const Holder& holder) -> int& {
    return lanes.at(holder.lane, holder.i);
  };
  for (int m = 0; m < row.m; ++m) {
    for (int n = 0; n < row.n; ++n) {
      for (int k = 0; k < row.k; ++k) {
        in(of_c, unit.c(m, n)) += in(of_a, unit.a(m, k)) * in(of_b, unit.b(k, n));
      }
    }
  }
  for (int lane = 0; lane < of_c.rows; ++lane) {
    for (int i = 0; i < of_c.columns; ++i) {
      result.at(row.c.row(i, lane), row.c.column(i, lane)) = of_c.at(lane, i);
    }
  }
  return result.elements == expected.elements;
}

constexpr const char* wrong_number = "a number is not the unit's";
constexpr const char* wrong_product = "the product is wrong";

/// "": nothing is wrong with a row.
std::string found(const Fragment& row) {
  if (const auto reason = engines::why_unusable(row, {})) return *reason;
  const Unit unit = unit_of(row);
  if (row.m != unit.m || row.n != unit.n || row.k != unit.k || row.lanes != unit.lanes) {
    return wrong_number;
  }
  return multiplies(row, unit) ? "" : wrong_product;
}

TEST(Fragment, EachUnitMultiplies) {
  EXPECT_EQ(engines::all_fragments.size(), 2u);
  for (const Fragment& row : engines::all_fragments) {
    EXPECT_EQ(found(row), "") << row.name;
    EXPECT_EQ(engines::why_unusable(row, {row.lanes}), std::nullopt) << row.name;
  }
}

/// Each of the mistakes below leaves every place to one element: the product alone tells.
template <const Fragment& row>
void expect_mistakes_are_found() {
  const auto expect_found = [](const char* mistake, const auto& plant) {
    Fragment planted = row;
    plant(planted);
    EXPECT_EQ(found(planted), wrong_product) << row.name << ": " << mistake;
  };
  expect_found("a lane off by one in A", [](Fragment& f) {
    f.a = {[](int i, int lane) { return row.a.row(i, (lane + 1) % row.lanes); },
           [](int i, int lane) { return row.a.column(i, (lane + 1) % row.lanes); }};
  });
  expect_found("a lane off by one in B", [](Fragment& f) {
    f.b = {[](int i, int lane) { return row.b.row(i, (lane + 1) % row.lanes); },
           [](int i, int lane) { return row.b.column(i, (lane + 1) % row.lanes); }};
  });
  expect_found("a lane off by one in C", [](Fragment& f) {
    f.c = {[](int i, int lane) { return row.c.row(i, (lane + 1) % row.lanes); },
           [](int i, int lane) { return row.c.column(i, (lane + 1) % row.lanes); }};
  });
  expect_found("halves of k exchanged in A", [](Fragment& f) {
    f.a.column = [](int i, int lane) { return (row.a.column(i, lane) + row.k / 2) % row.k; };
  });
  expect_found("halves of k exchanged in B", [](Fragment& f) {
    f.b.row = [](int i, int lane) { return (row.b.row(i, lane) + row.k / 2) % row.k; };
  });
}

TEST(Fragment, MistakesThatCoverTheTileAreFound) {
  expect_mistakes_are_found<engines::mma_sync>();
  expect_mistakes_are_found<engines::mfma>();
  // Rows and columns exchanged, of the matrices that are square.
  Fragment planted = engines::mma_sync;
  std::swap(planted.a.row, planted.a.column);
  EXPECT_EQ(found(planted), wrong_product);
  planted = engines::mfma;
  std::swap(planted.c.row, planted.c.column);
  EXPECT_EQ(found(planted), wrong_product);
}

/// Halves of k that are exchanged in both operands are the same product.
TEST(Fragment, TheOrderOfKIsFree) {
  Fragment both = engines::mma_sync;
  both.a.column = [](int i, int lane) { return (engines::mma_sync.a.column(i, lane) + 8) % 16; };
  both.b.row = [](int i, int lane) { return (engines::mma_sync.b.row(i, lane) + 8) % 16; };
  EXPECT_EQ(found(both), "");
}

/// Half the unit along k covers its tiles, too: an instruction that there is, but another.
TEST(Fragment, NumbersAreTheUnits) {
  Fragment half = engines::mma_sync;
  half.k = 8;
  EXPECT_EQ(found(half), wrong_number);
}

TEST(Fragment, ATileIsCoveredOnce) {
  const auto reason = [](const auto& plant) {
    Fragment planted = engines::mma_sync;
    plant(planted);
    return engines::why_unusable(planted, {32}).value_or("");
  };
  const std::string name = engines::mma_sync.name;
  EXPECT_EQ(reason([](Fragment& f) {
              f.a.row = [](int i, int lane) { return engines::mma_sync.a.row(i, lane + 1); };
            }),
            name + ": element 2 of lane 31 of its A, of 16 x 16, is at (16, 6), beyond it");
  EXPECT_EQ(reason([](Fragment& f) {
              f.b.column = [](int i, int lane) { return engines::mma_sync.b.column(i, lane) + 1; };
            }),
            name + ": element 0 of lane 28 of its B, of 16 x 8, is at (0, 8), beyond it");
  EXPECT_EQ(reason([](Fragment& f) {
              f.b.row = [](int i, int lane) { return engines::mma_sync.b.row(i, lane) - 1; };
            }),
            name + ": element 0 of lane 0 of its B, of 16 x 8, is at (-1, 0), beyond it");
  EXPECT_EQ(reason([](Fragment& f) { std::swap(f.c.row, f.c.column); }),
            name + ": element 2 of lane 0 of its C, of 16 x 8, is at (0, 8), beyond it");
  EXPECT_EQ(reason([](Fragment& f) {
              f.c.column = [](int i, int lane) {
                return i == 3 && lane == 31 ? 6 : engines::mma_sync.c.column(i, lane);
              };
            }),
            name + ": element 3 of lane 31 of its C, of 16 x 8, is at (15, 6), where another is");
  // A number that is wrong or was forgotten.
  EXPECT_NE(reason([](Fragment& f) { f.m = 32; }), "");
  EXPECT_NE(reason([](Fragment& f) { f.lanes = 16; }), "");
  for (int Fragment::*number : {&Fragment::m, &Fragment::n, &Fragment::k, &Fragment::lanes}) {
    EXPECT_NE(reason([&](Fragment& f) { f.*number = 0; }).find("no whole share"),
              std::string::npos);
  }
  EXPECT_EQ(reason([](Fragment& f) { f.lanes = 24; }),
            name + ": its A of 16 x 16 has no whole share for each of 24 lanes");
}

TEST(Fragment, LanesAreTheSubGroup) {
  const std::string name = engines::mma_sync.name;
  const auto reason = [](const std::vector<std::int64_t>& sizes) {
    return engines::why_unusable(engines::mma_sync, sizes).value_or("");
  };
  EXPECT_EQ(reason({}), "");
  EXPECT_EQ(reason({32}), "");
  EXPECT_EQ(reason({16}), name + " has 32 lanes, the device's sub-groups have 16");
  EXPECT_EQ(reason({64}), name + " has 32 lanes, the device's sub-groups have 64");
  EXPECT_EQ(reason({16, 32}), name + " has 32 lanes, the device's sub-groups have 16, 32");
  EXPECT_NE(engines::why_unusable(engines::mfma, {32}), std::nullopt);
}

/// A call on a device that is an H100 but for its sub-groups.
TEST(Fragment, OtherSubGroupsAreServedBySimt) {
  const auto dispatch_of = [](const std::vector<std::int64_t>& sizes) {
    Context context({.plan_for = "h100", .warning_handler = [](const std::string&) {}});
    opencl::runtime_of(context.state())->facts_for_test().sub_group_sizes = sizes;
    return linear_cross_entropy::plan(context, Pass::forward,
                                      {.x = View::host(nullptr, DType::bf16, {512, 1024}),
                                       .labels = View::host(nullptr, DType::i32, {512}),
                                       .w = View::host(nullptr, DType::bf16, {1024, 32768})},
                                      {}, {}, {}, {.implementation = {"opencl.mma", "opencl.simt"}})
        .dispatch;
  };
  for (const auto& served : {dispatch_of({}), dispatch_of({32})}) {
    EXPECT_EQ(served.implementation, "opencl.mma");
  }
  for (const std::int64_t size : {16, 64}) {
    const Dispatch other = dispatch_of({size});
    EXPECT_EQ(other.implementation, "opencl.simt");
    const auto refused =
        std::find_if(other.refused.begin(), other.refused.end(),
                     [](const auto& r) { return r.implementation == "opencl.mma"; });
    ASSERT_NE(refused, other.refused.end());
    EXPECT_EQ(refused->reason, "mma.sync.m16n8k16 has 32 lanes, the device's sub-groups have " +
                                   std::to_string(size) + "; opencl.simt serves");
  }
}

/// A group whose work-items ask for more registers than there are would not start.
TEST(Registers, OfAGroupAreNoMoreThanThereAre) {
  opencl::DeviceFacts facts;
  EXPECT_EQ(engines::register_option(facts, 128, 64), "");
  facts.architecture = "gfx942";
  EXPECT_EQ(engines::register_option(facts, 128, 64), "");
  facts.architecture = "sm_90";
  EXPECT_EQ(engines::register_option(facts, 128, 64), " -cl-nv-maxrregcount=128");
  EXPECT_EQ(engines::register_option(facts, 300, 128), " -cl-nv-maxrregcount=255");
  EXPECT_EQ(engines::register_option(facts, 176, 1024), " -cl-nv-maxrregcount=64");
  // Another driver of such a device.
  facts.extensions = "cl_khr_fp64 cl_nv_device_attribute_query";
  EXPECT_EQ(engines::register_option(facts, 128, 64), "");
  facts.extensions += " cl_nv_compiler_options";
  EXPECT_EQ(engines::register_option(facts, 128, 64), " -cl-nv-maxrregcount=128");
}

/// A filter leaves out steps of products, for which the largest tile has no registers left.
TEST(Registers, OfFilteredGradientsAreThoseOfASmallerTile) {
  Context context({.plan_for = "h100", .warning_handler = [](const std::string&) {}});
  const auto columns_of = [&](float eps) {
    const View weight = View::host(nullptr, DType::bf16, {1024, 32768});
    const auto plan = linear_cross_entropy::plan(
        context, Pass::value_and_grad,
        {.x = View::host(nullptr, DType::bf16, {512, 1024}),
         .labels = View::host(nullptr, DType::i32, {512}),
         .w = weight},
        {}, {.grad_w = MutableView::host(nullptr, DType::bf16, {1024, 32768})}, {},
        {.implementation = "opencl.mma", .gradient_filter_eps = eps});
    EXPECT_EQ(plan.dispatch.implementation, "opencl.mma");
    for (const auto& knob : plan.dispatch.knobs) {
      if (knob.name == "tile_columns") return knob.value;
    }
    return std::int64_t{0};
  };
  EXPECT_EQ(columns_of(0.0f), 256);
  EXPECT_EQ(columns_of(0x1p-10f), 128);
}

}  // namespace
}  // namespace tessera::test
