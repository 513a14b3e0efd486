# SPDX-License-Identifier: Apache-2.0
# What must not compile, with the compiler of this build and any other that is there. A
# sanitizer changes nothing in that.
if(NOT TESSERA_SANITIZE)
  set(compile_fail_compilers "${CMAKE_CXX_COMPILER}")
  foreach(name IN ITEMS g++ clang++)
    find_program(compile_fail_${name} ${name})
    mark_as_advanced(compile_fail_${name})
    if(compile_fail_${name})
      list(APPEND compile_fail_compilers "${compile_fail_${name}}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES compile_fail_compilers)
  get_target_property(compile_fail_eigen Eigen3::Eigen INTERFACE_INCLUDE_DIRECTORIES)
  add_test(NAME compile_fail
           COMMAND Python3::Interpreter "${CMAKE_CURRENT_LIST_DIR}/compile_fail_test.py"
                   "${PROJECT_SOURCE_DIR}" "${compile_fail_eigen}" ${compile_fail_compilers})
  set_tests_properties(compile_fail PROPERTIES LABELS host COST 10 TIMEOUT 300)
endif()
