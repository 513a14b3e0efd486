// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/context.hpp"
#include "tessera/error.hpp"
#include "tessera/execution.hpp"

// CLI11 takes seconds to compile: only sources that declare options include it.
namespace CLI {
class App;
class Option;
}  // namespace CLI

/// What the command lines of all programs share.
namespace tessera::programs {

/// Exit codes.
constexpr int exit_failed = 1;    ///< a good call that failed at run time
constexpr int exit_bad_call = 2;  ///< wrong options, files or values

/// Adds --version and the conventions to `app`, parses, runs `body`, and returns the exit code.
///
/// Errors become one line on stderr, "<program>: error: ...". What the library throws for a bad
/// request is a bad call; failed builds, exhausted memory and failed commands are failures.
int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& body);

/// The exit code of an Error.
int exit_code(ErrorCode code) noexcept;

/// A bad call that CLI11 cannot see; `message` names the option and what to do.
[[noreturn]] void fail_call(const std::string& message);

// -- Options; each parses its whole text strictly (no octal, no trailing characters)

CLI::Option* add_integer(CLI::App& app, const std::string& name,
                         std::function<void(std::int64_t)> given, const std::string& description);
CLI::Option* add_integer(CLI::App& app, const std::string& name,
                         std::optional<std::int64_t>& target, const std::string& description);
/// A finite number.
CLI::Option* add_number(CLI::App& app, const std::string& name, std::function<void(float)> given,
                        const std::string& description);
/// "a,b,c" without empty items.
CLI::Option* add_list(CLI::App& app, const std::string& name, std::vector<std::string>& target,
                      const std::string& description);
/// Three numbers, e.g. "1024,512,2048"; `form` says which: "takes three numbers, B,H,V".
CLI::Option* add_triple(CLI::App& app, const std::string& name, std::vector<std::int64_t>& target,
                        char separator, const std::string& form, const std::string& description);
/// One of `choices`; `chosen` is called with its place.
CLI::Option* add_choice(CLI::App& app, const std::string& name,
                        const std::vector<std::string>& choices,
                        const std::function<void(std::size_t)>& chosen,
                        const std::string& description);
/// One of `choices`, given as name and value.
template <class T>
CLI::Option* add_choice(CLI::App& app, const std::string& name, T& target,
                        const std::vector<std::pair<std::string, T>>& choices,
                        const std::string& description);

std::int64_t parse_integer(const std::string& name, const std::string& text);
/// A finite number.
float parse_number(const std::string& name, const std::string& text);
std::vector<std::string> split(const std::string& name, const std::string& text, char separator);
/// "1024,512,2048" or, with `separator` 'x', "512x2048x32768".
std::vector<std::int64_t> parse_integers(const std::string& name, const std::string& text,
                                         char separator);
[[noreturn]] void fail_choice(const std::string& name, const std::string& text,
                              const std::vector<std::string>& choices);

/// A context on the device that `device` names. When every name in `implementations` runs on the
/// host and no device is named, no driver is touched; nor where `machine` is one to plan for.
/// Warnings are collected in `warnings`. `dump` is ContextOptions::dump_folder.
Context make_context(const std::string& device, const std::vector<std::string>& implementations,
                     std::vector<std::string>& warnings, const std::string& machine = {},
                     const std::string& dump = {});

template <class T>
CLI::Option* add_choice(CLI::App& app, const std::string& name, T& target,
                        const std::vector<std::pair<std::string, T>>& choices,
                        const std::string& description) {
  std::vector<std::string> names;
  for (const auto& choice : choices) names.push_back(choice.first);
  return add_choice(
      app, name, names, [&target, choices](std::size_t at) { target = choices[at].second; },
      description);
}

}  // namespace tessera::programs
