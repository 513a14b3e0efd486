// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>

namespace train_text {

/// The whole of main: parses the arguments, runs `body`, and prints what it throws as a line on
/// stderr. Returns 0, 2 after a bad call (std::invalid_argument, or a tessera::Error that says so)
/// or 1 where the run itself failed, as tessera's programs do (docs/errors.md).
int run(CLI::App& app, const std::string& name, int argc, char** argv,
        const std::function<void()>& body);

}  // namespace train_text
