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

/// What a teacher's option is in a problem; nullptr: it is none.
double oracle::Distillation::*number_of(const std::string& option) {
  using D = oracle::Distillation;
  static const std::map<std::string, double D::*> all = {
      {"temperature", &D::temperature},
      {"alpha", &D::alpha},
      {"beta", &D::beta},
      {"teacher_logit_scale", &D::logit_scale},
      {"teacher_logit_soft_cap", &D::logit_soft_cap}};
  const auto found = all.find(option);
  return found == all.end() ? nullptr : found->second;
}

oracle::Divergence divergence_of(const std::string& name) {
  if (name == "reverse_kl") return oracle::Divergence::reverse_kl;
  return name == "jsd" ? oracle::Divergence::jsd : oracle::Divergence::forward_kl;
}

LossOptions read_options(const std::filesystem::path& path, oracle::Distillation& teacher) {
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
    } else if (const auto number = number_of(key)) {
      teacher.*number = static_cast<double>(value.get<float>());
    } else if (key == "divergence") {
      teacher.divergence = divergence_of(value.get<std::string>());
    } else {
      throw std::runtime_error(path.string() + ": unknown option " + key);
    }
  }
  return options;
}

/// Of the operators that have all they must, the one that takes the most.
const TestOperator& operator_of(const std::string& folder,
                                const std::map<std::string, Array>& arrays) {
  const TestOperator* best = nullptr;
  std::size_t most = 0;
  for (const TestOperator* op : test_operators()) {
    std::size_t count = 0;
    bool whole = true;
    for (const operators::Input& input : op->inputs()) {
      count += arrays.count(input.name);
      const bool needed = input.reads == Reads::always && input.types != ElementTypes::integer;
      whole = whole && (arrays.contains(input.name) || !needed);
    }
    if (!whole || count <= most) continue;
    most = count;
    best = op;
  }
  if (best == nullptr) throw std::runtime_error(folder + " has the inputs of no operator");
  return *best;
}

}  // namespace

Golden read_golden(const std::string& folder) {
  Golden golden;
  golden.name = std::filesystem::path(folder).filename().string();
  oracle::Problem& p = golden.problem;
  p.options = read_options(std::filesystem::path(folder) / "options.json", p.distillation);
  p.h = -1;  // until an input has it
  std::map<std::string, Array> arrays;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".npy") continue;
    arrays[entry.path().stem().string()] = read_npy(entry.path());
  }
  golden.op = &operator_of(folder, arrays);
  for (const operators::Input& input : golden.op->inputs()) {
    const auto found = arrays.find(input.name);
    // An lse is what the call gives, and not what backward takes.
    if (found == arrays.end() || !reads_in(Pass::value_and_grad, input.reads)) continue;
    Array& array = found->second;
    const auto rank = static_cast<std::size_t>(input.shape.rank());
    if (input.shape.has_leading() && !input.shape.is_reducible()) p.b = array.shape.at(0);
    for (std::size_t axis = 0; axis < rank; ++axis) {
      const std::int64_t extent = array.shape.at(array.shape.size() - rank + axis);
      const char letter = input.shape.axis(static_cast<int>(axis));
      if (letter == 'H') p.h = extent;
      if (letter == 'V') p.v = extent;
      if (letter == 'K') p.k = extent;
      if (letter == 'G') p.teacher_h = extent;
    }
    if (const auto values = golden.op->values(input.name)) {
      p.*values = std::move(array.values);
    } else {
      auto& to = rank > 0 ? p.target_indices : p.labels;
      to.assign(array.values.begin(), array.values.end());
    }
    arrays.erase(found);
  }
  p.distillation.given = !p.teacher_x.empty() || !p.teacher_logits.empty();
  for (auto& [name, array] : arrays) golden.expected[name] = std::move(array.values);
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
