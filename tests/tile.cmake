# SPDX-License-Identifier: Apache-2.0
# What JAX says of the same shapes, schedules and programs is data of the repository.
find_package(nlohmann_json REQUIRED)
foreach(name tile_rules_test tile_traces_test tile_planted_test tile_programs_test
             tile_collectives_test)
  tessera_test(${name} ${name}.cpp)
  target_link_libraries(${name} PRIVATE nlohmann_json::nlohmann_json)
  target_compile_definitions(${name} PRIVATE
                             TESSERA_GOLDENS="${CMAKE_CURRENT_SOURCE_DIR}/tile_goldens")
endforeach()
target_sources(tile_planted_test PRIVATE tile_planted/copies.cpp tile_planted/cores.cpp
               tile_planted/grids.cpp)

tessera_test(tile_timeline_test tile_timeline_test.cpp)
target_link_libraries(tile_timeline_test PRIVATE nlohmann_json::nlohmann_json)

if(TARGET tile-examples)
  add_test(NAME tile_examples COMMAND tile-examples)
  add_test(NAME tile_examples_v5e COMMAND tile-examples v5e)
  set_tests_properties(tile_examples tile_examples_v5e PROPERTIES LABELS host)
endif()
