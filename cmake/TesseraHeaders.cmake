# SPDX-License-Identifier: Apache-2.0
# all_verify_interface_header_sets compiles every header of the tree by itself: what it needs, it
# includes. What is public sees no folder of the tree but include/.
find_package(benchmark REQUIRED)
find_package(CLI11 REQUIRED)
find_package(GTest REQUIRED)
find_package(nlohmann_json REQUIRED)

function(tessera_headers name)
  cmake_parse_arguments(arg "" "BASE" "FILES;LINK" ${ARGN})
  add_library(${name} INTERFACE)
  target_sources(${name} INTERFACE FILE_SET HEADERS BASE_DIRS "${arg_BASE}" FILES ${arg_FILES})
  target_compile_features(${name} INTERFACE cxx_std_20)
  target_compile_options(${name} INTERFACE -Wall -Wextra -Werror -fsyntax-only)
  target_link_libraries(${name} INTERFACE ${arg_LINK})
  set_target_properties(${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
endfunction()

set(folders bench examples host peaks programs reference tests tuning)
list(TRANSFORM folders APPEND "/*.hpp")
file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${folders} cl_kernels/*.h)
# Parts of the text of kernels_<instructions>.cpp, which say by a macro for which it is.
list(FILTER headers EXCLUDE REGEX
     "/reference/streaming/kernels_(impl|types|distill|attention)\\.hpp$")
file(GLOB_RECURSE public_headers CONFIGURE_DEPENDS include/*.hpp)
tessera_headers(tessera_public_headers BASE "${PROJECT_SOURCE_DIR}/include" FILES ${public_headers}
                LINK Eigen3::Eigen)
tessera_headers(tessera_internal_headers BASE "${PROJECT_SOURCE_DIR}" FILES ${headers}
                LINK tessera_objects benchmark::benchmark CLI11::CLI11 GTest::gtest
                nlohmann_json::nlohmann_json)
target_include_directories(tessera_internal_headers INTERFACE "${PROJECT_SOURCE_DIR}/tests"
                           "${PROJECT_SOURCE_DIR}/examples/train_text")
target_compile_definitions(tessera_internal_headers INTERFACE TESSERA_TEST_SUPPORT=""
                           TESSERA_TEST_DATA="" TESSERA_TEST_LAYER="" TESSERA_GOLDENS=""
                           TESSERA_PTX_DRIVER="")
