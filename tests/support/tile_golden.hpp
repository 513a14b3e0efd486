// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/tile_fixture.hpp"

// Inputs and results of tests/tile_goldens/make_programs.py.
namespace tessera::tile::test {

inline const char* name_of_mode(const testing::TestParamInfo<DmaMode>& mode) {
  return mode.param == DmaMode::eager ? "Eager" : "OnWait";
}

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
