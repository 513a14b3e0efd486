// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/runtime.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "host/dispatch/process.hpp"
#include "host/opencl/completion.hpp"
#include "host/opencl/device_select.hpp"
#include "host/opencl/errors.hpp"
#include "host/opencl/first_use.hpp"
#include "host/opencl/host_ranges.hpp"
#include "host/opencl/machines.hpp"
#include "host/opencl/mappings.hpp"
#include "host/opencl/program_cache.hpp"
#include "host/opencl/staging.hpp"
#include "host/opencl/workspace_pool.hpp"
#include "tessera/version.hpp"

namespace tessera::opencl {
namespace {

template <class T>
T queue_value(cl_command_queue queue, cl_command_queue_info what, const char* doing) {
  T value{};
  check(clGetCommandQueueInfo(queue, what, sizeof(value), &value, nullptr), "clGetCommandQueueInfo",
        {}, doing);
  return value;
}

bool has_property(cl_command_queue queue, cl_command_queue_properties property) {
  return (queue_value<cl_command_queue_properties>(queue, CL_QUEUE_PROPERTIES,
                                                   "reading the queue's properties") &
          property) != 0;
}

template <class T>
T memory_value(cl_mem memory, cl_mem_info what, const char* doing) {
  T value{};
  check(clGetMemObjectInfo(memory, what, sizeof(value), &value, nullptr), "clGetMemObjectInfo", {},
        doing);
  return value;
}

/// Kernels read inputs and write outputs, whatever else they do with either.
void check_access(cl_mem memory, const std::string& name, bool is_written,
                  const std::string& device) {
  cl_mem_flags flags = 0;
  check(clGetMemObjectInfo(memory, CL_MEM_FLAGS, sizeof(flags), &flags, nullptr),
        "clGetMemObjectInfo", device, "checking " + name);
  const cl_mem_flags wrong = is_written ? CL_MEM_READ_ONLY : CL_MEM_WRITE_ONLY;
  if ((flags & wrong) == 0) return;
  throw Error(
      ErrorCode::invalid_argument,
      name +
          (is_written ? " is written, but its cl_mem is CL_MEM_READ_ONLY, which no kernel may write"
                      : " is read, but its cl_mem is CL_MEM_WRITE_ONLY, which no kernel may read") +
          "; make the buffer CL_MEM_READ_WRITE");
}

bool contains_device(cl_context context, cl_device_id device) {
  std::size_t size = 0;
  check(clGetContextInfo(context, CL_CONTEXT_DEVICES, 0, nullptr, &size), "clGetContextInfo", {},
        "reading the devices of the caller's context");
  std::vector<cl_device_id> devices(size / sizeof(cl_device_id));
  check(clGetContextInfo(context, CL_CONTEXT_DEVICES, size, devices.data(), nullptr),
        "clGetContextInfo", {}, "reading the devices of the caller's context");
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}

/// Where fewer threads are asked for than a CPU device has units: that many of its units, as a
/// device of their own, which `found` describes from then on. Null: the whole device; `why_whole`
/// says why where fewer units were wanted.
cl::Device part_of(FoundDevice& found, int threads, std::string& why_whole) {
  if (threads <= 0 || threads >= found.info.compute_units) return {};
  if ((found.type & CL_DEVICE_TYPE_CPU) == 0) return {};
  const cl_device_partition_property by_counts[] = {CL_DEVICE_PARTITION_BY_COUNTS, threads,
                                                    CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
  cl_device_id id = nullptr;
  const cl_int status = clCreateSubDevices(found.id, by_counts, 1, &id, nullptr);
  if (status != CL_SUCCESS || id == nullptr) {
    why_whole = "ContextOptions::threads is " + std::to_string(threads) + ", but all " +
                std::to_string(found.info.compute_units) +
                " units of the device work: its driver gives no part of it (clCreateSubDevices: " +
                code_name(status) + ")";
    return {};
  }
  cl::Device part(id, false);
  FoundDevice described = describe_device(id);
  described.info.platform_index = found.info.platform_index;
  described.info.device_index = found.info.device_index;
  found = std::move(described);
  return part;
}

/// The process that first used a driver; 0: none has.
std::atomic<std::int64_t> driver_process{0};
/// Static objects are being destroyed.
std::atomic<bool> is_ending{false};

}  // namespace

struct Runtime::Impl {
  DeviceInfo info;
  DeviceFacts facts;
  std::string why_whole;
  cl::Context context;
  cl::Device device;
  cl::CommandQueue queue;
  bool owns_queue = false;
  bool out_of_order = false;
  cl::CommandQueue profiling_queue;  // guarded by kept_mutex
  std::unique_ptr<ProgramCache> programs;
  std::unique_ptr<WorkspacePool> pool;
  std::unique_ptr<HostRanges> host_ranges;
  std::unique_ptr<Mappings> mappings;
  std::mutex kept_mutex;
  std::vector<std::pair<const void*, std::shared_ptr<void>>> kept;

