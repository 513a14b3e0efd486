# SPDX-License-Identifier: Apache-2.0
# The example compares its kernels with plain C++: exit code 1 where they differ.
if(TESSERA_BUILD_EXAMPLES)
  add_test(NAME custom_kernels COMMAND custom_kernels)
endif()
