# SPDX-License-Identifier: Apache-2.0
# The flags every target of the project shares.
function(tessera_target name)
  target_compile_features(${name} PUBLIC cxx_std_20)
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden
                        VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wshadow)
  if(TESSERA_WERROR)
    target_compile_options(${name} PRIVATE -Werror)
  endif()
  if(TESSERA_SANITIZE)
    target_compile_options(${name} PRIVATE -fsanitize=${TESSERA_SANITIZE}
                           -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${name} PRIVATE -fsanitize=${TESSERA_SANITIZE})
  endif()
endfunction()
