# SPDX-License-Identifier: Apache-2.0
# Products of bf16 by pairs (cl_kernels/engines/cpu/dot_bf16.cl) need an instruction that few
# processors have: its arithmetic is emulated, with everything around it as it is.
if(TESSERA_OPENCL)
  set(pairs "TESSERA_TEST_BF16_PAIRS=1;TESSERA_TEST_IMPLEMENTATIONS=opencl.cpu")
  add_test(NAME matrix_test_bf16_pairs COMMAND matrix_test --gtest_brief=1
           --gtest_filter=*/linear_cross_entropy_*_pairs:*/linear_cross_entropy_*_types)
  set_tests_properties(matrix_test_bf16_pairs PROPERTIES COST 60 TIMEOUT 900 ENVIRONMENT
                       "${pairs};TESSERA_TEST_CASES=bf16_")
  # Compiling the emulation takes most of the time: not every option again.
  set(groups "*/linear_cross_entropy_*_types:*/linear_cross_entropy_*_blocks")
  string(APPEND groups ":*/linear_cross_entropy_*_views:*/linear_cross_entropy_*_filtered")
  string(APPEND groups ":*/linear_distillation_*_schedules:*/linear_distillation_*_distilled")
  add_test(NAME matrix_test_bf16_pairs_more COMMAND matrix_test --gtest_brief=1
           --gtest_filter=${groups})
  set_tests_properties(matrix_test_bf16_pairs_more PROPERTIES LABELS long TIMEOUT 1800 ENVIRONMENT
                       "${pairs};TESSERA_TEST_CASES=bf16")
  # What exactly is left out, of a dz that is rounded.
  add_test(NAME filter_test_bf16_pairs COMMAND filter_test --gtest_brief=1)
  set_tests_properties(filter_test_bf16_pairs PROPERTIES LABELS long TIMEOUT 900 ENVIRONMENT
                       "${pairs};TESSERA_TEST_CASES=bf16")
endif()
