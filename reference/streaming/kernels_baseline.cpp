// SPDX-License-Identifier: Apache-2.0
#define TESSERA_ISA baseline
#define TESSERA_ISA_NAME "baseline"
#include "reference/streaming/kernels_impl.hpp"
