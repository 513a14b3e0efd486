# SPDX-License-Identifier: Apache-2.0
# tessera-latency replays what a call enqueued and compares every word of the results. Nothing here
# looks at a time.
if(TESSERA_BUILD_BENCH AND TESSERA_OPENCL)
  add_test(NAME latency COMMAND tessera-latency --repeat 3 --rounds 1 --b 1,65)
  add_test(NAME latency_first_call
           COMMAND tessera-latency --first-call --operators softmax --passes forward --memory host
                   --b 2 --warm 1)
  set_tests_properties(latency latency_first_call PROPERTIES TIMEOUT 300)
endif()
