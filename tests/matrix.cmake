# SPDX-License-Identifier: Apache-2.0
# Tables of many short cases: one process each, so that kernels are compiled once.
foreach(name subsets_test determinism_test filter_test shards_test sizes_test workspace_test
             long_test)
  tessera_test(${name} ${CMAKE_CURRENT_SOURCE_DIR}/${name}.cpp ONE_PROCESS TIMEOUT 900)
endforeach()
# The largest: one process for each operator, by its file in support/operators. The whole product is
# `long`, see support/pairs.hpp: compiling its kernels takes most of the time.
file(GLOB operators RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}/support/operators" CONFIGURE_DEPENDS
     support/operators/*.cpp)
list(FILTER operators EXCLUDE REGEX "_cases\\.cpp$")
list(TRANSFORM operators REPLACE "\\.cpp$" "")
set(parts "")
foreach(operator IN LISTS operators)
  list(APPEND parts "of_${operator}=*/${operator}*:MatrixOfEnvironment.*")
endforeach()
tessera_test(matrix_test ${CMAKE_CURRENT_SOURCE_DIR}/matrix_test.cpp ONE_PROCESS TIMEOUT 900
             PARTS ${parts})
if(TESSERA_OPENCL)
  foreach(operator IN LISTS operators)
    foreach(engine IN ITEMS cpu simt)
      set(name matrix_test_product_of_${operator}_on_${engine})
      add_test(NAME ${name}
               COMMAND matrix_test --gtest_brief=1 --gtest_filter=*/${operator}_opencl_${engine}_*)
      set_tests_properties(${name} PROPERTIES LABELS long COST 150 TIMEOUT 1800
                           ENVIRONMENT TESSERA_TEST_PRODUCT=1)
    endforeach()
  endforeach()
  add_test(NAME opencl_knobs_test_product
           COMMAND opencl_knobs_test --gtest_brief=1 --gtest_filter=*EveryLegalValueIsRight*)
  add_test(NAME opencl_tuned_test_with_measured_rows
           COMMAND opencl_tuned_test --gtest_brief=1 --gtest_filter=MeasuredRows.*)
  set_tests_properties(opencl_tuned_test_with_measured_rows PROPERTIES
                       TIMEOUT 600 ENVIRONMENT TESSERA_MEASURED_ROWS=1)
  add_test(NAME opencl_tuned_test_product
           COMMAND opencl_tuned_test --gtest_brief=1 --gtest_filter=TunedPlans.*)
  set_tests_properties(opencl_knobs_test_product opencl_tuned_test_product PROPERTIES
                       LABELS long TIMEOUT 1800 ENVIRONMENT TESSERA_TEST_PRODUCT=1)
endif()

# The longest first, so that no core is left alone with them at the end; relative seconds.
set_tests_properties(matrix_test_of_linear_cross_entropy PROPERTIES COST 200)
set_tests_properties(matrix_test_of_linear_distillation PROPERTIES COST 100)
set_tests_properties(matrix_test_of_softmax_cross_entropy PROPERTIES COST 50)
set_tests_properties(filter_test PROPERTIES COST 40)
set_tests_properties(subsets_test determinism_test sizes_test workspace_test PROPERTIES COST 20)

# Engines for tests (engines/<name>) take every table that the library's own take; scripts/check.sh
# runs them once.
if(TESSERA_OPENCL)
  file(GLOB engine_names RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}/engines" engines/*)
  foreach(engine IN LISTS engine_names)
    foreach(name matrix_test shards_test filter_test sizes_test subsets_test determinism_test
                 workspace_test)
      add_test(NAME ${name}_on_${engine} COMMAND ${name} --gtest_brief=1)
      set_tests_properties(${name}_on_${engine} PROPERTIES
        LABELS "long;engines" TIMEOUT 900 ENVIRONMENT
        "TESSERA_TEST_ENGINES=${engine};TESSERA_TEST_IMPLEMENTATIONS=opencl.${engine}")
    endforeach()
    set_tests_properties(matrix_test_on_${engine} PROPERTIES COST 200)
  endforeach()
endif()

# Exponentials that value_and_grad keeps in local memory: 2,048 of a row, and 288, where there is
# little more than the 2,080 bytes with which the rows of a call are listed.
if(TESSERA_OPENCL)
  foreach(bytes IN ITEMS 16384 2304)
    add_test(NAME matrix_test_local_${bytes}
             COMMAND matrix_test --gtest_brief=1 --gtest_filter=*/softmax_cross_entropy*)
    set(environment "OPENCL_LAYERS=$<TARGET_FILE:tessera_test_layer>"
        TESSERA_TEST_IMPLEMENTATIONS=opencl.cpu TESSERA_LAYER_LIMITS=local_memory=${bytes})
    set_tests_properties(matrix_test_local_${bytes} PROPERTIES LABELS long TIMEOUT 900
                         ENVIRONMENT "${environment}")
  endforeach()
endif()

# Measures the process's own memory, of which sanitizers take their share.
if(TESSERA_OPENCL)
  tessera_test(opencl_call_test ${CMAKE_CURRENT_SOURCE_DIR}/opencl_call_test.cpp ONE_PROCESS
               LABELS unsanitized TIMEOUT 900)
endif()
