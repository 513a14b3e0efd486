# SPDX-License-Identifier: Apache-2.0
# The operators of tessera.torch: a library over the stable ABI of LibTorch. It needs PyTorch's
# headers, with its libraries beside them, and is left out where there are none.
set(TESSERA_TORCH_INCLUDE AUTO CACHE STRING
    "Folder of PyTorch's headers (torch/include), AUTO (build/tools/torch) or OFF")
set(torch_include "${TESSERA_TORCH_INCLUDE}")
if(torch_include STREQUAL "AUTO")
  set(tools "${PROJECT_SOURCE_DIR}/build/tools/torch")
  file(GLOB torch_include "${tools}/lib/python3*/site-packages/torch/include")
  if(NOT EXISTS "${tools}/versions")  # what the script writes last
    set(torch_include OFF)
  endif()
endif()
if(NOT torch_include)
  message(STATUS "No operators for PyTorch: build/tools/torch has no PyTorch "
                 "(scripts/torch_tools.sh), and TESSERA_TORCH_INCLUDE names none")
  return()
endif()
if(NOT EXISTS "${torch_include}/torch/csrc/stable/library.h")
  message(FATAL_ERROR "TESSERA_TORCH_INCLUDE is ${torch_include}, which has no "
                      "torch/csrc/stable/library.h; give the folder torch/include of PyTorch 2.10 "
                      "or later, or OFF")
endif()

file(GLOB torch_sources CONFIGURE_DEPENDS src/torch/*.cpp)
add_library(tessera_torch MODULE ${torch_sources})
tessera_target(tessera_torch)
target_include_directories(tessera_torch PRIVATE "${PROJECT_SOURCE_DIR}")
target_include_directories(tessera_torch SYSTEM PRIVATE "${torch_include}")
# One binary for PyTorch 2.10 and all later ones.
target_compile_definitions(tessera_torch PRIVATE TORCH_TARGET_VERSION=0x020a000000000000)
target_link_libraries(tessera_torch PRIVATE tessera)
# By its name alone and without a path: Python has loaded that library before, as RTLD_LOCAL, so
# that symbols are only found by who names it.
target_link_options(tessera_torch PRIVATE LINKER:--push-state,--no-as-needed
                    "${torch_include}/../lib/libtorch_cpu.so" LINKER:--pop-state)
set_target_properties(tessera_torch PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${package}")
add_dependencies(tessera_python tessera_torch)
