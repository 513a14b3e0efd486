# SPDX-License-Identifier: Apache-2.0
# A program for bench/peers/bf16_gradients.py; it sets the emulated instruction, which tests can.
if(TESSERA_OPENCL)
  find_package(CLI11 REQUIRED)
  add_executable(bf16_gradients bf16_gradients/bf16_gradients.cpp)
  tessera_target(bf16_gradients)
  set_target_properties(bf16_gradients PROPERTIES RUNTIME_OUTPUT_DIRECTORY
                        "${CMAKE_CURRENT_BINARY_DIR}")
  target_link_libraries(bf16_gradients PRIVATE tessera_test_support CLI11::CLI11 fmt::fmt)
endif()
