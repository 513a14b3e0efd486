# SPDX-License-Identifier: Apache-2.0
# Many threads and contexts for a long time (tests/soak): some seconds here, in which bits, events
# and objects are compared; scripts/check.sh soak runs long enough to judge memory, too.
find_package(CLI11 REQUIRED)
file(GLOB soak_sources CONFIGURE_DEPENDS soak/*.cpp)
add_executable(soak ${soak_sources})
tessera_target(soak)
target_compile_options(soak PRIVATE ${test_flags})
set_target_properties(soak PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
target_precompile_headers(soak REUSE_FROM tessera_test_headers)
target_link_libraries(soak PRIVATE tessera_test_support GTest::gtest CLI11::CLI11 fmt::fmt
                                   ${CMAKE_DL_LIBS})
if(TESSERA_OPENCL)
  add_dependencies(soak tessera_test_layer)
  target_compile_definitions(soak PRIVATE TESSERA_TEST_LAYER="$<TARGET_FILE:tessera_test_layer>")
endif()
add_test(NAME soak COMMAND soak --minutes 0.05)
set_tests_properties(soak PROPERTIES TIMEOUT 600)
