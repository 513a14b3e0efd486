// SPDX-License-Identifier: Apache-2.0
// Reductions on the tile machine against plain loops in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/tile_values.hpp"

namespace tessera::tile {
namespace {

using test::expect_error;
using test::get;
using test::identical;
using test::in_kernel;
using test::Pattern;
using test::set;
using test::Values;
using test::without_races;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// One line of values along an axis.
struct Line {
  std::vector<double> x{};
  double sum() const {
    double s = 0;
    for (const double v : x) s += v;
    return s;
  }
  double magnitude() const {
    double s = 0;
    for (const double v : x) s += std::abs(v);
    return s;
  }
  /// As numpy: the first NaN, else the first of the largest (`sign` 1) or smallest (-1).
  std::size_t extreme(double sign) const {
    std::size_t best = 0;
    for (std::size_t i = 1; i < x.size(); ++i) {
      if (std::isnan(x[best])) break;
      if (std::isnan(x[i]) || sign * x[i] > sign * x[best]) best = i;
    }
    return best;
  }
};
Line line_of(const Values& values, int axis, std::int64_t at) {
  Line line;
  const std::int64_t n = axis == 0 ? values.rows : values.columns;
  for (std::int64_t i = 0; i < n; ++i) line.x.push_back(axis == 0 ? values(i, at) : values(at, i));
  return line;
}

const Shape sizes[] = {{8, 128}, {5, 7}, {1, 1}, {1, 600}, {600, 1}, {33, 515}, {17, 16}, {2, 273}};

/// Every reduction of a slice along both axes, with the axis kept and removed.
template <class T, class F>
void check(F value, double relative) {
  for (const Shape& size : sizes) {
    for (const int axis : {0, 1}) {
      for (const bool keep : {false, true}) {
        SCOPED_TRACE(testing::Message() << size[0] << " x " << size[1] << ", axis " << axis);
        Machine machine = without_races();
        const std::int64_t left = size[static_cast<std::size_t>(1 - axis)];
        in_kernel(
            machine,
            [&](Ref<T> whole, Ref<T> result, Ref<std::int32_t> index) {
              const auto x = whole.at(ds(1, size[0]), ds(2, size[1]));
              set(x, value);
              const Values values = get(x);
              const auto each = [&](auto reduce, const auto& target, auto expected) {
                // A row or a column of a larger ref, or the same without its dimension.
                const auto out =
                    axis == 0 ? target.at(ds(1, 1), ds(0, left)) : target.at(ds(0, left), ds(1, 1));
                if (keep) {
                  reduce(out, x, axis);
                } else {
                  reduce(axis == 0 ? target.at(1, ds(0, left)) : target.at(ds(0, left), 1), x,
                         axis - 2);
                }
                const Values got = get(out);
                for (std::int64_t i = 0; i < left; ++i) {
                  expected(line_of(values, axis, i), got.data[static_cast<std::size_t>(i)]);
                }
              };
              each([](auto... a) { reduce_sum(a...); }, result,
                   [&](const Line& line, double got) {
                     const double sum = line.sum();
                     EXPECT_TRUE(std::isfinite(sum)
                                     ? std::abs(got - sum) <= relative * line.magnitude()
                                     : identical(got, sum))
                         << got << " for " << sum;
                   });
              each([](auto... a) { reduce_max(a...); }, result,
                   [](const Line& line, double got) {
                     EXPECT_TRUE(identical(got, line.x[line.extreme(1)])) << got;
                   });
              each([](auto... a) { reduce_min(a...); }, result,
                   [](const Line& line, double got) {
                     EXPECT_TRUE(identical(got, line.x[line.extreme(-1)])) << got;
                   });
              each([](auto... a) { argmax(a...); }, index,
                   [](const Line& line, double got) {
                     EXPECT_EQ(got, static_cast<double>(line.extreme(1)));
                   });
              each([](auto... a) { argmin(a...); }, index,
                   [](const Line& line, double got) {
                     EXPECT_EQ(got, static_cast<double>(line.extreme(-1)));
                   });
            },
            Vmem<T>{{size[0] + 2, size[1] + 3}}, Vmem<T>{{left + 2, left + 2}},
            Vmem<std::int32_t>{{left + 2, left + 2}});
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
  check<float>(
      [](std::int64_t i, std::int64_t j) { return static_cast<double>((i * 3 + j * 5) % 4); },
      1e-5);
}

TEST(TileReduce, NaNAndInfinities) {
  // A NaN at another place in every line, some with two, infinities in others.
  check<float>(
      [](std::int64_t i, std::int64_t j) -> double {
        if ((i + 3 * j) % 11 == 5) return nan;
        if ((i + j) % 13 == 2) return infinity;
        return Pattern{1}(i, j);
      },
      1e-5);
  check<float>(
      [](std::int64_t i, std::int64_t j) -> double {
        return (i + j) % 2 == 0 ? -infinity : (i * j) % 7 == 3 ? infinity : Pattern{1}(i, j);
      },
      1e-5);
  check<float>([](std::int64_t, std::int64_t) -> double { return -infinity; }, 1e-5);
  check<bf16>([](std::int64_t i, std::int64_t j) -> double { return i == 4 && j > 4 ? nan : 1.0; },
              0x1p-8);
}

TEST(TileReduce, Integers) {
  const auto small = [](std::int64_t i, std::int64_t j) { return Pattern{1}(i, j) * 1000; };
  check<std::int32_t>(small, 0);
  check<std::uint32_t>([&](std::int64_t i, std::int64_t j) { return std::abs(small(i, j)); }, 0);
  Machine machine;
  in_kernel(
      machine,
      [](Ref<std::int8_t> x, Ref<std::int32_t> out) {
        fill(x, -128);
        reduce_sum(out, x, 1);
        EXPECT_EQ(out.load(7), -128 * 300);
        reduce_max(out, x, 1);
        EXPECT_EQ(out.load(0), -128);
      },
      Vmem<std::int8_t>{{8, 300}}, Vmem<std::int32_t>{{8}});
}

TEST(TileReduce, OfAFunction) {
  for (const Shape& size : sizes) {
    Machine machine = without_races();
    in_kernel(
        machine,
        [&](Ref<float> z, Ref<float> max, Ref<float> sum, Ref<float> columns) {
          set(z, Pattern{4});
          reduce_max(max, z, 1);
          reduce_sum(
              sum, 1, {1, 1}, [](float x, float m) { return exp(x - m); }, z, max);
          const Values x = get(z), total = get(sum);
          for (std::int64_t i = 0; i < size[0]; ++i) {
            const Line line = line_of(x, 1, i);
            double expected = 0;
            for (const double v : line.x) expected += std::exp(v - line.x[line.extreme(1)]);
            EXPECT_NEAR(total(i, 0), expected, 1e-5 * expected);
          }
          // The result over what it is made of.
          reduce_max(
              max, 1, {}, [](float v, float m, float s) { return s * (v - m); }, z, max, 2.0f);
          for (std::int64_t i = 0; i < size[0]; ++i) EXPECT_EQ(max.load(i, 0), 0.0f);
          reduce_min(
              columns, 0, {}, [](float v) { return -v; }, z);
          for (std::int64_t j = 0; j < size[1]; ++j) {
            const Line line = line_of(x, 0, j);
            EXPECT_EQ(columns.load(j), -line.x[line.extreme(1)]);
          }
        },
        Vmem<float>{size}, Vmem<float>{{size[0], 1}}, Vmem<float>{{size[0], 1}},
        Vmem<float>{{size[1]}});
  }
}

TEST(TileReduce, MoreDimensions) {
  Machine machine = without_races();
  in_kernel(
      machine,
      [](Ref<float> x, Ref<float> a, Ref<float> b, Ref<float> c, Ref<float> v, Ref<float> one) {
        for (std::int64_t i = 0; i < 3; ++i) {
          for (std::int64_t j = 0; j < 4; ++j) {
            for (std::int64_t k = 0; k < 5; ++k)
              x.store(static_cast<float>(100 * i + 10 * j + k), i, j, k);
          }
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
      },
      Vmem<float>{{3, 4, 5}}, Vmem<float>{{4, 5}}, Vmem<float>{{3, 1, 5}}, Vmem<float>{{3, 4}},
      Vmem<float>{{2000}}, Vmem<float>{{1}});
}

TEST(TileReduce, ThreadsDoNotChangeABit) {
  for (const int axis : {0, 1}) {
    std::vector<Values> results;
    for (const int threads : {1, 2, 5}) {
      Machine machine = without_races(threads);
      in_kernel(
          machine,
          [&](Ref<float> x, Ref<float> out) {
            set(x, Pattern{1, true});
            reduce_sum(axis == 0 ? out.at(0, ds(0, 1000)) : out.at(0, ds(0, 300)), x, axis);
            results.push_back(get(out));
          },
          Vmem<float>{{300, 1000}}, Vmem<float>{{1, 1000}});
    }
    for (std::size_t i = 0; i < (axis == 0 ? 1000u : 300u); ++i) {
      EXPECT_EQ(results[0].data[i], results[1].data[i]);
      EXPECT_EQ(results[0].data[i], results[2].data[i]);
    }
  }
}

TEST(TileReduce, Charges) {
  for (const bool dry : {false, true}) {
    Machine machine({.dry_run = dry});
    const auto work = [&](auto body) {
      machine.reset_report();
      in_kernel(machine, body, Vmem<float>{{9, 130}}, Vmem<float>{{9}}, Vmem<float>{{130}},
                Vmem<std::int32_t>{{9, 1}});
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
      in_kernel(machine, body, Vmem<float>{{8, 128}, "x"}, Vmem<float>{{8}, "out"});
    });
  };
  refuse({"reduce_sum", "axis 2 is none of [8, 128]"},
         [](auto x, auto out) { reduce_sum(out, x, 2); });
  refuse(
      {"reduce_max", "[8, 128] along axis 0 gives [1, 128] or [128]", "'out' [8] f32 is neither"},
      [](auto x, auto out) { reduce_max(out, x, 0); });
  refuse({"argmax", "axis 1 of [8, 0] has no elements"},
         [](auto x, auto out) { argmax(out, x.at(all, ds(0, 0)), 1); });
  Machine machine;
  in_kernel(
      machine,
      [](Ref<float> x, Ref<float> out) {
        reduce_sum(out, x.at(all, ds(0, 0)), 1);
        EXPECT_EQ(out.load(3), 0.0f);
        reduce_max(out.at(ds(0, 0)), x.at(ds(0, 0)), 1);
        reduce_sum(out, x, 1);  // scratch that was never written
        EXPECT_TRUE(std::isnan(out.load(3)));
      },
      Vmem<float>{{8, 128}}, Vmem<float>{{8}});
}

}  // namespace
}  // namespace tessera::tile
