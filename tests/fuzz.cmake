# SPDX-License-Identifier: Apache-2.0
# Problems that nobody chose (tests/fuzz), a few of them each time; scripts/check.sh fuzz runs more.
find_package(CLI11 REQUIRED)
file(GLOB fuzz_sources CONFIGURE_DEPENDS fuzz/*.cpp)
add_executable(fuzz ${fuzz_sources})
tessera_target(fuzz)
target_compile_options(fuzz PRIVATE ${test_flags})
set_target_properties(fuzz PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
target_precompile_headers(fuzz REUSE_FROM tessera_test_headers)
target_link_libraries(fuzz PRIVATE tessera_test_support GTest::gtest CLI11::CLI11 fmt::fmt)
add_test(NAME fuzz COMMAND fuzz --cases 60 --profiles 1)
set_tests_properties(fuzz PROPERTIES TIMEOUT 600)
