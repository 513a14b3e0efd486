# SPDX-License-Identifier: Apache-2.0
# What scripts/new_operator.sh makes of the template as it is now.
add_test(NAME new_operator
         COMMAND Python3::Interpreter "${CMAKE_CURRENT_LIST_DIR}/new_operator_test.py"
                 "${PROJECT_SOURCE_DIR}")
set_tests_properties(new_operator PROPERTIES LABELS host SKIP_RETURN_CODE 77)
