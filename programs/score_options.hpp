// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "programs/cli.hpp"
#include "programs/operators.hpp"
#include "tessera/loss.hpp"

namespace tessera::programs {

/// What a run of tessera-score does.
enum class ScoreMode {
  forward,         ///< the loss and the per-token outputs
  value_and_grad,  ///< the same and gradients
  backward,        ///< gradients alone, from merged statistics (--statistics)
  shard,           ///< the partial statistics of one shard
  combine,         ///< merges shards into the ordinary outputs
};

/// The option for an argument: "--class-weight" for "class_weight".
std::string option_of(std::string name);
/// Adds the option for `name`; what the command line gives goes to `values`. `standard` is the
/// default, whose type is that of the option.
CLI::Option* add_value(CLI::App& app, const std::string& name, const std::string& help,
                       const OptionValue& standard, std::span<const char* const> choices,
                       std::map<std::string, OptionValue>& values);
/// A value as a text: "0.5", or its name among the choices, "mean".
std::string text_of(const OptionValue& value, std::span<const char* const> choices);

/// The command line of tessera-score. Of an option that was not given, the text is empty or the
/// optional is unset.
struct ScoreOptions {
  std::map<std::string, std::string> files;  ///< by the argument's name; "": not given
  std::string out;
  std::string trace;  ///< a file for what the calls took
  std::string dump;   ///< a folder for what was compiled
  std::string statistics;
  std::vector<std::string> combine;
  std::optional<bool> w_is_vh, teacher_w_is_vh;
  std::map<std::string, OptionValue> values;  ///< operators' options that were given, by name
  bool grad = false;
  bool bf16_bits = false;
  std::string grad_dtype;  ///< "f32", "bf16", "f16" or "same"
  std::vector<std::string> implementation;
  std::string device;
  std::vector<std::int64_t> block_sizes;
  std::optional<std::int64_t> workspace_bytes;

  ScoreMode mode() const;
  /// The operator that takes the given arrays. Not for --combine, which merges what one wrote.
  const Description& op() const;
  bool given(const std::string& name) const {
    return files.contains(name) && !files.at(name).empty();
  }
  bool has_teacher() const {
    return given("teacher_x") || given("teacher_w") || given("teacher_logits");
  }
  LossOptions loss_options() const;
};

/// Sets the described options that the command line gives.
template <class Options, class Described>
void set_given(const ScoreOptions& o, const Described& described, Options& options) {
  for (const auto& option : described) {
    const auto given = o.values.find(option.name);
    if (given != o.values.end()) option.set(options, given->second);
  }
}

/// Adds an option of the command line for each described one; --help lists them under `group`.
template <class Described>
void add_described(CLI::App& app, ScoreOptions& o, const Described& described,
                   const std::string& group) {
  for (const auto& option : described) {
    add_value(app, option.name, option.help, option.value({}), option.choices, o.values)
        ->group(group);
  }
}

/// An array that some operator reads, and the option that names its file.
struct ArrayOption {
  std::string name;    ///< of the argument: "class_weight"
  std::string option;  ///< "--class-weight"
  std::string description;
  bool integer = false;         ///< else floating
  bool with_gradients = false;  ///< only together with --grad
};
/// The arrays of all operators, each listed once.
const std::vector<ArrayOption>& array_options();

/// Declares the options on `app`; parsing fills `options`.
void add_score_options(CLI::App& app, ScoreOptions& options);

/// Throws `Error invalid_argument` for options that do not go together.
void check_score_options(const CLI::App& app, const ScoreOptions& options);

}  // namespace tessera::programs
