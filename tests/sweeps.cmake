# SPDX-License-Identifier: Apache-2.0
# The scripts around tessera-bench; they need the python3 with numpy that programs.cmake finds.
if(TESSERA_BUILD_BENCH AND TESSERA_TEST_PYTHON)
  add_test(NAME bench_scripts
           COMMAND ${TESSERA_TEST_PYTHON} "${CMAKE_CURRENT_LIST_DIR}/bench_scripts_test.py"
                   "$<TARGET_FILE:tessera-bench>" "$<TARGET_FILE:tessera-peer>"
                   "${PROJECT_SOURCE_DIR}")
  set_tests_properties(bench_scripts PROPERTIES TIMEOUT 600)
endif()
