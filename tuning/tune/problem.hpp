// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/custom.hpp"
#include "bench/row.hpp"
#include "tuning/lookup/table.hpp"
#include "tuning/tune/raw.hpp"

namespace tessera::tuning {

/// What blocks and knobs are looked for: a row of tessera-bench.
struct Problem {
  bench::Row row{};
  /// A custom kernel's row, in place of `row`; null: there is none.
  std::shared_ptr<const bench::CustomRow> custom{};
  std::string regime{};   ///< "minilm"; of a shape given as such, empty
  std::string bucket{};   ///< the first that holds it; of a custom kernel empty
  std::string refusal{};  ///< why it cannot run here; empty: it can

  std::string name() const;
  /// The library's revision, with that of a custom kernel: results of another one are not known.
  std::string revision(const std::string& of_library) const;
};

/// Which of them, beside what bench::Options says.
struct Wanted {
  std::vector<std::string> regimes{};
  std::vector<std::int64_t> tokens{};
  std::vector<std::string> buckets{};  ///< empty: all
};

/// All of them. Throws for unknown names, with the known ones.
std::vector<Problem> make_problems(Context& context, const bench::Options& options,
                                   const Wanted& wanted);

/// The rows of a custom kernel, as tessera-bench --custom has them. Throws for what is wrong in the
/// file.
std::vector<Problem> make_custom_problems(const Context& context, const std::string& file);

/// A line of its raw results: the columns that say what was asked.
Record record_of(const Context& context, const Problem& problem);

/// The files of bench/shapes, which the program carries.
const std::vector<EmbeddedTable>& embedded_shapes();
/// Names of bench/shapes/models.txt.
std::vector<std::string> regime_names();

}  // namespace tessera::tuning
