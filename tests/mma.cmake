# SPDX-License-Identifier: Apache-2.0
# The engine for matrix units (cl_kernels/engines/matrix) needs a GPU that has them: here every
# work-item forms the elements that the instruction would give it, with all the rest as it is.
if(TESSERA_OPENCL)
  set(mma "TESSERA_TEST_BF16_PAIRS=1;TESSERA_TEST_IMPLEMENTATIONS=opencl.mma")
  set(groups "*/linear_cross_entropy_*_pairs:*/linear_distillation_*_pairs")
  add_test(NAME matrix_test_mma COMMAND matrix_test --gtest_brief=1 --gtest_filter=${groups})
  set_tests_properties(matrix_test_mma PROPERTIES COST 30 TIMEOUT 900 ENVIRONMENT
                       "${mma};TESSERA_TEST_CASES=f16")
  add_test(NAME matrix_test_mma_more COMMAND matrix_test --gtest_brief=1
           --gtest_filter=*linear_*opencl_mma*)
  set_tests_properties(matrix_test_mma_more PROPERTIES LABELS long TIMEOUT 1800 ENVIRONMENT
                       "${mma};TESSERA_TEST_PRODUCT=1")
endif()
