// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/call.hpp"

#include <algorithm>

#include "host/opencl/errors.hpp"
#include "host/opencl/staging.hpp"

namespace tessera::opencl {
namespace {

// Scratch starts on a cache line, which is also the widest vector of any CPU.
constexpr std::int64_t scratch_alignment = 64;

std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

bool same_view(const View& a, const View& b) {
  return a.host_data() == b.host_data() && a.dtype() == b.dtype() && a.extents() == b.extents() &&
         a.strides() == b.strides();
}

Binding binding_of(const View& view, cl_mem memory, std::int64_t offset, const Dims& strides) {
  Binding binding;
  binding.memory = memory;
  binding.offset = offset;
  binding.dtype = view.dtype();
  binding.extents = view.extents();
  binding.strides = strides;
  return binding;
}

}  // namespace

struct Call::Impl {
  struct Wrap {
    const std::byte* begin;
    std::int64_t bytes;
    cl_mem memory;
  };
  struct Written {
    cl_mem memory;
    std::int64_t offset;
    std::int64_t bytes;
  };
  struct Staged {
    MutableView view;
    StagedLayout layout;
    WorkspacePool::Lease block;
    bool output;
  };

  std::unique_ptr<Flight> flight;  // declared first: staging blocks go back before it
  dispatch::Attempt& attempt;
  bool host_views = false;
  std::vector<Wrap> wraps;
  std::vector<Written> written;
  std::vector<Staged> staged;
  std::size_t kept_staged = 0;  // the first of `staged` stay until the call is finished
  std::int64_t scratch_bytes = 0;

  // What is left of a lent block; memory null: the pool serves.
  cl_mem lent = nullptr;
  std::int64_t lent_next = 0;
  std::int64_t lent_end = 0;

  explicit Impl(dispatch::Attempt& a) : attempt(a) {}
  ~Impl() {
    flight.reset();  // waits, so that staging blocks are idle when they go back
  }

  Runtime& runtime() const { return flight->runtime(); }
  const DeviceFacts& facts() const { return flight->runtime().facts(); }

  /// From here on the call is a blocking one, and what the caller's events produce may be read.
  void use_host_memory() {
    host_views = true;
    flight->wait_for_caller();
  }

  void check_alignment(const View& view, const char* argument) const {
    const auto address = reinterpret_cast<std::uintptr_t>(view.host_data());
    if (address % size_of(view.dtype()) != 0) {
      throw Error(ErrorCode::invalid_argument,
                  std::string(argument) + " is at an address that is no multiple of the " +
                      to_string(view.dtype()) + " size, " + std::to_string(size_of(view.dtype())));
    }
  }

  bool can_wrap(const View& view) const {
    return facts().zero_copy && reach_bytes(view) <= facts().max_allocation_bytes;
  }

  /// Host memory as it is. Ranges inside one that this call has wrapped share its buffer.
  Wrap wrap(const void* data, std::int64_t bytes, std::int64_t element, const char* argument) {
    const auto* begin = static_cast<const std::byte*>(data);
    for (const auto& known : wraps) {
      // Not through pointer differences of unrelated arrays.
      const auto known_at = reinterpret_cast<std::uintptr_t>(known.begin);
      const auto at = reinterpret_cast<std::uintptr_t>(begin);
      if (at < known_at || at + static_cast<std::uintptr_t>(bytes) >
                               known_at + static_cast<std::uintptr_t>(known.bytes)) {
        continue;
      }
      if (static_cast<std::int64_t>(at - known_at) % element == 0) return known;
    }
    auto lease = runtime().host_ranges().wrap(data, bytes, argument);
    wraps.push_back({begin, bytes, lease.memory()});
    flight->keep(std::move(lease));
    return wraps.back();
  }

  Binding wrap_view(const View& view, bool output, const char* argument) {
    const auto element = static_cast<std::int64_t>(size_of(view.dtype()));
    const std::int64_t bytes = reach_bytes(view);
    const Wrap range = wrap(view.host_data(), bytes, element, argument);
    const std::int64_t offset = static_cast<const std::byte*>(view.host_data()) - range.begin;
    if (output) written.push_back({range.memory, offset, bytes});
    return binding_of(view, range.memory, offset / element, view.strides());
  }

