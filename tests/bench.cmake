# SPDX-License-Identifier: Apache-2.0
# tessera-bench as users call it: names, counters and errors. Nothing here looks at a time.
if(TESSERA_BUILD_BENCH)
  add_test(NAME bench
           COMMAND ${Python3_EXECUTABLE} "${CMAKE_CURRENT_LIST_DIR}/bench_test.py"
                   "$<TARGET_FILE:tessera-bench>" "${PROJECT_SOURCE_DIR}")
  # It measures peaks on whatever else runs; alone, it takes some seconds.
  set_tests_properties(bench PROPERTIES TIMEOUT 600 RUN_SERIAL OFF)
endif()
