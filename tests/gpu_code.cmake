# SPDX-License-Identifier: Apache-2.0
# Programs that GPUs are asked to compile, for scripts/gpu_code.sh.
if(TESSERA_OPENCL)
  add_executable(gpu_code gpu_code/gpu_code.cpp)
  tessera_target(gpu_code)
  set_target_properties(gpu_code PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  target_link_libraries(gpu_code PRIVATE tessera_internal)
endif()
