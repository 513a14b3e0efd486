// SPDX-License-Identifier: Apache-2.0
#include "bench/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace tessera::bench {

namespace {
constexpr double u = unit_roundoff;
}

double root(std::int64_t n) { return std::sqrt(static_cast<double>(n)); }
double roundoff(DType type) {
  return type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : u;
}
double smallest(DType type) { return type == DType::f16 ? 0x1p-25 : 0x1p-126; }

std::vector<std::int64_t> sample(std::int64_t n, std::int64_t count, std::int64_t always) {
  std::set<std::int64_t> picked = {0, n - 1, always};
  for (std::int64_t i = 1; i <= count; ++i) {
    const double fraction = std::fmod(0.6180339887498949 * static_cast<double>(i), 1.0);
    if (static_cast<std::int64_t>(picked.size()) < std::min(n, count)) {
      picked.insert(static_cast<std::int64_t>(fraction * static_cast<double>(n)));
    }
  }
  return {picked.begin(), picked.end()};
}

void set_targets(oracle::Problem& problem, const Data& data,
                 const std::vector<std::int64_t>& rows) {
  problem.k = data.key.target_pairs;
  for (const auto row : rows) {
    if (data.key.dense_targets) {
      const auto* q = data.targets.data() + row * data.key.shape['V'];
      problem.targets.insert(problem.targets.end(), q, q + data.key.shape['V']);
      continue;
    }
    if (problem.k == 0) problem.labels.push_back(data.labels[at(row)]);
    for (std::int64_t pair = row * problem.k; pair < (row + 1) * problem.k; ++pair) {
      problem.target_indices.push_back(data.target_indices[at(pair)]);
      problem.target_probs.push_back(static_cast<double>(data.target_probs[at(pair)]));
    }
  }
}

LossJudge::LossJudge(const Data& data, Logits logits, double filter_eps)
    : data_(data), logits_(std::move(logits)), filter_eps_(filter_eps) {
  const auto counted = static_cast<std::int64_t>(data.counted.size());
  for (const auto i : sample(counted, sampled_rows, 0)) rows_.push_back(data.counted[at(i)]);
  problem_.b = static_cast<std::int64_t>(rows_.size());
  problem_.v = data.key.shape['V'];
  problem_.options.reduction = Reduction::none;
  set_targets(problem_, data, rows_);
  // The mean's share of each row.
  problem_.dloss.assign(rows_.size(), 1.0 / static_cast<double>(counted));
  problem_.logits = logits_.of_rows(rows_);
  values_ = oracle::forward(problem_);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    errors_.push_back(row_error(i));
    check("the streaming lse", rows_[i], data.lse[at(rows_[i])] - values_.lse[i], errors_[i].lse);
    if (!data.key.dense_targets) continue;
    check("the streaming label_logprob", rows_[i],
          data.label_logprob[at(rows_[i])] - values_.label_logprob[i], 2.0 * errors_[i].lse);
  }
  deviation_ = {.worst = deviation_.worst, .where = deviation_.where};  // counts results alone
}

void LossJudge::values(const Outcome& outcome) {
  if (const auto& tensor = outcome["statistics"]) statistics(tensor);
  if (const auto& tensor = outcome["loss"]) loss(tensor);
}

void LossJudge::statistics(const HostTensor& tensor) {
  const auto got = tensor.as<float>();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const double max = got[at(2 * rows_[i])], sum = got[at(2 * rows_[i] + 1)];
    check("lse, row", rows_[i], max + std::log(sum) - values_.lse[i], errors_[i].lse);
  }
}

void LossJudge::loss(const HostTensor& tensor) {
  double mean = 0.0;
  double tolerance = 0.0;
  for (const auto& error : errors_) tolerance = std::max(tolerance, 2.0 * error.lse);
  // Rows of a larger norm than the sampled ones deviate more.
  if (const auto& norms = logits_.row_norms; !norms.empty()) {
    double sampled = 0.0;
    for (const auto r : rows_) sampled = std::max(sampled, norms[at(r)]);
    tolerance *= std::max(1.0, *std::max_element(norms.begin(), norms.end()) / sampled);
  }
  oracle::Problem targets;
  if (!data_.key.dense_targets) set_targets(targets, data_, data_.counted);
  for (std::size_t i = 0; i < data_.counted.size(); ++i) {
    const auto row = data_.counted[i];
    if (data_.key.dense_targets) {
      mean -= data_.label_logprob[at(row)];
      continue;
    }
    for (const auto& [word, q] : oracle::target_of(targets, static_cast<std::int64_t>(i))) {
      mean += q * (data_.lse[at(row)] - logits_.one(row, word));
    }
  }
  mean /= static_cast<double>(data_.counted.size());
  check("loss", 0, static_cast<double>(tensor.as<float>()[0]) - mean, tolerance);
}

double LossJudge::dz_rounding() const {
  if (data_.key.x != data_.key.w || data_.key.x == DType::f32) return 0.0;
  return roundoff(data_.key.x);
}
double LossJudge::dz_floor() const {
  if (dz_rounding() == 0.0) return 0.0;
  return data_.key.x == DType::bf16 ? 0x1p-126 : 0x1p-37 * problem_.dloss.front();
}

double LossJudge::largest_lse_error() const {
  double largest = 0.0;
  for (const auto& error : errors_) largest = std::max(largest, error.lse);
  return largest;
}

LossJudge::RowError LossJudge::row_error(std::size_t i) const {
  RowError error;
  double far = 0.0;
  for (std::int64_t j = 0; j < problem_.v; ++j) {
    const double z = problem_.logits[i * at(problem_.v) + at(j)];
    error.logit = std::max(error.logit, 4.0 * u * std::abs(z) + logits_.error(rows_[i], j));
    far += std::exp(z - values_.lse[i]) * (values_.max[i] - z);
  }
  error.lse = 2.0 * error.logit + (8.0 + root(problem_.v)) * u + 3.0 * u * far +
              2.0 * u * (std::abs(values_.lse[i]) + std::abs(values_.max[i]));
  return error;
}

double LossJudge::dz_error(std::size_t i, double z, double dz) const {
  const double relative =
      errors_[i].logit + errors_[i].lse + 3.0 * u * (values_.max[i] - z) + 16.0 * u;
  const double p = std::exp(z - values_.lse[i]);
  return problem_.dloss[i] * (p * relative + filter_eps_) +
         std::abs(dz) * (16.0 * u + dz_rounding()) + dz_floor();
}

void LossJudge::check(const char* what, std::int64_t index, double deviation, double tolerance) {
  deviation_.add(deviation);
  hold(what, index, deviation, tolerance);
}

void LossJudge::hold(const char* what, std::int64_t index, double deviation, double tolerance) {
  deviation_.hold(fmt::format("{} {}", what, index), deviation, tolerance);
}

void LossJudge::compare(const char* what, std::int64_t index, const double* wanted,
                        std::int64_t count, double tolerance, const HostTensor& tensor,
                        std::int64_t offset, std::int64_t stride) {
  double norm = 0.0, off = 0.0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double d = element(tensor, offset + i * stride) - wanted[i];
    norm += wanted[i] * wanted[i];
    off += d * d;
    deviation_.add(d);
  }
  const double allowed = tolerance + roundoff(tensor.dtype()) * (std::sqrt(norm) + tolerance) +
                         root(count) * smallest(tensor.dtype());
  hold(what, index, std::sqrt(off), allowed);
}

}  // namespace tessera::bench
