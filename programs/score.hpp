// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "programs/npy.hpp"
#include "programs/report.hpp"
#include "programs/score_options.hpp"
#include "tessera/execution.hpp"
#include "tessera/linear_distillation.hpp"

namespace tessera::programs {

/// The arrays that the command line names.
class ScoreArrays {
 public:
  explicit ScoreArrays(const ScoreOptions& options);

  /// Empty where it was not given.
  const NpyArray& operator[](const std::string& name) const;
  /// Leading axes: those of the labels, or of what stands in their place.
  Dims leading() const;
  /// As calls take it: a weight as [H, V] whatever its layout in the file.
  View view(const std::string& name) const;
  /// Of `name`'s gradient in memory that is laid out as the file of `name` is.
  MutableView gradient_view(const std::string& name, HostTensor& gradient) const;
  /// By the letters of the operator's shapes, but for leading axes, in order.
  const std::vector<std::pair<char, std::int64_t>>& extents() const { return extents_; }
  std::int64_t extent_of(char letter) const;
  /// Of what the command line names, by name.
  Json types() const;

 private:
  void check(const operators::Input& input, const std::string& path);
  void check_weight(const operators::Input& input, const std::string& path);
  void note(char letter, std::int64_t extent, const std::string& name);

  std::map<std::string, NpyArray> arrays_;
  std::map<std::string, View> weights_;  ///< as [H, V]
  bool w_is_vh_ = false, teacher_w_is_vh_ = false;
  std::vector<std::pair<char, std::int64_t>> extents_;
  std::map<char, std::string> seen_in_;  ///< the first array with this extent
};

/// What one run reports.
struct ScoreOutcome {
  Dispatch dispatch;
  double seconds_first = 0;  ///< wall time of the first call, compiling included
  double seconds = 0;        ///< wall time of the second call
};

/// The arrays that one run writes.
struct ScoreResults {
  struct Array {
    std::string name;
    HostTensor tensor{};
    bool keeps_layout = false;   ///< a gradient of a weight: dense in the order of its file
    bool fortran_order = false;  ///< of that file
  };
  std::deque<Array> arrays{};                    ///< in place, for views of them are about
  linear_distillation::PartialResult partial{};  ///< divergence_rows: with a teacher

  HostTensor& add(const std::string& name, HostTensor tensor);
  /// nullptr: not there
  const HostTensor* find(const std::string& name) const;
};

/// Calls the operator that the arrays are for, twice: the first call pays for compiling, the second
/// is what a steady call takes.
ScoreOutcome call_operator(const ScoreOptions& options, const ScoreArrays& arrays, Context& context,
                           ScoreResults& results);
/// Merges shards by the same clock; `options` become those of the whole, with what the shards say
/// of a teacher where they had one.
ScoreOutcome call_combine(ScoreOptions& options, const ScoreArrays& arrays,
                          LossOptions& loss_options, ScoreResults& results);

/// Tokens whose label, or one of whose pairs, is not `ignore_index`; of `rows`, where nothing says
/// which are.
std::int64_t counted_tokens(const ScoreArrays& arrays, std::int64_t rows,
                            std::int64_t ignore_index);
/// -sum q log q of each row of soft targets, as they are given: neither smoothed nor renormalised.
HostTensor target_entropy(const ScoreArrays& arrays, std::int64_t ignore_index);

/// Runs what the options ask for, writes the files of --out, all or none, and prints a line on
/// what ran and one for each warning. Throws Error.
void score(const ScoreOptions& options);

}  // namespace tessera::programs
