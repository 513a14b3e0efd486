// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tessera::test {

/// What the environment asks of a process that runs tests: TESSERA_TEST_ENGINES and
/// TESSERA_TEST_KERNEL_DIR. False, and a line on stderr, where that cannot be.
bool take_environment();

}  // namespace tessera::test
