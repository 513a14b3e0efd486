# SPDX-License-Identifier: Apache-2.0
# The example compares its two ways to train: exit code 1 where they differ, where the loss does not
# fall or where arrays in device memory were copied.
if(TESSERA_BUILD_EXAMPLES AND TESSERA_OPENCL)
  set(device_memory_call device_memory --tokens 24 --hidden 32 --vocabulary 300 --steps 4)
  add_test(NAME device_memory COMMAND ${device_memory_call})
  # On a device that does not share the host's memory, where host arrays are copied.
  add_test(NAME device_memory_discrete COMMAND ${device_memory_call})
  set_tests_properties(device_memory_discrete PROPERTIES ENVIRONMENT
    "OPENCL_LAYERS=$<TARGET_FILE:tessera_test_layer>;TESSERA_LAYER_LIMITS=host_unified=0"
    FAIL_REGULAR_EXPRESSION "host arrays[^\n]*bytes staged: 0")
endif()
