// SPDX-License-Identifier: Apache-2.0
#define TESSERA_ISA avx512
#define TESSERA_ISA_NAME "avx512"
#include "reference/streaming/kernels_impl.hpp"
