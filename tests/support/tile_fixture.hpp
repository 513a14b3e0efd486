// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <numeric>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/tile/call.hpp"

// What the tests of the tile machine share.
namespace tessera::tile::test {

inline std::vector<float> iota(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

/// Both DMA modes, and several orders of the cores: `body` takes options, or a machine that has
/// them.
template <class Body>
void for_each_order(MachineOptions options, Body body) {
  for (const DmaMode dma : {DmaMode::eager, DmaMode::on_wait}) {
    for (const std::uint64_t seed : {0, 1, 2, 3}) {
      SCOPED_TRACE((dma == DmaMode::eager ? "eager, seed " : "on wait, seed ") +
                   std::to_string(seed));
      options.dma = dma;
      options.seed = seed;
      if constexpr (std::is_invocable_v<Body, Machine&>) {
        Machine machine(options);
        body(machine);
      } else {
        body(options);
      }
    }
  }
}
template <class Body>
void for_each_order(Body body) {
  for_each_order({}, body);
}

/// `body` throws a TileError of this kind whose message has all of `parts`.
template <class Body>
void expect_error(ErrorKind kind, std::initializer_list<const char*> parts, Body body) {
  try {
    body();
    ADD_FAILURE() << "no error of kind " << to_string(kind);
  } catch (const TileError& error) {
    EXPECT_STREQ(to_string(error.kind()), to_string(kind)) << error.what();
    for (const char* part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "no \"" << part << "\" in: " << error.what();
    }
  }
}

/// kernel(), whose body stands behind its scratch here.
template <class... Parts>
auto launch(Machine& machine, const char* name, const Mesh& mesh, const Parts&... parts) {
  const auto all_parts = std::tie(parts...);
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    return kernel(machine, name, mesh, std::get<sizeof...(i)>(all_parts),
                  std::get<i>(all_parts)...);
  }
  (std::make_index_sequence<sizeof...(parts) - 1>());
}
/// The same on one core.
template <class... Parts>
auto on_core(Machine& machine, const char* name, const Parts&... parts) {
  return launch(machine, name, tensorcore_mesh(machine, 1), parts...);
}
/// At once and without arrays.
template <class M, class... Parts>
void in_kernel(M&& machine, const Parts&... parts) {
  on_core(machine, "test", parts...)();
}

/// An array in the host's memory.
template <class T>
struct Tensor {
  Shape shape;
  std::vector<T> data;

  explicit Tensor(Shape extents, std::vector<T> values = {})
      : shape(std::move(extents)), data(std::move(values)) {
    data.resize(static_cast<std::size_t>(
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>())));
  }
  Array<T> in(Machine& machine, const std::string& name = "array", int device = 0) {
    return machine.array<T>(name, MutableView::host(data.data(), dtype_of<T>::value, shape),
                            device);
  }
  /// An array on each device, cut along the first dimension.
  std::vector<Array<T>> per_device(Machine& machine, const std::string& name = "array") {
    const Shape extents(shape.begin() + 1, shape.end());
    const auto size = static_cast<std::int64_t>(data.size()) / shape[0];
    std::vector<Array<T>> arrays;
    for (int device = 0; device < shape[0]; ++device) {
      auto* begin = data.data() + device * size;
      arrays.push_back(
          machine.array<T>(name, MutableView::host(begin, dtype_of<T>::value, extents), device));
    }
    return arrays;
  }
  Tensor part(std::size_t first, std::size_t count, Shape extents) const {
    const auto begin = data.begin() + static_cast<std::ptrdiff_t>(first);
    return Tensor(std::move(extents),
                  std::vector<T>(begin, begin + static_cast<std::ptrdiff_t>(count)));
  }
  /// Some columns of the first rows.
  Tensor corner(std::int64_t rows, std::int64_t first, std::int64_t end) const {
    Tensor found({rows, end - first});
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = first; j < end; ++j)
        found.data[static_cast<std::size_t>(i * (end - first) + j - first)] =
            data[static_cast<std::size_t>(i * shape[1] + j)];
    }
    return found;
  }
};

/// ref[i, j] = f(i, j), one element at a time.
template <class T, class F>
void set(const Ref<T>& ref, F f) {
  const Shape e = ref.extents();
  for (std::int64_t i = 0; i < e[0]; ++i) {
    for (std::int64_t j = 0; j < e[1]; ++j) {
      if constexpr (std::is_integral_v<T>) {
        ref.store(static_cast<T>(static_cast<std::int64_t>(f(i, j))), i, j);
      } else {
        ref.store(T(static_cast<float>(f(i, j))), i, j);
      }
    }
  }
}

/// out = x + 1, in a kernel or through blocks.
struct AddOne {
  std::int64_t rows = 8, columns = 128;
  std::vector<float> x = iota(static_cast<std::size_t>(rows * columns));
  std::vector<float> out = std::vector<float>(x.size(), -1.0f);
  Array<float> in(Machine& machine) const {
    return machine.array<float>("x", View::host(x.data(), DType::f32, {rows, columns}));
  }
  Array<float> result(Machine& machine) {
    return machine.array<float>("out", MutableView::host(out.data(), DType::f32, {rows, columns}));
  }
  static void body(const Ref<float>& from, const Ref<float>& to) {
    set(to, [&](auto i, auto j) { return from.load(i, j) + 1; });
  }
  /// Called with blocks of x and of out.
  void run(Machine& machine, const CallSpec& spec) {
    const auto from = in(machine), to = result(machine);
    call(machine, "add_one", spec, body)(from, to);
  }
  void check() const {
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], x[i] + 1) << i;
  }
};
/// The same blocks of one input and of one output.
inline CallSpec same_blocks(Shape grid, const BlockSpec& block,
                            std::vector<Semantics> semantics = {}) {
  return {.grid = std::move(grid), .in = {block}, .out = {block}, .semantics = semantics};
}

/// Blocks in the order of the grid's first dimension, or of both.
inline BlockIndex by_row(const GridPoint& g) { return ix(g[0], 0); }
inline BlockIndex by_row_and_column(const GridPoint& g) { return ix(g[0], g[1]); }

}  // namespace tessera::tile::test
