// SPDX-License-Identifier: Apache-2.0
#include <CL/cl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>

#include "peaks/host_isa.hpp"
#include "peaks/opencl_kernels.hpp"
#include "peaks/peaks.hpp"
#include "tessera/view.hpp"

namespace tessera::peaks {
namespace {

void check(cl_int status, const char* what) {
  if (status == CL_SUCCESS) return;
  const bool memory = status == CL_MEM_OBJECT_ALLOCATION_FAILURE || status == CL_OUT_OF_RESOURCES ||
                      status == CL_OUT_OF_HOST_MEMORY || status == CL_INVALID_BUFFER_SIZE;
  throw Error(memory ? ErrorCode::out_of_memory : ErrorCode::execution_failed,
              fmt::format("measuring peaks: {} failed with OpenCL error {}", what, status));
}

template <auto release>
struct Release {
  template <class T>
  void operator()(T* handle) const {
    release(handle);
  }
};
template <class Handle, auto release>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Release<release>>;
using Program = Owned<cl_program, clReleaseProgram>;
using Kernel = Owned<cl_kernel, clReleaseKernel>;
using Buffer = Owned<cl_mem, clReleaseMemObject>;
using Queue = Owned<cl_command_queue, clReleaseCommandQueue>;

template <class T>
T device_fact(cl_device_id device, cl_device_info name) {
  T value{};
  check(clGetDeviceInfo(device, name, sizeof value, &value, nullptr), "clGetDeviceInfo");
  return value;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class DeviceMeter final : public Meter {
 public:
  explicit DeviceMeter(const Context& context)
      : context_(context), device_(context.native_device()) {
    cl_int status = CL_SUCCESS;
    queue_.reset(clCreateCommandQueue(context.native_context(), device_, 0, &status));
    check(status, "clCreateCommandQueue");
    cpu_ = (device_fact<cl_device_type>(device_, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
    units_ = std::max<cl_uint>(1, device_fact<cl_uint>(device_, CL_DEVICE_MAX_COMPUTE_UNITS));
    const auto native = device_fact<cl_uint>(device_, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
    while (width_ * 2 <= static_cast<int>(native) && width_ < 16) width_ *= 2;
    // Sixteen bytes at a time is the widest load of a GPU's lane, and no CPU's is narrower.
    memory_width_ = std::max(width_, 4);
    group_ = cpu_ ? 1
                  : std::min<std::size_t>(
                        256, device_fact<std::size_t>(device_, CL_DEVICE_MAX_WORK_GROUP_SIZE));
    // CPUs: a few items per core even out the ends. Others: as many as hide the memory's latency.
    items_ = static_cast<std::size_t>(units_) * (cpu_ ? 4 : 2048 / group_ * group_);
    const auto largest = std::min<std::int64_t>(
        static_cast<std::int64_t>(device_fact<cl_ulong>(device_, CL_DEVICE_MAX_MEM_ALLOC_SIZE)),
        static_cast<std::int64_t>(device_fact<cl_ulong>(device_, CL_DEVICE_GLOBAL_MEM_SIZE)) / 8);
    // Beyond the last cache of any device so far, for the most part: 1 GiB, 256 MiB on CPUs.
    const std::int64_t wanted = std::min(largest, std::int64_t{1} << (cpu_ ? 28 : 30));
    const std::int64_t step = static_cast<std::int64_t>(items_) * memory_width_ * 4 * 4;
    memory_bytes_ = std::max(wanted / step, std::int64_t{1}) * step;
    program_ = build(kernel_source, width_);
    memory_program_ = build(kernel_source, memory_width_);
    if (!program_ || !memory_program_) {
      throw Error(ErrorCode::build_failed,
                  fmt::format("the peak kernels do not build on {}", context.device_info().name),
                  build_log_);
    }
    // Asked first: the processor, and whether the driver compiles for registers of this width. The
    // sources leave out what the compiler does not have.
    if (cpu_ && processor_has_bf16_dot_product() && width_ == 16) {
      bf16_program_ = with_kernel(build(vdpbf16ps_source, 16), "dot_bf16_peak");
    }
    if (multiplies_matrices()) {
      bf16_program_ = with_kernel(build(mma_source, 1), "dot_bf16_peak");
    }
    if (cpu_) {
      nontemporal_program_ = with_kernel(build(kernel_source, memory_width_, " -DNONTEMPORAL"),
                                         "write_nontemporal_peak");
    }
  }

  std::string why_absent(Kind kind) const override {
    if (kind == Kind::write_nontemporal && !nontemporal_program_) {
      return cpu_ ? "the driver's compiler has no stores that pass the caches by"
                  : "measured on CPU devices only";
    }
    if (kind != Kind::dot_bf16 || bf16_program_) return {};
    if (!cpu_) return "the device has no matrix units that are known here (NVIDIA, sm_80 on)";
    if (!processor_has_bf16_dot_product()) {
      return "the processor has no bf16 dot product (avx512bf16)";
    }
    if (width_ < 16) return "the driver compiles for vectors of less than 16 floats";
    return "the driver's compiler has no vdpbf16ps";
  }

  std::string description(Kind kind) const override {
    const std::string where = fmt::format("OpenCL, {} work-items in groups of {}", items_, group_);
    switch (kind) {
      case Kind::fma_f32:
        return fmt::format("{}, fma on {} vectors of {} floats each", where, compute_chains,
                           width_);
      case Kind::dot_bf16:
        return cpu_
                   ? fmt::format("{}, vdpbf16ps on {} vectors of 16 floats each", where,
                                 compute_chains)
                   : fmt::format("{}, mma.sync on {} blocks of 16 x 8 each", where, compute_chains);
      case Kind::exp:
        return fmt::format("{}, {} on {} vectors of {} floats each", where,
                           polynomial_.value_or(false) ? "2^x as a polynomial of degree 6" : "exp2",
                           compute_chains, width_);
      default:
        return fmt::format("{}, vectors of {} floats, {} MiB each way", where, memory_width_,
                           memory_bytes_ >> 20);
    }
  }

  double sample(Kind kind) override {
    if (!has(kind)) {
      throw Error(ErrorCode::unsupported, fmt::format("this device has no peak of {}: {}",
                                                      to_string(kind), why_absent(kind)));
    }
    if (kind != Kind::exp) return measure(kernel_name(kind), kind);
    // Which way is faster depends on the driver; the machine's peak is the better one.
    if (!polynomial_.has_value()) {
      const double builtin = measure("exp_builtin_peak", kind);
      const double polynomial = measure("exp_polynomial_peak", kind);
      polynomial_ = polynomial > builtin;
      return std::max(builtin, polynomial);
    }
    return measure(*polynomial_ ? "exp_polynomial_peak" : "exp_builtin_peak", kind);
  }

 private:
  struct Prepared {
    Kernel kernel{};
    cl_int rounds = 1;          ///< compute kernels: within a launch
    std::int64_t launches = 1;  ///< memory kernels: one after another
  };

  /// One of NVIDIA's with mma.sync of bf16: capability 8.0 on.
  bool multiplies_matrices() const {
    constexpr cl_device_info nv_capability_major = 0x4000;
    cl_uint major = 0;
    return !cpu_ &&
           clGetDeviceInfo(device_, nv_capability_major, sizeof major, &major, nullptr) ==
               CL_SUCCESS &&
           major >= 8;
  }

  /// Of every kind but exp, which has two.
  static std::string kernel_name(Kind kind) {
    return kind == Kind::fma_f32 ? "fma_peak" : std::string(to_string(kind)) + "_peak";
  }
  static bool of_memory(Kind kind) {
    return kind != Kind::fma_f32 && kind != Kind::dot_bf16 && kind != Kind::exp;
  }

  Program build(const char* source, int width, const char* more = "") {
    cl_int status = CL_SUCCESS;
    Program program(
        clCreateProgramWithSource(context_.native_context(), 1, &source, nullptr, &status));
    check(status, "clCreateProgramWithSource");
    // No warnings (-w): PoCL counts them on stderr.
    const auto options = fmt::format("-w -DWIDTH={}{}{}", width, cpu_ ? " -DCONTIGUOUS" : "", more);
    if (clBuildProgram(program.get(), 1, &device_, options.c_str(), nullptr, nullptr) ==
        CL_SUCCESS) {
      return program;
    }
    std::size_t bytes = 0;
    clGetProgramBuildInfo(program.get(), device_, CL_PROGRAM_BUILD_LOG, 0, nullptr, &bytes);
    build_log_.resize(bytes);
    clGetProgramBuildInfo(program.get(), device_, CL_PROGRAM_BUILD_LOG, bytes, build_log_.data(),
                          nullptr);
    return {};
  }

  /// The program, or none where the compiler left the kernel out.
  static Program with_kernel(Program program, const char* name) {
    if (!program) return program;
    cl_int status = CL_SUCCESS;
    const Kernel kernel(clCreateKernel(program.get(), name, &status));
    if (status != CL_SUCCESS) program.reset();
    return program;
  }

  Buffer allocate(std::int64_t bytes, void* host = nullptr) const {
    cl_int status = CL_SUCCESS;
    const cl_mem_flags from = host != nullptr ? CL_MEM_USE_HOST_PTR : 0;
    Buffer buffer(clCreateBuffer(context_.native_context(), CL_MEM_READ_WRITE | from,
                                 static_cast<std::size_t>(bytes), host, &status));
    check(status, "clCreateBuffer");
    return buffer;
  }

  /// On a CPU in memory of the host's, which is in large pages where the system has them: so are
  /// the arrays of HostTensor and numpy that calls read, and a driver's own memory is not.
  void allocate_memory() {
    if (target_) return;
    if (cpu_) {
      for (HostTensor& host : host_memory_) host = HostTensor(DType::f32, {memory_bytes_ / 4});
    }
    source_ = allocate(memory_bytes_, host_memory_[0].data());
    target_ = allocate(memory_bytes_, host_memory_[1].data());
    fill(source_.get());
    fill(target_.get());
  }

  /// Units of work of one sample.
  double units_of(Kind kind, const Prepared& p) const {
    const double rounds = 2.0 * p.rounds * static_cast<double>(items_) * compute_chains;
    switch (kind) {
      case Kind::fma_f32:
        return rounds * 2 * width_;
      case Kind::dot_bf16:
        // Two products and two sums for each of 16 floats; 16 x 8 x 16 products of a warp of 32.
        return rounds * (cpu_ ? 4 * 16 : 2 * 16 * 8 * 16 / 32);
      case Kind::exp:
        return rounds * width_;
      default:
        return static_cast<double>(memory_bytes_) * static_cast<double>(p.launches) *
               (kind == Kind::copy || kind == Kind::read_modify_write ? 2 : 1);
    }
  }

  Prepared prepare(const std::string& name, Kind kind) {
    const auto& program = kind == Kind::dot_bf16            ? bf16_program_
                          : kind == Kind::write_nontemporal ? nontemporal_program_
                          : of_memory(kind)                 ? memory_program_
                                                            : program_;
    cl_int status = CL_SUCCESS;
    Prepared p;
    p.kernel.reset(clCreateKernel(program.get(), name.c_str(), &status));
    check(status, "clCreateKernel");
    const auto set = [&](cl_uint index, const auto& value) {
      check(clSetKernelArg(p.kernel.get(), index, sizeof value, &value), "clSetKernelArg");
    };
    if (of_memory(kind)) {
      allocate_memory();
      set(0, source_.get());
      set(1, target_.get());
      set(2, static_cast<cl_ulong>(memory_bytes_ / 4 / memory_width_ /
                                   static_cast<std::int64_t>(items_)));
    } else {
      if (!out_) out_ = allocate(static_cast<std::int64_t>(items_) * 16 * 4);
      set(0, out_.get());
      set(2, 0.999f);
      set(3, 0.001f);
    }
    timed(p, kind);  // drivers compile, and pages arrive, with the first launch
    // Doubling until a sample is long enough also warms caches and clocks up. The shorter of two,
    // since a launch may have waited for another program.
    while (std::min(timed(p, kind), timed(p, kind)) < sample_seconds / 2 && lengthen(p, kind)) {
    }
    return p;
  }

  /// Doubles a sample's length; false: it has reached its limit.
  static bool lengthen(Prepared& p, Kind kind) {
    if (of_memory(kind)) {
      p.launches *= 2;
    } else if (p.rounds < (1 << 29)) {
      p.rounds *= 2;
    } else {
      return false;
    }
    return true;
  }

  void fill(cl_mem buffer) {
    const float value = 1e-3f;  // not zero: memory that was never written may not exist yet
    check(clEnqueueFillBuffer(queue_.get(), buffer, &value, sizeof value, 0,
                              static_cast<std::size_t>(memory_bytes_), 0, nullptr, nullptr),
          "clEnqueueFillBuffer");
    check(clFinish(queue_.get()), "clFinish");
  }

  double timed(Prepared& p, Kind kind) {
    if (!of_memory(kind)) {
      check(clSetKernelArg(p.kernel.get(), 1, sizeof p.rounds, &p.rounds), "clSetKernelArg");
    }
    const double start = now();
    for (std::int64_t i = 0; i < p.launches; ++i) {
      check(clEnqueueNDRangeKernel(queue_.get(), p.kernel.get(), 1, nullptr, &items_, &group_, 0,
                                   nullptr, nullptr),
            "clEnqueueNDRangeKernel");
    }
    check(clFinish(queue_.get()), "clFinish");
    return now() - start;
  }

  double measure(const std::string& name, Kind kind) {
    auto at = prepared_.find(name);
    if (at == prepared_.end()) at = prepared_.emplace(name, prepare(name, kind)).first;
    const double seconds = timed(at->second, kind);
    const double speed = units_of(kind, at->second) / seconds;
    if (seconds < sample_seconds / 4) lengthen(at->second, kind);  // clocks have risen since
    return speed;
  }

  const Context context_;  // keeps the handles alive
  const cl_device_id device_;
  Queue queue_{};
  bool cpu_ = false;
  cl_uint units_ = 1;
  int width_ = 1;  ///< lanes of the device's own vectors
  int memory_width_ = 4;
  std::size_t group_ = 1;
  std::size_t items_ = 1;
  std::int64_t memory_bytes_ = 0;
  std::string build_log_{};
  Program program_{}, memory_program_{}, bf16_program_{}, nontemporal_program_{};
  std::array<HostTensor, 2> host_memory_{};  ///< outlives the buffers over it
  Buffer source_{}, target_{}, out_{};
  std::optional<bool> polynomial_{};  ///< the faster way to 2^x, once known
  std::map<std::string, Prepared> prepared_{};
};

}  // namespace

std::unique_ptr<Meter> device_meter(const Context& context) {
  if (!context.has_device()) return nullptr;
  return std::make_unique<DeviceMeter>(context);
}

}  // namespace tessera::peaks
