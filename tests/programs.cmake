# SPDX-License-Identifier: Apache-2.0
# The programs' own parts, and the programs themselves as users call them.
if(TESSERA_BUILD_PROGRAMS)
  set(programs "${PROJECT_SOURCE_DIR}/programs")
  tessera_test(npy_test npy_test.cpp "${programs}/npy.cpp" "${programs}/npy_header.cpp"
               "${programs}/output_set.cpp")
  # By their archive: tessera_programs as a library would bring libtessera.so in beside its modules.
  tessera_test(dump_summary_test dump_summary_test.cpp LABELS host)
  add_dependencies(dump_summary_test tessera_programs)
  target_link_libraries(dump_summary_test PRIVATE "$<TARGET_FILE:tessera_programs>"
                        tessera_internal nlohmann_json::nlohmann_json)
  tessera_test(progress_test progress_test.cpp "${programs}/progress.cpp")

  # Debian's numpy belongs to Debian's python3, which need not be the first one on the path.
  set(TESSERA_TEST_PYTHON "")
  foreach(candidate IN ITEMS /usr/bin/python3 python3)
    execute_process(COMMAND ${candidate} -c "import numpy" RESULT_VARIABLE no_numpy
                    OUTPUT_QUIET ERROR_QUIET)
    if(no_numpy EQUAL 0 AND NOT TESSERA_TEST_PYTHON)
      set(TESSERA_TEST_PYTHON ${candidate})
    endif()
  endforeach()
  if(TESSERA_TEST_PYTHON)
    foreach(part IN ITEMS values shards targets teacher errors info explain trace)
      add_test(NAME programs_${part}
               COMMAND ${TESSERA_TEST_PYTHON} "${CMAKE_CURRENT_LIST_DIR}/programs_test.py"
                       "$<TARGET_FILE_DIR:tessera-score>" ${part})
      set_tests_properties(programs_${part} PROPERTIES TIMEOUT 600)
    endforeach()
    add_test(NAME programs_tile
             COMMAND ${TESSERA_TEST_PYTHON} "${CMAKE_CURRENT_LIST_DIR}/tile_program_test.py"
                     "$<TARGET_FILE_DIR:tessera-tile>")
    set_tests_properties(programs_tile PROPERTIES LABELS host TIMEOUT 600)
  else()
    message(STATUS "python3 with numpy was not found: the programs are not tested")
  endif()
  # Those that write files: killed in the middle, and without room.
  add_test(NAME kills
           COMMAND Python3::Interpreter "${CMAKE_CURRENT_LIST_DIR}/kills_test.py"
                   "$<TARGET_FILE_DIR:tessera-score>")
  set_tests_properties(kills PROPERTIES TIMEOUT 600 LABELS long)
else()
  list(APPEND left_out_tests npy_test progress_test dump_summary_test)
endif()
