# SPDX-License-Identifier: Apache-2.0
# The installed library as strangers use it. A sanitized libtessera cannot be loaded by a program
# without the sanitizer, so those presets leave it out.
if(TESSERA_INSTALL AND NOT TESSERA_SANITIZE)
  add_test(NAME package COMMAND "${CMAKE_CURRENT_LIST_DIR}/package/run.sh" "${PROJECT_BINARY_DIR}")
  set_tests_properties(package PROPERTIES LABELS "host;long" COST 40 TIMEOUT 300)
endif()
