// SPDX-License-Identifier: Apache-2.0
// Kernels and their arguments.
#include "driver.hpp"

namespace tessera_driver {

namespace {

std::shared_ptr<Kernel> own(cl_kernel kernel) { return kernels().find(kernel); }

cl_kernel make_kernel(cl_program handle, const std::shared_ptr<Program>& program,
                      const tessera_ptx::Signature& signature) {
  auto kernel = std::make_shared<Kernel>();
  kernel->handle = handle;
  programs().change(handle, 1);
  kernel->program = program;
  kernel->module = program->module;
  kernel->signature = &signature;
  const std::size_t count = signature.parameters.size();
  kernel->arguments.resize(count);
  kernel->memory.resize(count);
  kernel->is_set.resize(count);
  return static_cast<cl_kernel>(kernels().add(std::move(kernel)));
}

cl_kernel CL_API_CALL create(cl_program handle, const char* name, cl_int* status) {
  const auto program = programs().find(handle);
  if (program == nullptr) return below->clCreateKernel(handle, name, status);
  if (program->module == nullptr) return give(CL_INVALID_PROGRAM_EXECUTABLE, status), nullptr;
  for (const auto& signature : program->module->kernels()) {
    if (name == nullptr || signature.name != name) continue;
    give(CL_SUCCESS, status);
    return make_kernel(handle, program, signature);
  }
  give(name == nullptr ? CL_INVALID_VALUE : CL_INVALID_KERNEL_NAME, status);
  return nullptr;
}

cl_int CL_API_CALL create_all(cl_program handle, cl_uint count, cl_kernel* made, cl_uint* found) {
  const auto program = programs().find(handle);
  if (program == nullptr) return below->clCreateKernelsInProgram(handle, count, made, found);
  if (program->module == nullptr) return CL_INVALID_PROGRAM_EXECUTABLE;
  const auto& signatures = program->module->kernels();
  if (found != nullptr) *found = static_cast<cl_uint>(signatures.size());
  if (made == nullptr) return CL_SUCCESS;
  if (count < signatures.size()) return CL_INVALID_VALUE;
  for (const auto& signature : signatures) *made++ = make_kernel(handle, program, signature);
  return CL_SUCCESS;
}

cl_int CL_API_CALL set_argument(cl_kernel handle, cl_uint index, std::size_t size,
                                const void* value) {
  const auto kernel = own(handle);
  if (kernel == nullptr) return below->clSetKernelArg(handle, index, size, value);
  if (index >= kernel->arguments.size()) return CL_INVALID_ARG_INDEX;
  const auto& parameter = kernel->signature->parameters[index];
  auto& argument = kernel->arguments[index];
  switch (parameter.kind) {
    case tessera_ptx::Parameter::Kind::local:
      if (value != nullptr) return CL_INVALID_ARG_VALUE;
      if (size == 0) return CL_INVALID_ARG_SIZE;
      argument.local_bytes = size;
      break;
    case tessera_ptx::Parameter::Kind::global:
      if (size != sizeof(cl_mem)) return CL_INVALID_ARG_SIZE;
      kernel->memory[index] = nullptr;
      if (value != nullptr) std::memcpy(&kernel->memory[index], value, sizeof(cl_mem));
      argument.value.assign(sizeof(void*), std::byte{0});
      break;
    case tessera_ptx::Parameter::Kind::value:
      if (value == nullptr) return CL_INVALID_ARG_VALUE;
      if (size != parameter.bytes) return CL_INVALID_ARG_SIZE;
      argument.value.assign(static_cast<const std::byte*>(value),
                            static_cast<const std::byte*>(value) + size);
      break;
  }
  kernel->is_set[index] = true;
  return CL_SUCCESS;
}

cl_int CL_API_CALL get_info(cl_kernel handle, cl_kernel_info what, std::size_t size, void* value,
                            std::size_t* needed) {
  const auto kernel = own(handle);
  if (kernel == nullptr) return below->clGetKernelInfo(handle, what, size, value, needed);
  const auto give = [&](const auto& data) { return answer(data, size, value, needed); };
  switch (what) {
    case CL_KERNEL_FUNCTION_NAME:
      return give(kernel->signature->name);
    case CL_KERNEL_NUM_ARGS:
      return give(static_cast<cl_uint>(kernel->arguments.size()));
    case CL_KERNEL_REFERENCE_COUNT:
      return give(kernels().count(handle));
    case CL_KERNEL_CONTEXT:
      return give(kernel->program->context);
    case CL_KERNEL_PROGRAM:
      return give(kernel->handle);
    case CL_KERNEL_ATTRIBUTES:
      return give(std::string());
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int CL_API_CALL get_work_group_info(cl_kernel handle, cl_device_id device,
                                       cl_kernel_work_group_info what, std::size_t size,
                                       void* value, std::size_t* needed) {
  const auto kernel = own(handle);
  if (kernel == nullptr) {
    return below->clGetKernelWorkGroupInfo(handle, device, what, size, value, needed);
  }
  const auto give = [&](const auto& data) { return answer(data, size, value, needed); };
  switch (what) {
    case CL_KERNEL_WORK_GROUP_SIZE:
      return give(std::size_t{1024});
    case CL_KERNEL_COMPILE_WORK_GROUP_SIZE:
      return give(kernel->signature->required_items);
    case CL_KERNEL_LOCAL_MEM_SIZE:
      return give(cl_ulong{kernel->signature->shared_bytes + kernel->local_bytes()});
    case CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE:
      return give(std::size_t{32});
    case CL_KERNEL_PRIVATE_MEM_SIZE:
      return give(cl_ulong{0});
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int CL_API_CALL get_argument_info(cl_kernel handle, cl_uint index, cl_kernel_arg_info what,
                                     std::size_t size, void* value, std::size_t* needed) {
  const auto kernel = own(handle);
  if (kernel == nullptr) {
    return below->clGetKernelArgInfo(handle, index, what, size, value, needed);
  }
  if (index >= kernel->arguments.size()) return CL_INVALID_ARG_INDEX;
  const auto& compiled = kernel->program->compiled;
  if (compiled == nullptr) return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
  const auto found = compiled->arguments.find(kernel->signature->name);
  if (found == compiled->arguments.end() || index >= found->second.size()) {
    return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
  }
  const auto give = [&](const auto& data) { return answer(data, size, value, needed); };
  const ArgumentInfo& info = found->second[index];
  switch (what) {
    case CL_KERNEL_ARG_ADDRESS_QUALIFIER:
      return give(info.space);
    case CL_KERNEL_ARG_ACCESS_QUALIFIER:
      return give(cl_kernel_arg_access_qualifier{CL_KERNEL_ARG_ACCESS_NONE});
    case CL_KERNEL_ARG_TYPE_NAME:
      return give(info.type);
    case CL_KERNEL_ARG_TYPE_QUALIFIER:
      return give(info.qualifiers);
    case CL_KERNEL_ARG_NAME:
      return give(info.name);
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int CL_API_CALL retain(cl_kernel handle) {
  if (own(handle) == nullptr) return below->clRetainKernel(handle);
  kernels().change(handle, 1);
  return CL_SUCCESS;
}
cl_int CL_API_CALL release(cl_kernel handle) {
  if (own(handle) == nullptr) return below->clReleaseKernel(handle);
  if (const auto last = kernels().change(handle, -1)) programs().change(last->handle, -1);
  return CL_SUCCESS;
}

}  // namespace

void install_kernels(cl_icd_dispatch& table) {
  table.clCreateKernel = create;
  table.clCreateKernelsInProgram = create_all;
  table.clSetKernelArg = set_argument;
  table.clGetKernelInfo = get_info;
  table.clGetKernelWorkGroupInfo = get_work_group_info;
  table.clGetKernelArgInfo = get_argument_info;
  table.clRetainKernel = retain;
  table.clReleaseKernel = release;
}

}  // namespace tessera_driver