  WorkspacePool::Lease staging_block(std::int64_t bytes, const char* argument) {
    if (bytes > facts().max_allocation_bytes) {
      throw Error(ErrorCode::out_of_memory,
                  std::string(argument) + " needs a device copy of " + std::to_string(bytes) +
                      " bytes, the largest allocation on " + flight->device() + " is " +
                      std::to_string(facts().max_allocation_bytes) + "; split it");
    }
    attempt.dispatch.staged_bytes += bytes;
    return runtime().pool().acquire(bytes);
  }

  Binding stage(const MutableView& view, bool output, bool copy_in, const char* argument) {
    for (const auto& known : staged) {
      // An input is never served from an output's block: in place, it is what was there before.
      if (known.output == output && same_view(known.view, view)) {
        return binding_of(view, known.block.buffer()(), 0, known.layout.strides);
      }
    }
    Staged copy{view, staged_layout(view), {}, output};
    copy.block = staging_block(
        copy.layout.elements * static_cast<std::int64_t>(size_of(view.dtype())), argument);
    staged.push_back(std::move(copy));
    const auto& kept = staged.back();
    const cl_mem memory = kept.block.buffer()();
    if (copy_in) copy_to_device(*flight, view, kept.layout, memory);
    return binding_of(view, memory, 0, kept.layout.strides);
  }

  Binding bind(const MutableView& view, bool output, bool copy_in, const char* argument) {
    if (!view || view.size() == 0) return binding_of(view, nullptr, 0, view.strides());
    if (view.is_device()) {
      flight->keep(view.device_memory());
      auto binding = binding_of(
          view, view.device_memory(),
          view.byte_offset() / static_cast<std::int64_t>(size_of(view.dtype())), view.strides());
      binding.writes_caller = output;
      return binding;
    }
    check_alignment(view, argument);
    use_host_memory();
    if (!can_wrap(view)) return stage(view, output, copy_in, argument);
    auto binding = wrap_view(view, output, argument);
    binding.writes_caller = output;
    return binding;
  }

  void lend(const MutableView& workspace) {
    if (!workspace || workspace.size() == 0) return;
    const std::int64_t bytes = reach_bytes(workspace);
    if (workspace.is_device()) {
      flight->keep(workspace.device_memory());
      lent = workspace.device_memory();
      lent_next = round_up(workspace.byte_offset(), scratch_alignment);
      lent_end = workspace.byte_offset() + bytes;
      return;
    }
    // Host memory is of no use as scratch to a device that does not share it.
    if (!can_wrap(workspace)) return;
    use_host_memory();
    const auto address = reinterpret_cast<std::uintptr_t>(workspace.host_data());
    const std::int64_t skip = round_up(static_cast<std::int64_t>(address), scratch_alignment) -
                              static_cast<std::int64_t>(address);
    if (skip >= bytes) return;
    lent = wrap(static_cast<std::byte*>(workspace.host_data()) + skip, bytes - skip,
                scratch_alignment, "workspace")
               .memory;
    lent_end = bytes - skip;
  }

  /// Copies outputs staged from `first` on to the caller, and frees all staging from there; the
  /// commands before have run or are ordered before.
  void return_staged(std::size_t first) {
    for (std::size_t i = first; i < staged.size(); ++i) {
      const auto& copy = staged[i];
      if (!copy.output) continue;
      attempt.outputs_touched = true;
      copy_to_host(*flight, copy.view, copy.layout, copy.block.buffer()());
    }
    staged.erase(staged.begin() + static_cast<std::ptrdiff_t>(first), staged.end());
  }

