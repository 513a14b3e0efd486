# SPDX-License-Identifier: Apache-2.0
add_test(NAME architecture
         COMMAND Python3::Interpreter "${CMAKE_CURRENT_LIST_DIR}/architecture_test.py"
                 "${PROJECT_SOURCE_DIR}" --oracle $<TARGET_OBJECTS:tessera_oracle>
                 --streaming $<TARGET_OBJECTS:tessera_streaming>
                 $<TARGET_OBJECTS:tessera_streaming_kernels>
         COMMAND_EXPAND_LISTS)
set_tests_properties(architecture PROPERTIES LABELS host)
