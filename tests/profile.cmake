# SPDX-License-Identifier: Apache-2.0
# In a process each, so that no program is compiled twice.
tessera_test(profile_test profile_test.cpp ONE_PROCESS LABELS host)
if(TESSERA_OPENCL)
  tessera_test(opencl_profile_test opencl_profile_test.cpp ONE_PROCESS)
endif()
