# SPDX-License-Identifier: Apache-2.0
# Tables of many short cases: one process each, so that kernels are compiled once.
foreach(name matrix_test softmax_matrix_test subsets_test determinism_test shards_test sizes_test
             long_test)
  tessera_test(${name} ${CMAKE_CURRENT_SOURCE_DIR}/${name}.cpp ONE_PROCESS TIMEOUT 900)
endforeach()
