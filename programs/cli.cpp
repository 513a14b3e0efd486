// SPDX-License-Identifier: Apache-2.0
#include "programs/cli.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <new>

#include "tessera/version.hpp"

namespace tessera::programs {
namespace {

std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

void print_error(const CLI::App& app, const std::string& message) {
  fmt::print(stderr, "{}: error: {}\n", app.get_name(), one_line(message));
}

}  // namespace

int exit_code(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported:
    case ErrorCode::foreign_context:
    case ErrorCode::label_out_of_range:
    case ErrorCode::workspace_too_small:
    case ErrorCode::device_not_found:
      return exit_bad_call;
    case ErrorCode::build_failed:
    case ErrorCode::out_of_memory:
    case ErrorCode::execution_failed:
      return exit_failed;
  }
  return exit_failed;
}

void fail_call(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& body) {
  app.set_version_flag("--version", fmt::format("{} {} ({}; {})", app.get_name(), version(),
                                                revision(), build_description()));
  app.get_formatter()->column_width(34);
  try {
    app.parse(argc, argv);
    body();
    if (std::fflush(stdout) != 0) {
      print_error(app, "standard output cannot be written");
      return exit_failed;
    }
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    print_error(app, fmt::format("{} (--help lists the options)", error.what()));
    return exit_bad_call;
  } catch (const Error& error) {
    print_error(app, error.what());
    if (!error.build_log().empty()) fmt::print(stderr, "{}\n", error.build_log());
    return exit_code(error.code());
  } catch (const std::bad_alloc&) {
    print_error(app, "out of memory");
    return exit_failed;
  } catch (const std::exception& error) {
    print_error(app, error.what());
    return exit_failed;
  }
}

std::int64_t parse_integer(const std::string& name, const std::string& text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) {
    throw CLI::ValidationError(name, fmt::format("'{}' does not fit into 64 bits", text));
  }
  if (error != std::errc() || stop != end) {
    throw CLI::ValidationError(name, fmt::format("'{}' is not an integer", text));
  }
  return value;
}

float parse_number(const std::string& name, const std::string& text) {
  float value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) {
    throw CLI::ValidationError(
        name, fmt::format("'{}' is not a finite number in the range of f32", text));
  }
  return value;
}

std::vector<std::string> split(const std::string& name, const std::string& text, char separator) {
  std::vector<std::string> items;
  for (std::size_t begin = 0;;) {
    const auto end = text.find(separator, begin);
    items.push_back(text.substr(begin, end - begin));
    if (items.back().empty()) {
      throw CLI::ValidationError(name, fmt::format("'{}' has an empty item", text));
    }
    if (end == std::string::npos) return items;
    begin = end + 1;
  }
}

std::vector<std::int64_t> parse_integers(const std::string& name, const std::string& text,
                                         char separator) {
  std::vector<std::int64_t> values;
  for (const auto& item : split(name, text, separator)) {
    values.push_back(parse_integer(name, item));
  }
  return values;
}

void fail_choice(const std::string& name, const std::string& text,
                 const std::vector<std::string>& choices) {
  throw CLI::ValidationError(name,
                             fmt::format("'{}' is not one of {}", text, fmt::join(choices, ", ")));
}

CLI::Option* add_integer(CLI::App& app, const std::string& name,
                         std::function<void(std::int64_t)> given, const std::string& description) {
  return app
      .add_option_function<std::string>(
          name,
          [name, given = std::move(given)](const std::string& text) {
            given(parse_integer(name, text));
          },
          description)
      ->type_name("INT");
}

CLI::Option* add_integer(CLI::App& app, const std::string& name,
                         std::optional<std::int64_t>& target, const std::string& description) {
  return add_integer(
      app, name, [&target](std::int64_t given) { target = given; }, description);
}

CLI::Option* add_number(CLI::App& app, const std::string& name, std::function<void(float)> given,
                        const std::string& description) {
  return app
      .add_option_function<std::string>(
          name,
          [name, given = std::move(given)](const std::string& text) {
            given(parse_number(name, text));
          },
          description)
      ->type_name("FLOAT");
}

CLI::Option* add_list(CLI::App& app, const std::string& name, std::vector<std::string>& target,
                      const std::string& description) {
  return app
      .add_option_function<std::string>(
          name, [name, &target](const std::string& text) { target = split(name, text, ','); },
          description)
      ->type_name("NAME[,NAME...]");
}

CLI::Option* add_triple(CLI::App& app, const std::string& name, std::vector<std::int64_t>& target,
                        char separator, const std::string& form, const std::string& description) {
  return app.add_option_function<std::string>(
      name,
      [name, &target, separator, form](const std::string& text) {
        target = parse_integers(name, text, separator);
        if (target.size() != 3) throw CLI::ValidationError(name, "takes three numbers, " + form);
      },
      description);
}

CLI::Option* add_choice(CLI::App& app, const std::string& name,
                        const std::vector<std::string>& choices,
                        const std::function<void(std::size_t)>& chosen,
                        const std::string& description) {
  return app
      .add_option_function<std::string>(
          name,
          [name, choices, chosen](const std::string& text) {
            const auto found = std::find(choices.begin(), choices.end(), text);
            if (found == choices.end()) fail_choice(name, text, choices);
            chosen(static_cast<std::size_t>(found - choices.begin()));
          },
          description)
      ->type_name(fmt::format("{}", fmt::join(choices, "|")));
}

Context make_context(const std::string& device, const std::vector<std::string>& implementations,
                     std::vector<std::string>& warnings, const std::string& machine,
                     const std::string& dump) {
  ContextOptions options;
  options.dump_folder = dump;
  options.device = device;
  options.plan_for = machine;
  options.warning_handler = [&warnings](const std::string& message) {
    warnings.push_back(message);
  };
  bool wants_device = implementations.empty() || !device.empty();
  for (const auto& name : implementations)
    wants_device = wants_device || name.starts_with("opencl");
  options.host_only = !wants_device;
  return Context(options);
}

}  // namespace tessera::programs
