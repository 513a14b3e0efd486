// SPDX-License-Identifier: Apache-2.0
// Reductions on the tile machine against plain loops in double.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/tile_values.hpp"

namespace tessera::tile {
namespace {

using namespace test;

/// Values along an axis.
using Line = std::vector<double>;
Line line_of(const Values& values, int axis, std::int64_t at) {
  Line line(static_cast<std::size_t>(axis == 0 ? values.rows : values.columns));
  std::int64_t i = 0;
  for (double& x : line) x = axis == 0 ? values(i++, at) : values(at, i++);
  return line;
}
Near sum_of(const Line& line, double relative) {
  double sum = 0, magnitude = 0;
  for (const double x : line) sum += x, magnitude += std::abs(x);
  return {sum, relative * magnitude};
}
/// As numpy: the first NaN, else the first of the largest (`sign` 1) or smallest (-1).
std::size_t extreme(const Line& x, double sign) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < x.size() && !std::isnan(x[best]); ++i) {
    if (std::isnan(x[i]) || sign * x[i] > sign * x[best]) best = i;
  }
  return best;
}

const Shape sizes[] = {{8, 128}, {5, 7}, {1, 1}, {1, 600}, {600, 1}, {33, 515}, {17, 16}, {2, 273}};

/// Every reduction of a slice along both axes, with the axis kept and removed.
template <class T, class F>
void check(F value, double relative) {
  for (const Shape& size : sizes) {
    for (const int axis : {0, 1}) {
      for (const bool keep : {false, true}) {
        SCOPED_TRACE(testing::Message() << size[0] << " x " << size[1] << ", axis " << axis);
        const std::int64_t left = size[static_cast<std::size_t>(1 - axis)];
        in_kernel(without_races(), Vmem<T>{{size[0] + 2, size[1] + 3}},
                  Vmem<T>{{left + 2, left + 2}}, Vmem<std::int32_t>{{left + 2, left + 2}},
                  [&](Ref<T> whole, Ref<T> result, Ref<std::int32_t> index) {
                    const auto x = whole.at(ds(1, size[0]), ds(2, size[1]));
                    set(x, value);
                    const Values values = get(x);
                    const auto each = [&](auto reduce, const auto& target, auto expected) {
                      // A row or a column of a larger ref, or the same without its dimension.
                      const auto out = axis == 0 ? target.at(ds(1, 1), ds(0, left))
                                                 : target.at(ds(0, left), ds(1, 1));
                      if (keep) {
                        reduce(out, x, axis);
                      } else {
                        reduce(axis == 0 ? target.at(1, ds(0, left)) : target.at(ds(0, left), 1), x,
                               axis - 2);
                      }
                      expect_values(get(out), [&](auto i, auto j) {
                        return expected(line_of(values, axis, i + j));
                      });
                    };
                    each([](auto... a) { reduce_sum(a...); }, result,
                         [&](const Line& line) { return sum_of(line, relative); });
                    each([](auto... a) { reduce_max(a...); }, result,
                         [](const Line& line) { return line[extreme(line, 1)]; });
                    each([](auto... a) { reduce_min(a...); }, result,
                         [](const Line& line) { return line[extreme(line, -1)]; });
                    each([](auto... a) { argmax(a...); }, index,
                         [](const Line& line) { return extreme(line, 1); });
                    each([](auto... a) { argmin(a...); }, index,
                         [](const Line& line) { return extreme(line, -1); });
                  });
      }
    }
  }
}

TEST(TileReduce, Floats) {
  // A sum of 600 f32, half a unit in the last place each, at worst.
  check<float>(Pattern{1, true}, 600 * 0x1p-24);
  // bf16 is summed in f32 and rounded once.
  check<bf16>(Pattern{2, true}, 0x1p-8);
  check<f16>(Pattern{3}, 0x1p-10);
}