  void start(const FoundDevice& found) {
    info = found.info;
    facts = read_facts(found);
    owns_queue = queue() == nullptr;
    if (owns_queue) {
      cl_int status = CL_SUCCESS;
      queue = cl::CommandQueue(clCreateCommandQueue(context(), device(), 0, &status), false);
      check(status, "clCreateCommandQueue", info.name);
    }
    out_of_order = has_property(queue(), CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    programs = std::make_unique<ProgramCache>(context, device);
    pool = std::make_unique<WorkspacePool>(context);
    host_ranges = std::make_unique<HostRanges>(context, info.name);
    mappings = std::make_unique<Mappings>(context, device, info.name);
    // Made after the driver's libraries were loaded, so that it ends before their static objects.
    static const struct AtExit {
      ~AtExit() { is_ending = true; }
    } at_exit;
  }

  cl_command_queue or_own(cl_command_queue other) const {
    return other != nullptr ? other : queue();
  }
};

void Runtime::uses_driver() noexcept {
  std::int64_t none = 0;
  driver_process.compare_exchange_strong(none, dispatch::this_process());
}

std::optional<std::string> Runtime::why_unusable() {
  const std::int64_t first = driver_process;
  if (first == 0 || first == dispatch::this_process()) return std::nullopt;
  return "this process was forked from one that had used OpenCL, whose drivers do not work in "
         "both; start a new process (Python: the method spawn), or fork before the first Context";
}

std::optional<std::string> Runtime::why_no_kernels() {
  if (auto reason = why_unusable()) return reason;
  if (!is_ending) return std::nullopt;
  return "static objects are being destroyed, and what the driver compiles with may be gone; call "
         "before main returns";
}

void Runtime::require_usable(const char* what) {
  if (const auto reason = why_unusable()) {
    throw Error(ErrorCode::unsupported, std::string(what) + " cannot be used: " + *reason);
  }
}

Runtime::Runtime() : impl_(std::make_unique<Impl>()) {}
Runtime::~Runtime() {
  // The driver's objects are the parent's, and what releases them may wait for its threads; or the
  // driver itself may have ended, and Intel's aborts then.
  if (why_no_kernels()) static_cast<void>(impl_.release());
}

std::shared_ptr<Runtime> Runtime::open(const ContextOptions& options) {
  if (options.host_only) return nullptr;
  if (const auto reason = why_no_kernels()) {
    if (options.device.empty()) return nullptr;
    throw Error(ErrorCode::device_not_found,
                "device \"" + options.device + "\" cannot be used: " + *reason);
  }
  auto found = select_device(options.device);
  if (!found) return nullptr;
  std::shared_ptr<Runtime> runtime(new Runtime());
  auto& impl = *runtime->impl_;
  const cl::Device part = part_of(*found, options.threads, impl.why_whole);
  const cl_context_properties properties[] = {
      CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(found->platform), 0};
  cl_int status = CL_SUCCESS;
  first_use(found->platform, [&] {
    impl.context =
        cl::Context(clCreateContext(properties, 1, &found->id, nullptr, nullptr, &status), false);
  });
  check(status, "clCreateContext", found->info.name);
  impl.device = cl::Device(found->id, true);
  impl.start(*found);
  return runtime;
}

std::shared_ptr<Runtime> Runtime::describe(const std::string& name) {
  const Machine& machine = machine_of(name);
  std::shared_ptr<Runtime> runtime(new Runtime());
  runtime->impl_->info = machine.info;
  runtime->impl_->facts = machine.facts;
  return runtime;
}

std::shared_ptr<Runtime> Runtime::wrap(cl_context context, cl_device_id device,
                                       cl_command_queue queue) {
  require_usable("the OpenCL handle");
  if (queue != nullptr) {
    constexpr const char* doing = "reading the caller's queue";
    const auto own_context = queue_value<cl_context>(queue, CL_QUEUE_CONTEXT, doing);
    const auto own_device = queue_value<cl_device_id>(queue, CL_QUEUE_DEVICE, doing);
    if (context == nullptr) context = own_context;
    if (device == nullptr) device = own_device;
    if (context != own_context || device != own_device) {
      throw Error(ErrorCode::foreign_context,
                  "queue belongs to another context or device than the ones given beside it; make "
                  "the queue on them");
    }
  }
  if (context == nullptr || device == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                std::string(context == nullptr ? "context" : "device") +
                    " is null; give a live cl_context and one of its devices");
  }
  auto found = describe_device(device);
  if (!contains_device(context, device)) {
    throw Error(ErrorCode::foreign_context,
                "device \"" + found.info.name +
                    "\" does not belong to the context; give one of the context's devices");
  }
  if (!found.unusable.empty()) {
    throw Error(ErrorCode::device_not_found,
                "device \"" + found.info.name + "\" cannot be used: " + found.unusable);
  }
  // A sub-device is in no list; its indices stay -1.
  for (const auto& listed : find_devices()) {
    if (listed.id == device) found.info = listed.info;
  }
  std::shared_ptr<Runtime> runtime(new Runtime());
  auto& impl = *runtime->impl_;
  impl.context = cl::Context(context, true);
  impl.device = cl::Device(device, true);
  if (queue != nullptr) impl.queue = cl::CommandQueue(queue, true);
  impl.start(found);
  return runtime;
}

const DeviceInfo& Runtime::info() const noexcept { return impl_->info; }
cl_context Runtime::native_context() const noexcept { return impl_->context(); }
cl_device_id Runtime::native_device() const noexcept { return impl_->device(); }
cl_command_queue Runtime::native_queue() const noexcept { return impl_->queue(); }
bool Runtime::only_plans() const noexcept { return impl_->pool == nullptr; }
void Runtime::trim() {
  if (!only_plans() && !why_unusable()) impl_->pool->trim();
}
void Runtime::keep_programs(const std::string& folder) {
  if (only_plans()) return;
  const auto& info = impl_->info;
  std::string key;
  for (const std::string* text : {&info.platform, &info.name, &info.version, &info.driver}) {
    key += *text + '\n';
  }
  // A processor that hides instructions has the name of one that does not. The revision is what the
  // host expects of the kernels, whose own text is in the key, too.
  key += std::to_string(impl_->facts.native_float_vector) + '\n' + revision() + '\n';
  impl_->programs->keep_in(BinaryCache(folder), std::move(key));
}
void Runtime::dump_programs(const std::string& folder,
                            std::shared_ptr<dispatch::WarningLog> warnings) {
  if (!only_plans()) impl_->programs->dump_to(ProgramDump(folder, std::move(warnings)));
}
std::int64_t Runtime::pooled_bytes() const noexcept {
  return only_plans() ? 0 : impl_->pool->bytes();
}

void Runtime::check_memory(const View& view, const char* argument, bool is_written) const {
  const cl_mem memory = view.device_memory();
  if (memory == nullptr) return;
  const std::string name(argument);
  require_usable(argument);
  cl_context owner = nullptr;
  std::size_t size = 0;
  cl_mem_object_type type = 0;
  cl_int status = clGetMemObjectInfo(memory, CL_MEM_CONTEXT, sizeof(owner), &owner, nullptr);
  if (status == CL_SUCCESS) {
    status = clGetMemObjectInfo(memory, CL_MEM_TYPE, sizeof(type), &type, nullptr);
  }
  if (status == CL_SUCCESS) {
    status = clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof(size), &size, nullptr);
  }
  if (status == CL_INVALID_MEM_OBJECT) {
    throw Error(ErrorCode::invalid_argument, name +
                                                 " is not a live cl_mem; give a buffer that has "
                                                 "not been released");
  }
  check(status, "clGetMemObjectInfo", impl_->info.name, "checking " + name);
  if (owner != impl_->context()) {
    throw Error(ErrorCode::foreign_context,
                name +
                    " is a cl_mem of another cl_context than the Context's; make it on "
                    "Context::native_context(), or make the Context from yours");
  }
  if (type != CL_MEM_OBJECT_BUFFER) {
    throw Error(ErrorCode::invalid_argument,
                name + " is an image or pipe; only buffers can be used");
  }
  check_access(memory, name, is_written, impl_->info.name);
  const auto element = static_cast<std::int64_t>(size_of(view.dtype()));
  if (view.byte_offset() < 0 || view.byte_offset() % element != 0) {
    throw Error(ErrorCode::invalid_argument,
                name + " starts at byte_offset " + std::to_string(view.byte_offset()) +
                    "; it must be a non-negative multiple of the " + to_string(view.dtype()) +
                    " size, " + std::to_string(element));
  }
  const std::int64_t end = view.byte_offset() + reach_bytes(view);
  if (end > static_cast<std::int64_t>(size)) {
    throw Error(ErrorCode::invalid_argument,
                name + " reaches to byte " + std::to_string(end) + " of a cl_mem of " +
                    std::to_string(size) + " bytes; check its extents, strides and byte_offset");
  }
}

View Runtime::underlying(const View& view) const {
  cl_mem memory = view.device_memory();
  if (memory == nullptr) return view;
  constexpr const char* doing = "finding the memory of a view";
  std::int64_t offset = view.byte_offset();
  if (const auto whole = memory_value<cl_mem>(memory, CL_MEM_ASSOCIATED_MEMOBJECT, doing)) {
    offset += static_cast<std::int64_t>(memory_value<std::size_t>(memory, CL_MEM_OFFSET, doing));
    memory = whole;
  }
  if ((memory_value<cl_mem_flags>(memory, CL_MEM_FLAGS, doing) & CL_MEM_USE_HOST_PTR) != 0) {
    auto* const host = static_cast<std::byte*>(memory_value<void*>(memory, CL_MEM_HOST_PTR, doing));
    if (host != nullptr) {
      return View::host(host + offset, view.dtype(), view.extents(), view.strides());
    }
  }
  return View::device(memory, offset, view.dtype(), view.extents(), view.strides());
}

void Runtime::check_queue(cl_command_queue queue) const {
  if (queue == nullptr || queue == impl_->queue()) return;
  require_usable("queue");
  constexpr const char* doing = "checking queue";
  if (queue_value<cl_context>(queue, CL_QUEUE_CONTEXT, doing) != impl_->context()) {
    throw Error(ErrorCode::foreign_context,
                "queue belongs to another cl_context than the Context's; make it on "
                "Context::native_context(), or make the Context from it");
  }
  if (queue_value<cl_device_id>(queue, CL_QUEUE_DEVICE, doing) != impl_->device()) {
    throw Error(ErrorCode::foreign_context,
                "queue belongs to another device than the Context's, \"" + impl_->info.name +
                    "\"; make the Context from the queue");
  }
}

void Runtime::check_events(std::span<const cl_event> events) const {
  require_usable("wait_for");
  for (std::size_t i = 0; i < events.size(); ++i) {
    const std::string name = "wait_for[" + std::to_string(i) + "]";
    if (events[i] == nullptr) {
      throw Error(ErrorCode::invalid_argument, name + " is null; leave it out");
    }
    cl_context owner = nullptr;
    check(clGetEventInfo(events[i], CL_EVENT_CONTEXT, sizeof(owner), &owner, nullptr),
          "clGetEventInfo", impl_->info.name, "checking " + name);
    if (owner != impl_->context()) {
      throw Error(ErrorCode::foreign_context,
                  name +
                      " is an event of another cl_context than the Context's; wait for it with "
                      "clWaitForEvents before the call");
    }
  }
  // A driver may wait for ever for what will never complete (PoCL 3.1 does).
  check_not_failed(events, impl_->info.name, ErrorCode::invalid_argument);
}

void Runtime::wait_for(std::span<const cl_event> events) {
  if (events.empty()) return;
  const dispatch::Timed timed(dispatch::current_call(), ProfileKind::wait, "wait for events");
  const cl_int status = clWaitForEvents(static_cast<cl_uint>(events.size()), events.data());
  if (status == CL_SUCCESS) return;
  check_not_failed(events, impl_->info.name, ErrorCode::execution_failed);
  check(status, "clWaitForEvents", impl_->info.name, "waiting for wait_for");
}

void* Runtime::map(cl_command_queue queue, cl_mem memory, std::int64_t byte_offset,
                   std::int64_t bytes, bool write) {
  require_usable("device memory");
  const dispatch::Timed timed(dispatch::current_call(), ProfileKind::copy, "map for the host");
  const cl_command_queue own = impl_->or_own(queue);
  return impl_->mappings->map(is_out_of_order(own) ? nullptr : own, memory, byte_offset, bytes,
                              write);
}

void Runtime::unmap(cl_mem memory, void* pointer) {
  const dispatch::Timed timed(dispatch::current_call(), ProfileKind::copy, "unmap for the host");
  impl_->mappings->unmap(memory, pointer);
}

const DeviceFacts& Runtime::facts() const noexcept { return impl_->facts; }
DeviceFacts& Runtime::facts_for_test() noexcept { return impl_->facts; }
const std::string& Runtime::why_whole() const noexcept { return impl_->why_whole; }
const cl::Context& Runtime::context() const noexcept { return impl_->context; }
const cl::Device& Runtime::device() const noexcept { return impl_->device; }
const cl::CommandQueue& Runtime::queue() const noexcept { return impl_->queue; }
ProgramCache& Runtime::programs() noexcept { return *impl_->programs; }
WorkspacePool& Runtime::pool() noexcept { return *impl_->pool; }
HostRanges& Runtime::host_ranges() noexcept { return *impl_->host_ranges; }

cl_command_queue Runtime::profiling_queue() {
  if (!impl_->owns_queue) return nullptr;
  std::lock_guard lock(impl_->kept_mutex);
  auto& queue = impl_->profiling_queue;
  if (queue() == nullptr) {
    cl_int status = CL_SUCCESS;
    const cl_command_queue made =
        clCreateCommandQueue(impl_->context(), impl_->device(), CL_QUEUE_PROFILING_ENABLE, &status);
    check(status, "clCreateCommandQueue", impl_->info.name, "making a queue with profiling");
    queue = cl::CommandQueue(made, false);
  }
  return queue();
}

bool Runtime::keeps_times(cl_command_queue queue) const {
  return has_property(queue, CL_QUEUE_PROFILING_ENABLE);
}

bool Runtime::is_out_of_order(cl_command_queue queue) const {
  if (queue == impl_->queue()) return impl_->out_of_order;
  return has_property(queue, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
}

bool Runtime::ends_what_follows() const {
  return impl_->info.platform == "Portable Computing Language";
}

void* Runtime::kept(const void* key, std::shared_ptr<void> (*make)()) {
  std::lock_guard lock(impl_->kept_mutex);
  for (const auto& [known, value] : impl_->kept) {
    if (known == key) return value.get();
  }
  return impl_->kept.emplace_back(key, make()).second.get();
}

Runtime* runtime_of(ContextState& state) noexcept {
  // Every DeviceRuntime of this library is one of ours.
  return static_cast<Runtime*>(state.device.get());
}

}  // namespace tessera::opencl
