// SPDX-License-Identifier: Apache-2.0
#include "tuning/tune/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "bench/operator.hpp"
#include "bench/options.hpp"
#include "programs/cli.hpp"
#include "tuning/lookup/lines.hpp"

namespace tessera::tuning {
namespace {

using bench::BenchOperator;

struct Regime {
  std::string name;
  bench::GivenShape shape;  ///< without tokens
};

const std::vector<Regime>& regimes() {
  static const auto all = [] {
    std::vector<Regime> list;
    for (const auto& file : embedded_shapes()) {
      for_lines(file.text, [&](std::string_view line, int) {
        std::istringstream words{std::string(line.substr(0, line.find('#')))};
        std::string name, extents;
        if (!(words >> name >> extents)) return;
        list.push_back({name, bench::parse_shapes(extents).front()});
        list.back().shape.lacks_tokens = true;
      });
    }
    return list;
  }();
  return all;
}

/// A shape with its name, and the tokens of one that lacks them.
struct Asked {
  std::string regime;
  bench::GivenShape shape;
  std::int64_t tokens;
};

std::vector<Asked> shapes_of(const bench::Options& options, const Wanted& wanted) {
  std::vector<Asked> shapes;
  for (const auto& name : wanted.regimes) {
    bool is_known = false;
    for (const auto& regime : regimes()) {
      if (regime.name != name) continue;
      is_known = true;
      for (const auto tokens : wanted.tokens) shapes.push_back({name, regime.shape, tokens});
    }
    if (!is_known) programs::fail_choice("--regimes", name, regime_names());
  }
  for (const auto& shape : options.shapes) shapes.push_back({"", shape, options.tokens});
  return shapes;
}

std::string bucket_of(const ProblemExtents& shape) {
  for (const auto& bucket : buckets()) {
    if (bucket.holds(shape)) return bucket.name;
  }
  return {};
}

/// The operator's implementations that a name stands for: itself, or those of a family.
std::vector<std::string> implementations_of(const BenchOperator& op, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& info : op.implementations()) {
    if (info.name == name || info.name.starts_with(name + ".")) names.push_back(info.name);
  }
  return names;
}

/// What is right to give, whatever the machine.
void check_names(const bench::Options& options, const Wanted& wanted) {
  std::vector<std::string> known;
  for (const auto& bucket : buckets()) known.push_back(bucket.name);
  for (const auto& name : wanted.buckets) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      programs::fail_choice("--buckets", name, known);
    }
  }
  for (const auto& name : options.implementations) {
    const char* why = name == bench::eigen_gemm ? "it is no implementation of an operator"
                      : name == "reference"     ? "it has neither blocks nor knobs"
                      : name == "tpu_tile"      ? "its times are modelled: tessera-tile --sweep"
                                                : nullptr;
    if (why == nullptr) continue;
    programs::fail_call(
        fmt::format("--implementations: '{}' cannot be tuned: {}; name another", name, why));
  }
}

std::optional<bench::Row> row_of(const BenchOperator& op, Pass pass, std::pair<DType, DType> types,
                                 bool vh, const ProblemExtents& shape) {
  if (!op.has(pass)) return std::nullopt;
  bench::Row row;
  row.problem.op = &op;
  row.problem.x = types.first;
  row.problem.w = op.has_weights() ? types.second : types.first;
  row.problem.w_is_vh = vh || !op.has_weights();
  row.problem.shape = shape;
  row.pass = pass;
  return row;
}

}  // namespace

std::vector<std::string> regime_names() {
  std::vector<std::string> names;
  for (const auto& regime : regimes()) {
    if (std::find(names.begin(), names.end(), regime.name) == names.end()) {
      names.push_back(regime.name);
    }
  }
  return names;
}

std::vector<Problem> make_problems(Context& context, const bench::Options& options,
                                   const Wanted& wanted) {
  check_names(options, wanted);
  const auto shapes = shapes_of(options, wanted);
  std::vector<Problem> problems;
  std::set<std::string> names;  // what an operator does not have differs for nothing
  const auto add = [&](const bench::Row& row, const std::string& regime) {
    if (!names.insert(row.name()).second) return;
    Problem problem{.row = row, .regime = regime, .bucket = bucket_of(row.problem.shape)};
    if (!wanted.buckets.empty() && std::find(wanted.buckets.begin(), wanted.buckets.end(),
                                             problem.bucket) == wanted.buckets.end()) {
      return;
    }
    problem.refusal = row.problem.op->why_not(context, row, options).value_or("");
    if (problem.bucket.empty()) problem.refusal = "no bucket holds its shape";
    problems.push_back(problem);
  };
  for (const auto* op : options.operators) {
    for (const auto& [regime, given, tokens] : shapes) {
      const auto shape = op->shape_of(given, tokens);
      if (!shape) continue;
      for (const auto& types : options.dtypes) {
        for (const bool vh : options.layouts) {
          for (const Pass pass : options.passes) {
            auto row = row_of(*op, pass, types, vh, *shape);
            if (!row) continue;
            for (const auto& family : options.implementations) {
              for (const auto& name : implementations_of(*op, family)) {
                row->implementation = name;
                add(*row, regime);
              }
            }
          }
        }
      }
    }
  }
  return problems;
}

std::vector<Problem> make_custom_problems(const Context& context, const std::string& file) {
  std::vector<Problem> problems;
  bool any = false;
  for (auto& row : bench::read_custom_rows(file)) {
    any = any || !row.candidates.empty();
    Problem problem;
    if (!context.has_device()) problem.refusal = "there is no OpenCL device";
    if (row.candidates.empty()) problem.refusal = "the file has no \"tune\" for it";
    problem.custom = std::make_shared<const bench::CustomRow>(std::move(row));
    problems.push_back(std::move(problem));
  }
  if (any) return problems;
  programs::fail_call(
      fmt::format("--custom: {} has no candidates; give a row \"tune\", a list such as "
                  "[{{\"knobs\": {{\"width\": 4}}}}] (docs/custom_kernels.md)",
                  file));
}

std::string Problem::name() const { return custom ? custom->name : row.name(); }

std::string Problem::revision(const std::string& of_library) const {
  return custom ? of_library + '+' + custom->revision : of_library;
}

Record record_of(const Context& context, const Problem& problem) {
  if (problem.custom) {
    const auto& row = *problem.custom;
    Record record;
    record["operator"] = "custom/" + row.kernel.name();
    record["pass"] = to_string(Pass::forward);
    record["implementation"] = "opencl";
    record["device"] = context.device_info().name;
    if (!row.outputs.empty()) record["dtype"] = to_string(row.outputs.front().dtype());
    record["shape"] = row.shape;
    return record;
  }
  const auto& row = problem.row;
  const auto& key = row.problem;
  Record record;
  record["operator"] = key.op->name();
  record["pass"] = to_string(row.pass);
  record["implementation"] = row.implementation;
  record["device"] = row.implementation.starts_with("opencl") ? context.device_info().name : "host";
  record["dtype"] = to_string(key.x);
  if (key.w != key.x) record["dtype"] += fmt::format(":{}", to_string(key.w));
  if (key.op->has_weights()) record["layout"] = key.w_is_vh ? "vh" : "hv";
  record["bucket"] = problem.bucket;
  for (const char letter : programs::telling_letters(key.op->description(), key.shape)) {
    record["shape"] += fmt::format("{}{} {}", letter == 'B' ? "" : " ", letter, key.shape[letter]);
  }
  record["regime"] = problem.regime;
  return record;
}

}  // namespace tessera::tuning
