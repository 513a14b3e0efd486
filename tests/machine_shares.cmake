# SPDX-License-Identifier: Apache-2.0
# Plans for machines that are not here: which share of them the products keep busy.
if(TESSERA_OPENCL)
  find_package(CLI11 REQUIRED)
  add_executable(machine_shares machine_shares/machine_shares.cpp)
  tessera_target(machine_shares)
  set_target_properties(machine_shares PROPERTIES RUNTIME_OUTPUT_DIRECTORY
                        "${CMAKE_CURRENT_BINARY_DIR}")
  target_link_libraries(machine_shares PRIVATE tessera_test_support CLI11::CLI11 fmt::fmt)
  add_test(NAME machine_shares_test COMMAND machine_shares)
  set_tests_properties(machine_shares_test PROPERTIES LABELS host)
endif()
