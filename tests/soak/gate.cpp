// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/gate.hpp"

#include <stdexcept>
#include <string>

#ifdef TESSERA_OPENCL
#include <CL/cl.h>
#endif

namespace tessera::test::soak {

#ifdef TESSERA_OPENCL

namespace {
void check(cl_int code, const char* what) {
  if (code == CL_SUCCESS) return;
  throw std::runtime_error(std::string(what) + " failed with " + std::to_string(code));
}
}  // namespace

Gates::Gates(Context& context, bool out_of_order) : context_(context) {
  if (!context.has_device()) return;
  cl_int code = CL_SUCCESS;
  queue_ = clCreateCommandQueue(context.native_context(), context.native_device(),
                                out_of_order ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0, &code);
  check(code, "clCreateCommandQueue");
}

Gates::~Gates() {
  if (queue_ != nullptr) clReleaseCommandQueue(queue_);
}

cl_event Gates::make() {
  cl_int code = CL_SUCCESS;
  const cl_event gate = clCreateUserEvent(context_.native_context(), &code);
  check(code, "clCreateUserEvent");
  return gate;
}

void Gates::open(cl_event gate) {
  check(clSetUserEventStatus(gate, CL_COMPLETE), "clSetUserEventStatus");
  clReleaseEvent(gate);
}

void Gates::fail(cl_event gate) {
  check(clSetUserEventStatus(gate, CL_OUT_OF_RESOURCES), "clSetUserEventStatus");
  clReleaseEvent(gate);
}

#else

Gates::Gates(Context& context, bool) : context_(context) {}
Gates::~Gates() = default;
cl_event Gates::make() { throw std::runtime_error("built without OpenCL"); }
void Gates::open(cl_event) {}
void Gates::fail(cl_event) {}

#endif

}  // namespace tessera::test::soak
