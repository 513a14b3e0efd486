// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/error.hpp"

namespace tessera::test {

/// `call()` throws an Error of this code whose message has all of `parts`.
template <class Call>
void expect_error(ErrorCode code, const std::vector<std::string>& parts, const Call& call) {
  try {
    call();
    ADD_FAILURE() << "no error: " << to_string(code) << (parts.empty() ? "" : " " + parts.front());
  } catch (const Error& error) {
    EXPECT_EQ(std::string(to_string(error.code())), to_string(code)) << error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "no \"" << part << "\" in: " << error.what();
    }
  }
}

}  // namespace tessera::test
