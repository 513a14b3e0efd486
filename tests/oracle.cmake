# SPDX-License-Identifier: Apache-2.0
# The goldens are data of the repository; their options are JSON.
find_package(nlohmann_json REQUIRED)
target_link_libraries(tessera_test_support_objects PUBLIC nlohmann_json::nlohmann_json)
foreach(name oracle_goldens_test reference_test linear_distillation_test)
  tessera_test(${name} ${name}.cpp)
  target_compile_definitions(${name} PRIVATE
                             TESSERA_GOLDENS="${CMAKE_CURRENT_SOURCE_DIR}/goldens")
endforeach()