TEST(TileReduce, ManyEqualOnes) {
  check<float>([](auto i, auto j) { return (i * 3 + j * 5) % 4; }, 1e-5);
}

TEST(TileReduce, NaNAndInfinities) {
  // A NaN at another place in every line, some with two, infinities in others.
  check<float>(
      [](auto i, auto j) -> double {
        if ((i + 3 * j) % 11 == 5) return nan;
        if ((i + j) % 13 == 2) return infinity;
        return Pattern{1}(i, j);
      },
      1e-5);
  check<float>(
      [](auto i, auto j) {
        return (i + j) % 2 == 0 ? -infinity : (i * j) % 7 == 3 ? infinity : Pattern{1}(i, j);
      },
      1e-5);
  check<float>([](auto, auto) { return -infinity; }, 1e-5);
  check<bf16>([](auto i, auto j) { return i == 4 && j > 4 ? nan : 1; }, 0x1p-8);
}

TEST(TileReduce, Integers) {
  const auto small = [](auto i, auto j) { return Pattern{1}(i, j) * 1000; };
  check<std::int32_t>(small, 0);
  check<std::uint32_t>([&](auto i, auto j) { return std::abs(small(i, j)); }, 0);
  in_kernel(Machine(), Vmem<std::int8_t>{{8, 300}}, Vmem<std::int32_t>{{8}},
            [](Ref<std::int8_t> x, Ref<std::int32_t> out) {
              fill(x, -128);
              reduce_sum(out, x, 1);
              EXPECT_EQ(out.load(7), -128 * 300);
              reduce_max(out, x, 1);
              EXPECT_EQ(out.load(0), -128);
            });
}

TEST(TileReduce, OfAFunction) {
  for (const Shape& size : sizes) {
    in_kernel(without_races(), Vmem<float>{size}, Vmem<float>{{size[0], 1}},
              Vmem<float>{{size[0], 1}}, Vmem<float>{{size[1]}},
              [&](Ref<float> z, Ref<float> max, Ref<float> sum, Ref<float> columns) {
                set(z, Pattern{4});
                reduce_max(max, z, 1);
                reduce_sum(
                    sum, 1, {1, 1}, [](float x, float m) { return exp(x - m); }, z, max);
                const Values x = get(z);
                expect_values(get(sum), [&](auto i, auto) {
                  Line line = line_of(x, 1, i);
                  const double largest = line[extreme(line, 1)];
                  for (double& v : line) v = std::exp(v - largest);
                  return sum_of(line, 1e-5);
                });
                // The result over what it is made of.
                reduce_max(
                    max, 1, {}, [](float v, float m, float s) { return s * (v - m); }, z, max,
                    2.0f);
                expect_values(get(max), [](auto, auto) { return 0; });
                reduce_min(
                    columns, 0, {}, [](float v) { return -v; }, z);
                for (std::int64_t j = 0; j < size[1]; ++j) {
                  const Line line = line_of(x, 0, j);
                  EXPECT_EQ(columns.load(j), -line[extreme(line, 1)]);
                }
              });
  }
}

TEST(TileReduce, MoreDimensions) {
  in_kernel(
      without_races(), Vmem<float>{{3, 4, 5}}, Vmem<float>{{4, 5}}, Vmem<float>{{3, 1, 5}},
      Vmem<float>{{3, 4}}, Vmem<float>{{2000}}, Vmem<float>{{1}},
      [](Ref<float> x, Ref<float> a, Ref<float> b, Ref<float> c, Ref<float> v, Ref<float> one) {
        for (const int i : {0, 1, 2}) {
          set(x.at(i, all, all), [&](auto j, auto k) { return 100 * i + 10 * j + k; });
        }
        reduce_sum(a, x, 0);
        EXPECT_EQ(a.load(3, 4), 300.0f + 3 * 34);
        reduce_max(b, x, 1);
        EXPECT_EQ(b.load(2, 0, 4), 234.0f);
        reduce_min(c, x, -1);
        EXPECT_EQ(c.load(1, 3), 130.0f);
        iota(v, 0);
        reduce_sum(one, v, 0);
        EXPECT_EQ(one.load(0), 1999.0f * 1000);
        reduce_sum(v.at(7), v, 0);  // its own element
        EXPECT_EQ(v.load(7), 1999.0f * 1000);
      });
}

