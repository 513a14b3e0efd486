// SPDX-License-Identifier: Apache-2.0
#include "host/linear_cross_entropy/request.hpp"

namespace tessera::linear_cross_entropy {

const dispatch::Table<Request>& table() {
  static const dispatch::Table<Request> rows = [] {
    dispatch::Table<Request> result;
#ifdef TESSERA_OPENCL
    result = opencl_implementations();
#else
    result.push_back(dispatch::left_out<Request>(
        "opencl", "this library was built without OpenCL (TESSERA_OPENCL=OFF)"));
#endif
    result.push_back(eigen_implementation());
    result.push_back(tile_implementation());
    result.push_back(reference_implementation());
    return result;
  }();
  return rows;
}

}  // namespace tessera::linear_cross_entropy
