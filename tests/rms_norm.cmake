# SPDX-License-Identifier: Apache-2.0
# Arrays that no single allocation holds: rows come in several launches, which share sums.
if(TESSERA_OPENCL)
  add_test(NAME rms_norm_in_parts
           COMMAND rms_norm_test --gtest_brief=1
                   --gtest_filter=*IsTheTextbooks*)
  set(environment "OPENCL_LAYERS=$<TARGET_FILE:tessera_test_layer>"
      TESSERA_TEST_IMPLEMENTATIONS=opencl.cpu TESSERA_TEST_CASES=blocks,odd,offset,only_scale
      TESSERA_LAYER_LIMITS=max_allocation=1000)
  set_tests_properties(rms_norm_in_parts PROPERTIES
                       TIMEOUT 300 ENVIRONMENT "${environment}")
endif()
