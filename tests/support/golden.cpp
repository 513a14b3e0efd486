// SPDX-License-Identifier: Apache-2.0
#include "tests/support/golden.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace tessera::test {
namespace {

struct Array {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};

template <class T>
void widen(const std::string& bytes, std::size_t begin, std::vector<double>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    T element;
    std::memcpy(&element, bytes.data() + begin + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(element);
  }
}

/// What numpy.save writes for little-endian arrays in C order: format 1.0, f4, f8 or i8.
Array read_npy(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const auto fail = [&](const char* why) { return std::runtime_error(path.string() + ": " + why); };
  // Magic (6 bytes), version (2), header length (2, little-endian), header.
  if (bytes.size() < 10 || bytes.compare(0, 8, std::string("\x93NUMPY\x01\x00", 8)) != 0) {
    throw fail("not an .npy file of format 1.0");
  }
  const std::size_t length =
      static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  const std::string header = bytes.substr(10, length);
  if (header.find("'fortran_order': False") == std::string::npos) throw fail("not in C order");
  Array array;
  std::size_t count = 1;
  for (auto at = header.find("'shape': (") + 10; header[at] != ')';) {
    std::size_t digits = 0;
    array.shape.push_back(std::stoll(header.substr(at), &digits));
    count *= static_cast<std::size_t>(array.shape.back());
    at = header.find_first_of("0123456789)", at + digits);
  }
  array.values.resize(count);
  const std::size_t begin = 10 + length;
  const auto has_type = [&](const char* type, std::size_t size) {
    return header.find(type) != std::string::npos && bytes.size() == begin + count * size;
  };
  if (has_type("'<f4'", 4)) {
    widen<float>(bytes, begin, array.values);
  } else if (has_type("'<f8'", 8)) {
    widen<double>(bytes, begin, array.values);
  } else if (has_type("'<i8'", 8)) {
    widen<std::int64_t>(bytes, begin, array.values);
  } else {
    throw fail("neither f4, f8 nor i8, or truncated");
  }
  return array;
}

LossOptions read_options(const std::filesystem::path& path) {
  const auto json = nlohmann::json::parse(std::ifstream(path));
  LossOptions options;
  for (const auto& [key, value] : json.items()) {
    if (key == "logsumexp_weight") {
      options.logsumexp_weight = value.get<float>();
    } else if (key == "logit_scale") {
      options.logit_scale = value.get<float>();
    } else if (key == "logit_soft_cap") {
      options.logit_soft_cap = value.get<float>();
    } else if (key == "label_smoothing") {
      options.label_smoothing = value.get<float>();
    } else if (key == "reduction" && value == "sum") {
      options.reduction = Reduction::sum;
    } else if (key == "reduction" && value == "none") {
      options.reduction = Reduction::none;
    } else {
      throw std::runtime_error(path.string() + ": unknown option " + key);
    }
  }
  return options;
}

}  // namespace

Golden read_golden(const std::string& folder) {
  Golden golden;
  golden.name = std::filesystem::path(folder).filename().string();
  oracle::Problem& p = golden.problem;
  p.options = read_options(std::filesystem::path(folder) / "options.json");
  p.h = -1;  // until an x is found: softmax_cross_entropy
  const std::map<std::string, std::vector<double>*> inputs = {
      {"x", &p.x},         {"w", &p.w},           {"logits", &p.logits},
      {"bias", &p.bias},   {"weight", &p.weight}, {"class_weight", &p.class_weight},
      {"dloss", &p.dloss}, {"dlse", &p.dlse}};
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".npy") continue;
    const std::string key = entry.path().stem().string();
    Array array = read_npy(entry.path());
    if (key == "x") p.h = array.shape.at(1);
    if (key == "w" || key == "logits") p.v = array.shape.at(1);
    if (key == "labels") {
      p.b = array.shape.at(0);
      p.labels.assign(array.values.begin(), array.values.end());
    } else if (auto input = inputs.find(key); input != inputs.end()) {
      *input->second = std::move(array.values);
    } else {
      golden.expected[key] = std::move(array.values);
    }
  }
  return golden;
}

std::vector<std::string> golden_folders(const std::string& root) {
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (entry.is_directory()) folders.push_back(entry.path().string());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace tessera::test
