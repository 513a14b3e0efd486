# SPDX-License-Identifier: Apache-2.0
# The test stands for an OpenMP runtime: it exports the names of one, and counts the calls.
tessera_test(openmp_test openmp_test.cpp)
set_target_properties(openmp_test PROPERTIES ENABLE_EXPORTS ON)
