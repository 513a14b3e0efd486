// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "programs/cli.hpp"
#include "programs/operators.hpp"

/// The problems of operators as command lines write them: extents by letter.
namespace tessera::programs {

/// B, then the letters of what a call of the operator has to have, in order: "BHV".
std::string letters_of(const Description& op);

/// True for a text that is to be read by `parse_letters`: it begins with a letter and its extent.
bool has_letters(const std::string& text);
/// The extents of "Q8/S2048/D128". Throws CLI::ValidationError.
ProblemExtents parse_letters(const std::string& option, const std::string& text);
/// Throws CLI::ValidationError for a letter that none of the operators has.
void check_letters(const std::string& option, const ProblemExtents& given,
                   const std::vector<const Description*>& ops);

/// An extent for each letter of the operator: the one given, else that of the letter which it
/// follows (T is S, K is Q, E is D, G is H), else 1.
ProblemExtents completed(const Description& op, const ProblemExtents& given);
/// The letters that say what the problem is: all but those with the extent of the one they follow.
std::string telling_letters(const Description& op, const ProblemExtents& extents);
/// "B512/H2048/V32768", of these.
std::string text_of(const Description& op, const ProblemExtents& extents);

/// An option of an operator that a command line sets.
struct SetOption {
  std::string name, text;
  OptionValue value{};  ///< once the operator is known, what `value_of` makes of the text
  friend bool operator==(const SetOption&, const SetOption&) = default;
};
/// The value of the operator's option. Throws CLI::ValidationError where it has none, or the text
/// is no value.
OptionValue value_of(const Description& op, const SetOption& set);
/// Adds --set, which may be repeated.
CLI::Option* add_set(CLI::App& app, std::vector<SetOption>& target, const std::string& description);

}  // namespace tessera::programs
