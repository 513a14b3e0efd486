# SPDX-License-Identifier: Apache-2.0
# The verdicts of JAX's TPU lowering are data of the repository.
find_package(nlohmann_json REQUIRED)
tessera_test(tile_rules_test tile_rules_test.cpp)
target_link_libraries(tile_rules_test PRIVATE nlohmann_json::nlohmann_json)
target_compile_definitions(tile_rules_test PRIVATE
                           TESSERA_GOLDENS="${CMAKE_CURRENT_SOURCE_DIR}/tile_goldens")

tessera_test(tile_timeline_test tile_timeline_test.cpp)
target_link_libraries(tile_timeline_test PRIVATE nlohmann_json::nlohmann_json)
