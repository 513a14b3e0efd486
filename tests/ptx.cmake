# SPDX-License-Identifier: Apache-2.0
# NVIDIA's kernels without a GPU: an interpreter of PTX, and an OpenCL layer that plays NVIDIA's
# driver with it. Programs are PTX that clang makes of them.
file(GLOB interpreter_sources CONFIGURE_DEPENDS ptx/*.cpp)
set(driver_sources ${interpreter_sources})
list(FILTER interpreter_sources EXCLUDE REGEX "/driver[^/]*$")
list(FILTER driver_sources INCLUDE REGEX "/driver[^/]*$")
add_library(tessera_ptx STATIC EXCLUDE_FROM_ALL ${interpreter_sources})
tessera_target(tessera_ptx)
# It runs far longer than it is compiled.
target_compile_options(tessera_ptx PRIVATE -fPIC -O3)
target_include_directories(tessera_ptx PRIVATE "${PROJECT_SOURCE_DIR}/include")
tessera_test(ptx_interpreter_test ptx_interpreter_test.cpp)
target_link_libraries(ptx_interpreter_test PRIVATE tessera_ptx)

find_program(TESSERA_CLANG_19 NAMES clang-19)
find_file(TESSERA_LIBCLC_NVPTX NAMES nvptx64--nvidiacl.bc PATHS /usr/lib/clc NO_DEFAULT_PATH)
if(NOT TESSERA_OPENCL)
  return()
endif()
set(driver "")
if(TESSERA_CLANG_19 AND TESSERA_LIBCLC_NVPTX)
  add_library(tessera_ptx_driver MODULE ${driver_sources})
  tessera_target(tessera_ptx_driver)
  target_link_libraries(tessera_ptx_driver PRIVATE tessera_ptx Threads::Threads)
  target_include_directories(tessera_ptx_driver PRIVATE ${OpenCL_INCLUDE_DIRS})
  target_compile_definitions(tessera_ptx_driver PRIVATE CL_TARGET_OPENCL_VERSION=300
                             TESSERA_CLANG_19="${TESSERA_CLANG_19}"
                             TESSERA_LIBCLC_NVPTX="${TESSERA_LIBCLC_NVPTX}")
  set(driver $<TARGET_FILE:tessera_ptx_driver>)

  # Sizes and layouts of opencl.mma by its instructions; all cases are in the section ptx of
  # scripts/check.sh. The emulation of them in OpenCL C is `long` then.
  add_test(NAME matrix_test_ptx COMMAND matrix_test --gtest_brief=1
           --gtest_filter=*_value_and_grad_pairs)
  set_tests_properties(matrix_test_ptx PROPERTIES COST 30 TIMEOUT 900 ENVIRONMENT
                       "OPENCL_LAYERS=${driver};TESSERA_TEST_IMPLEMENTATIONS=opencl.mma")
  set_tests_properties(matrix_test_mma PROPERTIES LABELS long)
endif()
# Without clang-19 they skip.
foreach(name opencl_ptx_test opencl_ptx_wgmma_test opencl_ptx_mixed_test)
  tessera_test(${name} ${name}.cpp ONE_PROCESS)
  target_link_libraries(${name} PRIVATE ${CMAKE_DL_LIBS})
  target_compile_definitions(${name} PRIVATE TESSERA_PTX_DRIVER="${driver}")
  if(driver)
    add_dependencies(${name} tessera_ptx_driver)
  endif()
endforeach()
set_tests_properties(opencl_ptx_mixed_test PROPERTIES LABELS long TIMEOUT 1800)
set_tests_properties(opencl_ptx_wgmma_test PROPERTIES COST 30)
