# SPDX-License-Identifier: Apache-2.0
# Turns the .cl and .h files of a folder into one C++ source, so that the library reads no file at
# run time. Strings are cut into pieces below the 16 KB that MSVC allows per literal.
# function: what the source defines, of tessera::opencl; prefix: stands before each path.
function(tessera_embed_kernels output folder function prefix)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS "${folder}/*.cl" "${folder}/*.h")
  add_custom_command(
    OUTPUT "${output}"
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DFOLDER=${folder} -DFUNCTION=${function}
            "-DPREFIX=${prefix}" -P "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/embed_kernels.cmake"
    DEPENDS ${kernels} "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/embed_kernels.cmake"
    VERBATIM)
endfunction()
