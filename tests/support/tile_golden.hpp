// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/tile/machine.hpp"

// Inputs and results of tests/tile_goldens/make_programs.py.
namespace tessera::tile::test {

inline std::size_t count_of(const Shape& shape) {
  std::size_t count = 1;
  for (const auto extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

/// An array in the host's memory.
template <class T>
struct Tensor {
  Shape shape;
  std::vector<T> data;

  explicit Tensor(Shape extents, std::vector<T> values = {})
      : shape(std::move(extents)), data(std::move(values)) {
    data.resize(count_of(shape));
  }
  Array<T> in(Machine& machine, const char* name = "array", int device = 0) {
    return machine.array<T>(name, MutableView::host(data.data(), dtype_of<T>::value, shape),
                            device);
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

/// make_programs.py's pattern: small integers that every type holds exactly.
template <class T = float>
Tensor<T> pattern(Shape shape, std::int64_t salt) {
  Tensor<T> tensor(std::move(shape));
  for (std::size_t n = 0; n < tensor.data.size(); ++n) {
    const auto i = static_cast<std::int64_t>(n);
    const auto value = (37 * i + 11 * (i / 64) + 5 * salt) % 17 - 8;
    if constexpr (std::is_integral_v<T>) {
      tensor.data[n] = static_cast<T>(value);
    } else {
      tensor.data[n] = T(static_cast<float>(value));
    }
  }
  return tensor;
}

/// The results of one program.
class Golden {
 public:
  explicit Golden(const std::string& program) {
    std::ifstream stream(std::string(TESSERA_GOLDENS "/programs/").append(program) + ".json");
    results_ = nlohmann::json::parse(stream)["results"];
  }

  /// Values, or sums and samples, are the same to the last bit; null is NaN.
  template <class T>
  void expect(const std::string& name, const Tensor<T>& tensor) const {
    const auto& golden = results_.at(name);
    ASSERT_EQ(golden["shape"].get<Shape>(), tensor.shape) << name;
    const auto& data = tensor.data;
    const auto value = [&](std::size_t i) {
      return static_cast<double>(static_cast<float>(data[i]));
    };
    if (golden.contains("values")) {
      for (std::size_t i = 0; i < data.size(); ++i) same(golden["values"][i], value(i), name, i);
      return;
    }
    const auto columns = static_cast<std::size_t>(tensor.shape.back());
    std::vector<double> row_sums(data.size() / columns), column_sums(columns);
    for (std::size_t i = 0; i < data.size(); ++i) {
      row_sums[i / columns] += value(i);
      column_sums[i % columns] += value(i);
      if (i % 97 == 0) same(golden["every_97th"][i / 97], value(i), name, i);
    }
    for (std::size_t i = 0; i < row_sums.size(); ++i)
      same(golden["row_sums"][i], row_sums[i], name + " row sum", i);
    for (std::size_t j = 0; j < columns; ++j)
      same(golden["column_sums"][j], column_sums[j], name + " column sum", j);
  }

 private:
  static void same(const nlohmann::json& golden, double value, const std::string& name,
                   std::size_t at) {
    if (golden.is_null()) {
      EXPECT_TRUE(std::isnan(value)) << name << " " << at;
    } else {
      EXPECT_EQ(golden.get<double>(), value) << name << " " << at;
    }
  }
  nlohmann::json results_;
};

}  // namespace tessera::tile::test
