// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/cl_icd.h>

namespace tessera_layer {

/// What the layer stands before.
extern const cl_icd_dispatch* driver;

template <class T>
T refuse(cl_int code, cl_int* status) {
  if (status != nullptr) *status = code;
  return nullptr;
}

/// Puts the functions that enqueue commands into the layer's table.
void install_commands(cl_icd_dispatch& table);

}  // namespace tessera_layer
