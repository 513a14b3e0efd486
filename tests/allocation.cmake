# SPDX-License-Identifier: Apache-2.0
# Allocations that fail, or are counted: an `operator new` of the test's own, which sanitizers have
# one of, too.
tessera_test(allocation_test allocation_test.cpp allocation/failing_new.cpp ONE_PROCESS
             LABELS unsanitized)
tessera_test(allocations_test allocations_test.cpp LABELS unsanitized)
target_link_libraries(allocation_test PRIVATE ${CMAKE_DL_LIBS})
if(TESSERA_OPENCL)
  add_dependencies(allocation_test tessera_test_layer)
  target_compile_definitions(allocation_test PRIVATE
                             TESSERA_TEST_LAYER="$<TARGET_FILE:tessera_test_layer>")
endif()
