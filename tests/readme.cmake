# SPDX-License-Identifier: Apache-2.0
# The README's commands as it has them. Each builds a copy of the tree: minutes where ccache has
# nothing of it.
foreach(build IN ITEMS plain preset)
  add_test(NAME readme_${build}
           COMMAND Python3::Interpreter "${CMAKE_CURRENT_LIST_DIR}/readme_test.py"
                   "${PROJECT_SOURCE_DIR}" ${build})
  set_tests_properties(readme_${build} PROPERTIES LABELS "host;long" COST 40 TIMEOUT 7200)
endforeach()