TEST(TileReduce, ThreadsDoNotChangeABit) {
  for (const int axis : {0, 1}) {
    same_on_threads([&](Machine& machine, Values& result) {
      in_kernel(machine, Vmem<float>{{300, 1000}}, Vmem<float>{{1, axis == 0 ? 1000 : 300}},
                [&](Ref<float> x, Ref<float> out) {
                  set(x, Pattern{1, true});
                  reduce_sum(out.at(0), x, axis);
                  result = get(out);
                });
    });
  }
}

TEST(TileReduce, Charges) {
  for (const bool dry : {false, true}) {
    Machine machine({.dry_run = dry});
    const auto work = [&](auto body) {
      machine.reset_report();
      in_kernel(machine, Vmem<float>{{9, 130}}, Vmem<float>{{9}}, Vmem<float>{{130}},
                Vmem<std::int32_t>{{9, 1}}, body);
      return machine.report().work;
    };
    const double padded = 16 * 256;
    // Along the lanes: registers one with the other, then what is left across the lanes.
    Work done = work([](auto x, auto rows, auto, auto) { reduce_sum(rows, x, 1); });
    EXPECT_EQ(done.vpu_ops, padded);
    EXPECT_EQ(done.xlu_ops, 16 * 128);
    // Along the sublanes: three halvings of one register's rows.
    done = work([](auto x, auto, auto columns, auto) { reduce_max(columns, x, 0); });
    EXPECT_EQ(done.vpu_ops, padded + 3 * 8 * 256);
    EXPECT_EQ(done.xlu_ops, 0);
    done = work([](auto x, auto, auto, auto index) { argmax(index, x, 1); });
    EXPECT_EQ(done.vpu_ops, 3 * padded);
    EXPECT_EQ(done.xlu_ops, 2 * 16 * 128);
    done = work([](auto x, auto rows, auto, auto) {
      reduce_sum(
          rows, 1, {2, 1}, [](float a) { return exp(a); }, x);
    });
    EXPECT_EQ(done.vpu_ops, 3 * padded);
    EXPECT_EQ(done.eup_ops, padded);
  }
}

TEST(TileReduce, Refused) {
  const auto refuse = [](std::initializer_list<const char*> parts, auto body) {
    Machine machine;
    expect_error(ErrorKind::usage, parts, [&] {
      in_kernel(machine, Vmem<float>{{8, 128}, "x"}, Vmem<float>{{8}, "out"}, body);
    });
  };
  refuse({"reduce_sum", "axis 2 is none of [8, 128]"},
         [](auto x, auto out) { reduce_sum(out, x, 2); });
  refuse(
      {"reduce_max", "[8, 128] along axis 0 gives [1, 128] or [128]", "'out' [8] f32 is neither"},
      [](auto x, auto out) { reduce_max(out, x, 0); });
  refuse({"argmax", "axis 1 of [8, 0] has no elements"},
         [](auto x, auto out) { argmax(out, x.at(all, ds(0, 0)), 1); });
  in_kernel(Machine(), Vmem<float>{{8, 128}}, Vmem<float>{{8}}, [](Ref<float> x, Ref<float> out) {
    reduce_sum(out, x.at(all, ds(0, 0)), 1);
    EXPECT_EQ(out.load(3), 0.0f);
    reduce_max(out.at(ds(0, 0)), x.at(ds(0, 0)), 1);
    reduce_sum(out, x, 1);  // scratch that was never written
    EXPECT_TRUE(std::isnan(out.load(3)));
  });
}

}  // namespace
}  // namespace tessera::tile
