# SPDX-License-Identifier: Apache-2.0
# The example compares itself with the whole batch: exit code 1 where they differ.
if(TESSERA_BUILD_EXAMPLES)
  set(micro_batches_implementations reference eigen)
  if(TESSERA_OPENCL)
    list(APPEND micro_batches_implementations opencl.cpu opencl.simt)
  endif()
  foreach(implementation IN LISTS micro_batches_implementations)
    add_test(NAME micro_batches_${implementation}
             COMMAND micro_batches --implementation ${implementation})
  endforeach()
  add_test(NAME micro_batches_uneven COMMAND micro_batches --size 7)
  add_test(NAME micro_batches_at_once COMMAND micro_batches --size 1000)
endif()
