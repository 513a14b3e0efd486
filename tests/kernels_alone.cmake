# SPDX-License-Identifier: Apache-2.0
# Kernels by themselves, without a driver: what clang says of them, and what it makes of some.
if(TESSERA_OPENCL)
  add_executable(kernels_alone kernels_alone.cpp)
  tessera_target(kernels_alone)
  target_link_libraries(kernels_alone PRIVATE tessera_internal)

  find_program(TESSERA_CLANG NAMES clang clang-14 clang-15 clang-16 clang-17 clang-18 clang-19)
  add_test(NAME kernels_alone_test COMMAND Python3::Interpreter
           "${CMAKE_CURRENT_SOURCE_DIR}/kernels_alone_test.py" $<TARGET_FILE:kernels_alone>
           "${TESSERA_CLANG}")
  # 77: clang is absent.
  set_tests_properties(kernels_alone_test PROPERTIES LABELS host SKIP_RETURN_CODE 77 TIMEOUT 600)

  # What a compiler makes of products by pairs of bf16, for a processor that has the instruction.
  if(TESSERA_CLANG AND CMAKE_OBJDUMP AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    add_test(NAME dot_bf16_code_test COMMAND Python3::Interpreter
             "${CMAKE_CURRENT_SOURCE_DIR}/dot_bf16_code_test.py" $<TARGET_FILE:kernels_alone>
             "${TESSERA_CLANG}" "${CMAKE_OBJDUMP}")
    set_tests_properties(dot_bf16_code_test PROPERTIES LABELS host)
  endif()
endif()
