# SPDX-License-Identifier: Apache-2.0
if(TESSERA_BUILD_EXAMPLES)
  set(train_text_folder "${PROJECT_SOURCE_DIR}/examples/train_text")
  tessera_test(train_text_test train_text_test.cpp "${train_text_folder}/model.cpp"
               "${train_text_folder}/text.cpp" ONE_PROCESS)

  # The licence texts are on every Debian machine and are just long enough.
  set(train_text_implementations "reference,eigen")
  if(TESSERA_OPENCL)
    string(APPEND train_text_implementations ",opencl.cpu,opencl.simt")
  endif()
  file(GLOB train_text_licences /usr/share/common-licenses/GPL-* /usr/share/common-licenses/GFDL-*
       /usr/share/common-licenses/MPL-* /usr/share/common-licenses/LGPL-*
       /usr/share/common-licenses/Apache-2.0 /usr/share/common-licenses/Artistic)
  add_test(NAME train_text_curves
           COMMAND Python3::Interpreter "${train_text_folder}/compare.py"
                   $<TARGET_FILE:train_text> --implementations ${train_text_implementations} --
                   --steps 12 --batch 96 --hidden 48 --embedding 24 --max-vocab 1500
                   --eval-tokens 256 --text ${train_text_licences})
  set_tests_properties(train_text_curves PROPERTIES TIMEOUT 600)
  add_test(NAME train_text_errors
           COMMAND Python3::Interpreter "${CMAKE_CURRENT_LIST_DIR}/train_text_errors_test.py"
                   $<TARGET_FILE_DIR:train_text> ${train_text_licences})
  # A model and its students; a loss that is not finite fails.
  foreach(divergence IN ITEMS forward_kl reverse_kl jsd)
    set(beta "")
    if(divergence STREQUAL jsd)
      set(beta --beta 0.3)
    endif()
    add_test(NAME distill_${divergence}
             COMMAND distill --divergence ${divergence} ${beta} --temperature 2 --teacher-steps 12
                     --steps 12 --batch 96
                     --hidden 48 --embedding 24 --max-vocab 1500 --eval-tokens 256
                     --text ${train_text_licences})
    set_tests_properties(distill_${divergence} PROPERTIES TIMEOUT 600)
  endforeach()
else()
  list(APPEND left_out_tests train_text_test)
endif()
