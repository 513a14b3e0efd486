# SPDX-License-Identifier: Apache-2.0
# The pages beside the code, the programs and the committed results.
set(document_programs "")
foreach(program IN ITEMS tessera-info tessera-score tessera-tile tessera-bench tessera-latency
                         tessera-tune
                         train_text distill)
  if(TARGET ${program})
    list(APPEND document_programs "$<TARGET_FILE:${program}>")
  endif()
endforeach()
add_test(NAME documents
         COMMAND Python3::Interpreter "${CMAKE_CURRENT_LIST_DIR}/documents_test.py"
                 "${PROJECT_SOURCE_DIR}" ${document_programs})
set_tests_properties(documents PROPERTIES LABELS host)
