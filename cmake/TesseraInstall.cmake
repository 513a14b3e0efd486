# SPDX-License-Identifier: Apache-2.0
# What a user of an installed tessera sees: headers, library, programs, find_package and pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/tessera" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.hpp")
install(TARGETS tessera tessera_tile EXPORT tessera-targets
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT tessera-targets NAMESPACE tessera:: FILE tessera-targets.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)

configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/tessera-config.cmake.in" "${PROJECT_BINARY_DIR}/tessera-config.cmake"
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
# Before 1.0 a minor version may break; the SOVERSION says the same.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tessera-config-version.cmake"
                                 VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/tessera-config.cmake"
              "${PROJECT_BINARY_DIR}/tessera-config-version.cmake"
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)

# Whoever links libtessera.so needs nothing more; the static archive brings its own needs along.
set(TESSERA_PC_PRIVATE_LIBS "-lstdc++ -lm -pthread")
set(TESSERA_PC_PRIVATE_REQUIRES "fmt")
if(TESSERA_OPENCL)
  string(APPEND TESSERA_PC_PRIVATE_REQUIRES ", OpenCL")
endif()
# Relative to the file itself, so that `cmake --install --prefix` and moved trees work.
cmake_path(APPEND CMAKE_INSTALL_FULL_LIBDIR "pkgconfig" OUTPUT_VARIABLE pkgconfig_dir)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY "${pkgconfig_dir}"
           OUTPUT_VARIABLE prefix_from_pc)
set(TESSERA_PC_PREFIX "\${pcfiledir}/${prefix_from_pc}")
foreach(kind INCLUDEDIR LIBDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${kind}}")
    set(TESSERA_PC_${kind} "${CMAKE_INSTALL_${kind}}")
  else()
    set(TESSERA_PC_${kind} "\${prefix}/${CMAKE_INSTALL_${kind}}")
  endif()
endforeach()
function(tessera_pc name library description requires)
  set(TESSERA_PC_NAME "${name}")
  set(TESSERA_PC_LIBRARY "${library}")
  set(TESSERA_PC_DESCRIPTION "${description}")
  set(TESSERA_PC_PRIVATE_REQUIRES "${requires}")
  configure_file("${PROJECT_SOURCE_DIR}/cmake/tessera.pc.in"
                 "${PROJECT_BINARY_DIR}/${name}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/${name}.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
tessera_pc(tessera tessera "${PROJECT_DESCRIPTION}" "${TESSERA_PC_PRIVATE_REQUIRES}")
# The tile machine alone, for who has no OpenCL and wants none.
tessera_pc(tessera-tile tessera_tile "TPU kernels on the host: schedule, rules, races, time" "fmt")

foreach(program IN ITEMS tessera-info tessera-score tessera-bench tessera-tile
                 tessera-tune)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
