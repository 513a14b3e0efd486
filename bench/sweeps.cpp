// SPDX-License-Identifier: Apache-2.0
#include "bench/sweeps.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <thread>

#include "bench/data.hpp"

namespace tessera::bench {
namespace {

/// Columns widened at a time; the block stays in a core's own cache.
constexpr std::int64_t block = 32;

/// Calls body(first, count, panel) for blocks of columns on all threads; `panel` is the block of w,
/// widened, [H, block] row-major. Bodies run at once for different blocks.
void for_each_block(const HostTensor& w,
                    const std::function<void(std::int64_t, std::int64_t, const double*)>& body) {
  const std::int64_t h = w.extents()[0], v = w.extents()[1];
  const Dims& strides = w.strides();
  const auto threads = std::max(1u, std::thread::hardware_concurrency());
  const auto work = [&](unsigned thread) {
    std::vector<double> panel(static_cast<std::size_t>(h * block));
    for (std::int64_t first = thread * block; first < v; first += block * threads) {
      const std::int64_t count = std::min(block, v - first);
      for (std::int64_t i = 0; i < h; ++i) {
        for (std::int64_t j = 0; j < count; ++j) {
          panel[static_cast<std::size_t>(i * block + j)] =
              element(w, i * strides[0] + (first + j) * strides[1]);
        }
      }
      body(first, count, panel.data());
    }
  };
  std::vector<std::jthread> others;
  for (unsigned thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  work(0);
}

}  // namespace

std::vector<double> products(const HostTensor& x, const HostTensor& w,
                             const std::vector<std::int64_t>& rows) {
  const std::int64_t h = w.extents()[0], v = w.extents()[1];
  std::vector<double> result(rows.size() * static_cast<std::size_t>(v), 0.0);
  for_each_block(w, [&](std::int64_t first, std::int64_t count, const double* panel) {
    for (std::size_t r = 0; r < rows.size(); ++r) {
      double* out = result.data() + r * static_cast<std::size_t>(v) + first;
      for (std::int64_t i = 0; i < h; ++i) {
        const double x_i = element(x, rows[r] * h + i);
        for (std::int64_t j = 0; j < count; ++j) out[j] += x_i * panel[i * block + j];
      }
    }
  });
  return result;
}

std::vector<double> products_with_w(const HostTensor& w, const std::vector<double>& dz,
                                    std::int64_t rows) {
  const std::int64_t h = w.extents()[0], v = w.extents()[1];
  // Each block of columns adds to all of the result: sums apart, by a few groups of columns, so
  // that threads do not share them.
  constexpr std::int64_t groups = 64;
  std::vector<std::vector<double>> sums(groups);
  std::vector<std::mutex> locks(groups);
  for_each_block(w, [&](std::int64_t first, std::int64_t count, const double* panel) {
    const auto group = static_cast<std::size_t>(first / block % groups);
    const std::lock_guard lock(locks[group]);
    auto& sum = sums[group];
    sum.resize(static_cast<std::size_t>(rows * h), 0.0);
    for (std::int64_t r = 0; r < rows; ++r) {
      const double* g = dz.data() + r * v + first;
      for (std::int64_t i = 0; i < h; ++i) {
        double total = 0.0;
        for (std::int64_t j = 0; j < count; ++j) total += g[j] * panel[i * block + j];
        sum[static_cast<std::size_t>(r * h + i)] += total;
      }
    }
  });
  std::vector<double> result(static_cast<std::size_t>(rows * h), 0.0);
  for (const auto& sum : sums) {
    for (std::size_t i = 0; i < sum.size(); ++i) result[i] += sum[i];
  }
  return result;
}

double product(const HostTensor& x, const HostTensor& w, std::int64_t row, std::int64_t column) {
  const std::int64_t h = w.extents()[0];
  double sum = 0.0;
  for (std::int64_t i = 0; i < h; ++i) {
    sum += element(x, row * h + i) * element(w, i * w.strides()[0] + column * w.strides()[1]);
  }
  return sum;
}

std::vector<double> row_norms(const HostTensor& x) {
  const std::int64_t b = x.extents()[0], h = x.extents()[1];
  std::vector<double> norms(static_cast<std::size_t>(b), 0.0);
  for (std::int64_t r = 0; r < b; ++r) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < h; ++i) {
      const double value = element(x, r * h + i);
      sum += value * value;
    }
    norms[static_cast<std::size_t>(r)] = std::sqrt(sum);
  }
  return norms;
}

std::vector<double> column_norms(const HostTensor& w) {
  const std::int64_t h = w.extents()[0];
  std::vector<double> norms(static_cast<std::size_t>(w.extents()[1]), 0.0);
  for_each_block(w, [&](std::int64_t first, std::int64_t count, const double* panel) {
    double* out = norms.data() + first;
    for (std::int64_t i = 0; i < h; ++i) {
      for (std::int64_t j = 0; j < count; ++j)
        out[j] += panel[i * block + j] * panel[i * block + j];
    }
    for (std::int64_t j = 0; j < count; ++j) out[j] = std::sqrt(out[j]);
  });
  return norms;
}

}  // namespace tessera::bench
