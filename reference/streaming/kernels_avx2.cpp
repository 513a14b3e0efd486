// SPDX-License-Identifier: Apache-2.0
#define TESSERA_ISA avx2
#define TESSERA_ISA_NAME "avx2"
#include "reference/streaming/kernels_impl.hpp"
