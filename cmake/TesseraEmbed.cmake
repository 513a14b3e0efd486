# SPDX-License-Identifier: Apache-2.0
# Turns the files of a folder into one C++ source, so that the library reads no file at run time.
# Strings are cut into pieces below the 16 KB that MSVC allows per literal.
# function: what the source defines, a list of `type`, which is a struct of path and text; header
# declares both, in the namespace scope. prefix: stands before each path.
function(tessera_embed output folder header scope type function prefix)
  set(extensions ${ARGN})
  list(TRANSFORM extensions PREPEND "${folder}/*." OUTPUT_VARIABLE patterns)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${patterns})
  list(JOIN extensions "," extensions)
  set(script "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/embed_files.cmake")
  add_custom_command(
    OUTPUT "${output}"
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DFOLDER=${folder} -DEXTENSIONS=${extensions}
            -DHEADER=${header} -DSCOPE=${scope} -DTYPE=${type} -DFUNCTION=${function}
            "-DPREFIX=${prefix}" -P "${script}"
    DEPENDS ${files} "${script}"
    VERBATIM)
endfunction()

# The .cl and .h files of a folder of kernels.
function(tessera_embed_kernels output folder function prefix)
  tessera_embed("${output}" "${folder}" host/opencl/embedded_kernels.hpp tessera::opencl
                EmbeddedKernel ${function} "${prefix}" cl h)
endfunction()
