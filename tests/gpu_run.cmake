# SPDX-License-Identifier: Apache-2.0
# scripts/gpu.sh beside programs that crash, hang and print; scripts/check.sh gpu has the real ones.
add_test(NAME gpu_run
         COMMAND Python3::Interpreter "${CMAKE_CURRENT_LIST_DIR}/gpu_run_test.py"
                 "${PROJECT_SOURCE_DIR}")
set_tests_properties(gpu_run PROPERTIES LABELS host TIMEOUT 120)
