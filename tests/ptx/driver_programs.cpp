// SPDX-License-Identifier: Apache-2.0
// Programs: source that clang compiles, and PTX as their binaries.

#include "driver.hpp"

namespace tessera_driver {
namespace {

std::shared_ptr<Program> own(cl_program program) { return programs().find(program); }

cl_program CL_API_CALL create_with_source(cl_context context, cl_uint count, const char** texts,
                                          const std::size_t* lengths, cl_int* status) {
  auto devices = devices_of(context);
  if (devices.empty() || !is_played(devices[0])) {
    return below->clCreateProgramWithSource(context, count, texts, lengths, status);
  }
  if (count == 0 || texts == nullptr) return give(CL_INVALID_VALUE, status), nullptr;
  auto program = std::make_shared<Program>(context, std::move(devices));
  for (cl_uint i = 0; i < count; ++i) {
    const bool is_measured = lengths != nullptr && lengths[i] != 0;
    program->source += is_measured ? std::string(texts[i], lengths[i]) : std::string(texts[i]);
  }
  give(CL_SUCCESS, status);
  return static_cast<cl_program>(programs().add(std::move(program)));
}

cl_program CL_API_CALL create_with_binary(cl_context context, cl_uint count,
                                          const cl_device_id* devices, const std::size_t* lengths,
                                          const unsigned char** binaries, cl_int* each,
                                          cl_int* status) {
  if (count == 0 || devices == nullptr) return give(CL_INVALID_VALUE, status), nullptr;
  if (!is_played(devices[0])) {
    return below->clCreateProgramWithBinary(context, count, devices, lengths, binaries, each,
                                            status);
  }
  auto program = std::make_shared<Program>(context, std::vector(devices, devices + count));
  program->is_binary = true;
  program->text.assign(reinterpret_cast<const char*>(binaries[0]), lengths[0]);
  while (program->text.ends_with('\0')) program->text.pop_back();
  const bool is_text = !program->text.empty() && !program->text.starts_with("\177ELF");
  const cl_int code = is_text && !plays("refuses loading") ? CL_SUCCESS : CL_INVALID_BINARY;
  for (cl_uint i = 0; each != nullptr && i < count; ++i) each[i] = code;
  give(code, status);
  if (code != CL_SUCCESS) return nullptr;
  return static_cast<cl_program>(programs().add(std::move(program)));
}

/// The parsed text; of one that this process had parsed, the same again.
std::shared_ptr<const tessera_ptx::Module> parsed(const std::string& text) {
  static auto& mutex = *new std::mutex;
  static auto& known = *new std::map<std::string, std::weak_ptr<const tessera_ptx::Module>>;
  std::lock_guard lock(mutex);
  auto& kept = known[text];
  auto module = kept.lock();
  if (module == nullptr) kept = module = std::make_shared<const tessera_ptx::Module>(text);
  return module;
}

/// Parses a program's text; sets its log where the driver would refuse it.
bool load(Program& program) {
  try {
    const auto module = parsed(program.text);
    if (module->target() != "sm_90" && module->target() != "sm_90a") {
      program.log = "ptxas fatal   : SM version specified by .target is " + module->target() +
                    ", which is not sm_90";
    }
    for (const auto& kernel : module->kernels()) {
      if (kernel.shared_bytes <= most_shared_bytes) continue;
      program.log += "ptxas error   : Entry function '" + kernel.name +
                     "' uses too much shared data (" + std::to_string(kernel.shared_bytes) +
                     " bytes, " + std::to_string(most_shared_bytes) + " max)\n";
    }
    if (program.log.empty()) program.module = module;
  } catch (const tessera_ptx::Fault& fault) {
    program.log = std::string("ptxas fatal   : ") + fault.what();
  }
  return program.module != nullptr;
}

bool build(Program& program) {
  program.log.clear();
  program.module = nullptr;
  if (program.is_binary) {
    if (plays("empty log")) return false;
    if (!plays("refuses binaries")) return load(program);
    program.log = "ptxas fatal   : the driver was told to refuse binaries";
    return false;
  }
  program.compiled = compile(program.source, program.options);
  program.log = program.compiled->log;
  program.text = program.compiled->text;
  with_control([&](Control& control) {
    ++control.builds;
    control.edit.apply(program.text);
  });
  if (program.text.empty()) return false;
  program.log.clear();
  return load(program);
}

cl_int CL_API_CALL build_program(cl_program handle, cl_uint count, const cl_device_id* devices,
                                 const char* options, void(CL_CALLBACK* notify)(cl_program, void*),
                                 void* data) {
  const auto program = own(handle);
  if (program == nullptr) {
    return below->clBuildProgram(handle, count, devices, options, notify, data);
  }
  program->options = options == nullptr ? "" : options;
  const bool works = build(*program);
  program->status = works ? CL_BUILD_SUCCESS : CL_BUILD_ERROR;
  if (notify != nullptr) notify(handle, data);
  return works ? CL_SUCCESS : CL_BUILD_PROGRAM_FAILURE;
}

/// The bytes that clGetProgramInfo hands out, by the driver that is played.
std::string binary_of(const Program& program) {
  std::string text = program.text;
  const auto replace = [&](const std::string& from, const char* by) { Edit{from, by}.apply(text); };
  const auto what = with_control([](const Control& control) { return control.play; });
  if (text.empty() || what == "no text") return {};
  if (what == "cubin") return std::string("\177ELF\2\1\1", 7) + std::string(256, '\0');
  if (what == "cut off") text.resize(text.size() / 2);
  if (what == "no target") replace(".target ", "// ");
  if (what == "two targets") replace(".target ", ".target sm_90\n.target ");
  if (what == "other target") replace(".target sm_90", ".target sm_80");
  if (what == "old version") replace(".version 8.", ".version 7.");
  if (what == "drops comments") {
    std::string kept;
    for (std::size_t at = 0; at < text.size();) {
      const auto end = std::min(text.find('\n', at), text.size() - 1) + 1;
      const auto first = text.find_first_not_of(" \t", at);
      if (text.compare(first, 2, "//") != 0) kept.append(text, at, end - at);
      at = end;
    }
    text = kept;
  }
  text += '\0';
  return text;
}

cl_int CL_API_CALL get_info(cl_program handle, cl_program_info what, std::size_t size, void* value,
                            std::size_t* needed) {
  const auto program = own(handle);
  if (program == nullptr) return below->clGetProgramInfo(handle, what, size, value, needed);
  const auto give = [&](const auto& data) { return answer(data, size, value, needed); };
  const std::size_t count = program->devices.size();
  switch (what) {
    case CL_PROGRAM_REFERENCE_COUNT:
      return give(programs().count(handle));
    case CL_PROGRAM_CONTEXT:
      return give(program->context);
    case CL_PROGRAM_NUM_DEVICES:
      return give(static_cast<cl_uint>(count));
    case CL_PROGRAM_DEVICES:
      return give(program->devices);
    case CL_PROGRAM_SOURCE:
      return give(program->source);
    case CL_PROGRAM_BINARY_SIZES:
      return give(std::vector(count, binary_of(*program).size()));
    case CL_PROGRAM_BINARIES: {
      const std::string binary = binary_of(*program);
      if (needed != nullptr) *needed = count * sizeof(unsigned char*);
      auto** const places = static_cast<unsigned char**>(value);
      for (std::size_t i = 0; places != nullptr && i < size / sizeof(*places) && i < count; ++i) {
        if (places[i] != nullptr) std::memcpy(places[i], binary.data(), binary.size());
      }
      return CL_SUCCESS;
    }
    case CL_PROGRAM_NUM_KERNELS:
    case CL_PROGRAM_KERNEL_NAMES: {
      if (program->module == nullptr) return CL_INVALID_PROGRAM_EXECUTABLE;
      const auto& kernels = program->module->kernels();
      if (what == CL_PROGRAM_NUM_KERNELS) return give(kernels.size());
      std::string names;
      for (const auto& kernel : kernels) names += (names.empty() ? "" : ";") + kernel.name;
      return give(names);
    }
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int CL_API_CALL get_build_info(cl_program handle, cl_device_id device,
                                  cl_program_build_info what, std::size_t size, void* value,
                                  std::size_t* needed) {
  const auto program = own(handle);
  if (program == nullptr) {
    return below->clGetProgramBuildInfo(handle, device, what, size, value, needed);
  }
  const auto give = [&](const auto& data) { return answer(data, size, value, needed); };
  switch (what) {
    case CL_PROGRAM_BUILD_STATUS:
      return give(program->status);
    case CL_PROGRAM_BUILD_OPTIONS:
      return give(program->options);
    case CL_PROGRAM_BUILD_LOG:
      return give(program->log);
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int CL_API_CALL retain(cl_program handle) {
  if (own(handle) == nullptr) return below->clRetainProgram(handle);
  programs().change(handle, 1);
  return CL_SUCCESS;
}
cl_int CL_API_CALL release(cl_program handle) {
  if (own(handle) == nullptr) return below->clReleaseProgram(handle);
  programs().change(handle, -1);
  return CL_SUCCESS;
}

}  // namespace

void install_programs(cl_icd_dispatch& table) {
  table.clCreateProgramWithSource = create_with_source;
  table.clCreateProgramWithBinary = create_with_binary;
  table.clBuildProgram = build_program;
  table.clGetProgramInfo = get_info;
  table.clGetProgramBuildInfo = get_build_info;
  table.clRetainProgram = retain;
  table.clReleaseProgram = release;
}

}  // namespace tessera_driver
