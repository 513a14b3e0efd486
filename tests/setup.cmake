# SPDX-License-Identifier: Apache-2.0
# The packages that are missing on other systems.
add_test(NAME setup
         COMMAND Python3::Interpreter "${CMAKE_CURRENT_LIST_DIR}/setup_test.py"
                 "${PROJECT_SOURCE_DIR}")
set_tests_properties(setup PROPERTIES LABELS host)