  /// Drivers that keep a copy of wrapped host memory write it back when it is mapped.
  void write_back_wraps() {
    for (const auto& range : written) {
      flight->make_room(2);  // a mapping must not stay
      cl_int status = CL_SUCCESS;
      cl_event event = nullptr;
      void* pointer = clEnqueueMapBuffer(
          flight->queue(), range.memory, CL_FALSE, CL_MAP_READ,
          static_cast<std::size_t>(range.offset), static_cast<std::size_t>(range.bytes),
          flight->wait_count(), flight->wait_list(), &event, &status);
      check(status, "clEnqueueMapBuffer", flight->device(), "handing results to host memory");
      flight->issued(event, {.name = "map"});
      flight->unmap(range.memory, pointer, "handing results to host memory");
    }
  }
};

Call::Call(std::shared_ptr<ContextState> state, Runtime& runtime, const CallOptions& options,
           dispatch::Attempt& attempt)
    : impl_(std::make_unique<Impl>(attempt)) {
  impl_->flight =
      std::make_unique<Flight>(std::move(state), runtime, options.queue, options.wait_for);
  impl_->lend(options.workspace);
}

Call::~Call() = default;

Runtime& Call::runtime() noexcept { return impl_->runtime(); }

Binding Call::read(const View& view, const char* argument) {
  // Inputs and outputs are bound alike; an input's memory is not written.
  const auto bindable = view.is_device()
                            ? MutableView::device(view.device_memory(), view.byte_offset(),
                                                  view.dtype(), view.extents(), view.strides())
                            : MutableView::host(const_cast<void*>(view.host_data()), view.dtype(),
                                                view.extents(), view.strides());
  return view ? impl_->bind(bindable, false, true, argument) : Binding{};
}

Binding Call::write(const MutableView& view, const char* argument, bool keep) {
  return view ? impl_->bind(view, true, keep, argument) : Binding{};
}

bool Call::fits(const View& view) const {
  if (view.is_device()) return true;
  const auto& facts = impl_->facts();
  if (impl_->can_wrap(view)) return true;
  return staged_layout(view).elements * static_cast<std::int64_t>(size_of(view.dtype())) <=
         facts.max_allocation_bytes;
}

Scratch Call::scratch(std::int64_t words, const char* purpose) {
  Scratch scratch;
  scratch.extents = Dims{words};
  scratch.strides = Dims{1};
  if (words <= 0) return scratch;
  const std::int64_t bytes = words * static_cast<std::int64_t>(sizeof(float));
  if (bytes > impl_->facts().max_allocation_bytes) {
    throw Error(ErrorCode::out_of_memory,
                std::string("scratch for ") + purpose + " needs " + std::to_string(bytes) +
                    " bytes, the largest allocation on " + impl_->flight->device() + " is " +
                    std::to_string(impl_->facts().max_allocation_bytes) +
                    "; lower workspace_bytes or pass fewer rows per call");
  }
  if (impl_->lent != nullptr) {
    if (impl_->lent_next + bytes > impl_->lent_end) {
      throw Error(
          ErrorCode::workspace_too_small,
          "the lent workspace has " +
              std::to_string(std::max<std::int64_t>(impl_->lent_end - impl_->lent_next, 0)) +
              " bytes left of which " + purpose + " needs " + std::to_string(bytes) +
              "; lend as much as plan() says, or lower workspace_bytes");
    }
    scratch.memory = impl_->lent;
    scratch.offset = impl_->lent_next / static_cast<std::int64_t>(sizeof(float));
    impl_->lent_next = round_up(impl_->lent_next + bytes, scratch_alignment);
  } else {
    auto block = impl_->runtime().pool().acquire(bytes);
    scratch.memory = block.buffer()();
    scratch.epoch = block.epoch();
    impl_->flight->keep(std::move(block));
  }
  impl_->scratch_bytes += bytes;
  return scratch;
}

Scratch Call::staging(std::int64_t bytes, const char* argument) {
  auto block = impl_->staging_block(bytes, argument);
  Scratch copy;
  copy.memory = block.buffer()();
  copy.epoch = block.epoch();
  impl_->flight->keep(std::move(block));
  return copy;
}

void Call::keep(cl_mem memory) { impl_->flight->keep(memory); }

std::int64_t Call::scratch_bytes() const noexcept { return impl_->scratch_bytes; }

void Call::keep_staging() { impl_->kept_staged = impl_->staged.size(); }

void Call::release_staging() {
  if (impl_->staged.size() == impl_->kept_staged) return;
  impl_->flight->wait();
  impl_->return_staged(impl_->kept_staged);
}

ProgramCache::Lease Call::kernel(const Specialisation& specialisation, std::string_view entry) {
  return impl_->runtime().programs().kernel(specialisation, entry);
}

namespace {

/// Throws what setting argument `index` gave, and goes on to the next.
void check_argument(cl_int status, cl_uint& index) {
  if (status != CL_SUCCESS) [[unlikely]] {
    throw_error(status, "clSetKernelArg", {}, "setting argument " + std::to_string(index));
  }
  ++index;
}

}  // namespace

void Call::set_memory(KernelObject& kernel, cl_uint& index, const Memory& value) {
  check_argument(kernel.set_memory(index, value.memory, value.epoch), index);
}

void Call::set_struct(KernelObject& kernel, cl_uint& index, const void* value, std::size_t size) {
  check_argument(kernel.set_bytes(index, size, value), index);
}

void Call::enqueue(const KernelObject& kernel, std::string_view entry, const Range& range,
                   bool touches) {
  // Nothing to do; OpenCL 1.2 refuses an empty range.
  if (std::find(range.global.begin(), range.global.end(), 0u) != range.global.end()) return;
  auto& flight = *impl_->flight;
  flight.make_room();
  cl_event event = nullptr;
  const std::size_t* local = range.local[0] == 0 ? nullptr : range.local.data();
  const cl_int status =
      clEnqueueNDRangeKernel(flight.queue(), kernel.kernel()(), 3, nullptr, range.global.data(),
                             local, flight.wait_count(), flight.wait_list(), &event);
  if (status != CL_SUCCESS) [[unlikely]] {
    throw_error(status, "clEnqueueNDRangeKernel", flight.device(),
                "enqueuing kernel " + std::string(entry));
  }
  if (touches) impl_->attempt.outputs_touched = true;  // a refused command has written nothing
  // The command holds the arguments by value from here on: the kernel may go back to the cache.
  flight.issued(event, {ProfileKind::kernel, entry, range.global.data(), local});
}

void Call::launch(const Specialisation& specialisation, const std::string& entry,
                  const Range& range, const std::vector<Argument>& arguments) {
  auto lease = kernel(specialisation, entry);
  cl_uint index = 0;
  bool touches = false;
  for (const auto& argument : arguments) {
    if (argument.value != nullptr) {
      set_struct(*lease, index, argument.value, argument.size);
    } else if (argument.size != 0) {
      check_argument(clSetKernelArg(lease->kernel()(), index, argument.size, nullptr), index);
    } else {
      set_memory(*lease, index, argument.memory);
      touches |= argument.memory.writes_caller;
    }
  }
  enqueue(*lease, entry, range, touches);
}

void Call::read_back(const Scratch& from, std::int64_t words,
                     std::shared_ptr<std::vector<float>> to) {
  to->resize(static_cast<std::size_t>(words));
  if (words == 0) return;
  auto& flight = *impl_->flight;
  flight.keep(std::static_pointer_cast<void>(to));
  flight.make_room();
  cl_event event = nullptr;
  check(clEnqueueReadBuffer(flight.queue(), from.memory, CL_FALSE,
                            static_cast<std::size_t>(from.offset) * sizeof(float),
                            static_cast<std::size_t>(words) * sizeof(float), to->data(),
                            flight.wait_count(), flight.wait_list(), &event),
        "clEnqueueReadBuffer", flight.device(), "reading scratch back");
  flight.issued(event, {.name = "read scratch back"});
}

void Call::check_on_completion(std::function<void()> check_one) {
  impl_->flight->add_check(std::move(check_one));
}

std::unique_ptr<Completion::State> Call::finish() {
  const auto impl = std::move(impl_);
  auto& flight = *impl->flight;
  bool finished = !flight.anything_issued();
  if (impl->host_views) {
    impl->write_back_wraps();
    flight.wait();
    impl->return_staged(0);
    finished = true;
  } else if (!finished) {
    flight.flush();
  }
  if (finished) {
    flight.release();
    if (!flight.has_checks()) return std::make_unique<Completion::State>();
  }
  return std::make_unique<FlightState>(std::move(impl->flight), finished);
}

}  // namespace tessera::opencl
