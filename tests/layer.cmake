# SPDX-License-Identifier: Apache-2.0
# The OpenCL layer for tests, and the tests that run on top of it.
if(TESSERA_OPENCL)
  add_library(tessera_test_layer MODULE layer/layer.cpp layer/commands.cpp layer/exports.cpp)
  target_link_libraries(tessera_test_layer PRIVATE Threads::Threads)
  tessera_target(tessera_test_layer)
  target_include_directories(tessera_test_layer PRIVATE ${OpenCL_INCLUDE_DIRS})
  target_compile_definitions(tessera_test_layer PRIVATE CL_TARGET_OPENCL_VERSION=300)

  # tessera_layer_test(name sources... [as tessera_test])
  function(tessera_layer_test name)
    tessera_test(${name} ${ARGN})
    add_dependencies(${name} tessera_test_layer)
    target_link_libraries(${name} PRIVATE ${CMAKE_DL_LIBS})
    target_compile_definitions(${name} PRIVATE
                               TESSERA_TEST_LAYER="$<TARGET_FILE:tessera_test_layer>")
  endfunction()

  tessera_layer_test(opencl_layer_test opencl_layer_test.cpp)
  tessera_layer_test(opencl_fault_test opencl_fault_test.cpp ONE_PROCESS)
  tessera_layer_test(opencl_hostile_test opencl_hostile_test.cpp ONE_PROCESS)
  tessera_layer_test(opencl_limits_test opencl_limits_test.cpp ONE_PROCESS)
endif()
