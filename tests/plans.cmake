# SPDX-License-Identifier: Apache-2.0
# Plans of the linear operators for machines that are not here, as text to compare.
if(TESSERA_OPENCL)
  find_package(CLI11 REQUIRED)
  add_executable(plans plans/plans.cpp plans/planner.cpp plans/questions.cpp)
  tessera_target(plans)
  set_target_properties(plans PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  target_link_libraries(plans PRIVATE tessera_test_support CLI11::CLI11 fmt::fmt)
  add_test(NAME plans_test COMMAND plans --count 300 --check)
  set_tests_properties(plans_test PROPERTIES LABELS host)
endif()
