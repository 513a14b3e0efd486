// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <stdexcept>

#include "tessera/error.hpp"

namespace train_text {
namespace {

constexpr int failed = 1;
constexpr int bad_call = 2;

int exit_code(tessera::ErrorCode code) {
  switch (code) {
    case tessera::ErrorCode::build_failed:
    case tessera::ErrorCode::out_of_memory:
    case tessera::ErrorCode::execution_failed:
      return failed;
    default:
      return bad_call;
  }
}

}  // namespace

int run(CLI::App& app, const std::string& name, int argc, char** argv,
        const std::function<void()>& body) {
  const auto end = [&](const std::exception& error, int code) {
    fmt::print(stderr, "{}: error: {}\n", name, error.what());
    return code;
  };
  try {
    app.parse(argc, argv);
    body();
    return 0;
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? app.exit(error) : end(error, bad_call);  // 0: --help
  } catch (const tessera::Error& error) {
    return end(error, exit_code(error.code()));
  } catch (const std::invalid_argument& error) {
    return end(error, bad_call);
  } catch (const std::exception& error) {
    return end(error, failed);
  }
}

}  // namespace train_text
