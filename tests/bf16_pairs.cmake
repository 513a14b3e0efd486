# SPDX-License-Identifier: Apache-2.0
# Products of bf16 by pairs (cl_kernels/engines/cpu/dot_bf16.cl) need an instruction that few processors
# have: its arithmetic is emulated, with everything around it as it is.
if(TESSERA_OPENCL)
  set(pairs "TESSERA_TEST_BF16_PAIRS=1;TESSERA_TEST_IMPLEMENTATIONS=opencl.cpu")
  add_test(NAME matrix_test_bf16_pairs COMMAND matrix_test --gtest_brief=1 --gtest_filter=*_pairs:*_types)
  set_tests_properties(matrix_test_bf16_pairs PROPERTIES COST 60 TIMEOUT 900 ENVIRONMENT
                       "${pairs};TESSERA_TEST_CASES=bf16_")
  # Compiling the emulation takes most of the time: not every option again.
  add_test(NAME matrix_test_bf16_pairs_more COMMAND matrix_test --gtest_brief=1 --gtest_filter=*_types:*_blocks:*_views)
  set_tests_properties(matrix_test_bf16_pairs_more PROPERTIES LABELS long TIMEOUT 1800 ENVIRONMENT
                       "${pairs};TESSERA_TEST_CASES=bf16")
endif()

# What a compiler makes of the instruction itself, for a processor that has it.
find_program(TESSERA_CLANG NAMES clang clang-14 clang-15 clang-16 clang-17 clang-18 clang-19)
if(TESSERA_CLANG AND CMAKE_OBJDUMP AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_test(NAME dot_bf16_code_test COMMAND Python3::Interpreter
           "${CMAKE_CURRENT_SOURCE_DIR}/dot_bf16_code_test.py" "${PROJECT_SOURCE_DIR}"
           "${TESSERA_CLANG}" "${CMAKE_OBJDUMP}")
  set_tests_properties(dot_bf16_code_test PROPERTIES LABELS host)
endif()
