# SPDX-License-Identifier: Apache-2.0
# tessera-tune as users call it, for the most part with a program in the place of tessera-bench; and
# the picture of what it measured, where programs.cmake finds a python3 that may draw one.
if(TARGET tessera-tune)
  set(tune_python "${Python3_EXECUTABLE}")
  if(TESSERA_TEST_PYTHON)
    set(tune_python "${TESSERA_TEST_PYTHON}")
  endif()
  add_test(NAME tune
           COMMAND "${tune_python}" "${CMAKE_CURRENT_LIST_DIR}/tune_test.py"
                   "$<TARGET_FILE:tessera-tune>" "${PROJECT_SOURCE_DIR}")
  set_tests_properties(tune PROPERTIES TIMEOUT 300 LABELS host)
endif()
