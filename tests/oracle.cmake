# SPDX-License-Identifier: Apache-2.0
# The goldens are data of the repository; their options are JSON.
find_package(nlohmann_json REQUIRED)
target_link_libraries(tessera_test_support_objects PUBLIC nlohmann_json::nlohmann_json)
# Compiling kernels for as many options takes half a minute.
tessera_test(goldens_test goldens_test.cpp ONE_PROCESS PARTS "on_host=-*opencl*"
             "on_opencl=*opencl*")
set_tests_properties(goldens_test_on_opencl PROPERTIES LABELS long)
foreach(name oracle_goldens_test reference_test)
  tessera_test(${name} ${name}.cpp)
endforeach()
foreach(name goldens_test oracle_goldens_test reference_test)
  target_compile_definitions(${name} PRIVATE
                             TESSERA_GOLDENS="${CMAKE_CURRENT_SOURCE_DIR}/goldens")
endforeach()
