// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/arguments/offsets.hpp"
#include "host/dispatch/completion.hpp"
#include "host/dispatch/thread_pool.hpp"
#include "host/loss/request.hpp"

/// The targets of a call's rows in host memory, whatever says them: labels, pairs of index and
/// probability, or a probability for every word.
namespace tessera::loss {

class Targets {
 public:
  /// What one row's target adds up to.
  struct Sums {
    bool ignored = false;   ///< it names no word
    bool bad = false;       ///< an index that is no word, or a negative or NaN probability
    double total = 0.0;     ///< of q
    double weighted = 0.0;  ///< of q c
  };

  /// The request's target views are host memory and outlive this.
  explicit Targets(const LossRequest& request);

  /// Calls `body(column, q)` for each word that the row names, in order; a label has q = 1. Columns
  /// are those of the whole vocabulary, and not checked.
  template <class Body>
  void for_each(std::int64_t row, const Body& body) const {
    if (request_.targets) {
      const View& view = request_.targets;
      const std::int64_t begin = targets_(row);
      for (std::int64_t j = 0; j < request_.v_total; ++j) {
        body(j, number(view, begin + j * view.strides().back()));
      }
    } else if (request_.target_indices) {
      for (std::int64_t pair = 0; pair < request_.k; ++pair) {
        const auto [column, q] = pair_of(row, pair);
        if (column != request_.options.ignore_index) body(column, q);
      }
    } else if (request_.labels) {
      const std::int64_t label =
          arguments::load_int(request_.labels.host_data(), request_.labels.dtype(), labels_(row));
      if (label != request_.options.ignore_index) body(label, 1.0f);
    }
  }
  /// A pair of the row, padding too.
  std::pair<std::int64_t, float> pair_of(std::int64_t row, std::int64_t pair) const;
  /// The label of a row, where rows have labels.
  std::int64_t label_of(std::int64_t row) const;
  Sums sums_of(std::int64_t row) const;
  /// Of every row, on the threads where they are given; reads the targets themselves.
  std::vector<Sums> sums_of_rows(dispatch::ThreadPool* threads) const;
  /// What a row adds to the mean's denominator, its own weight apart: the weight of its label's
  /// class, the mean of those of its pairs, 1 where every word has a probability.
  double share_of(const Sums& sums) const;
  /// Class weight of a column of the whole vocabulary; 1 where they are in device memory, and what
  /// comes of them is only known there.
  float class_weight(std::int64_t column) const;
  /// What is wrong with a bad row: "labels: row 5 is 70; the vocabulary is ...".
  std::string why_bad(std::int64_t row) const;

  bool is_word(std::int64_t column) const noexcept {
    return column >= 0 && column < request_.v_total;
  }

 private:
  Sums dense_sums(std::int64_t row) const;
  static float number(const View& view, std::int64_t offset) {
    return arguments::load_f32(view.host_data(), view.dtype(), offset);
  }

  const LossRequest& request_;
  arguments::RowOffsets labels_, indices_, probs_, targets_;
};

/// Whether the targets of a call can be read before it runs: all are in host memory.
bool is_known(const LossRequest& request);

/// Rows that count: known where the targets are, else all.
std::int64_t counted_rows(const LossRequest& request);

/// A finished call. Where `bad` says what is wrong with a row that only the run itself could see,
/// waiting for it throws.
std::unique_ptr<Completion::State> finished(const std::string& bad);

}  // namespace tessera::loss
