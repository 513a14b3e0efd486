// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/program_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "host/dispatch/recorder.hpp"
#include "host/opencl/embedded_kernels.hpp"
#include "host/opencl/errors.hpp"
#include "host/opencl/hashing.hpp"
#include "host/opencl/ptx.hpp"

namespace tessera::opencl {

cl_int KernelObject::set_word(cl_uint index, std::size_t size, const void* value,
                              std::uint64_t word) {
  auto& known = held(index);
  known.is_set = false;  // until the driver has taken it
  const cl_int status = clSetKernelArg(kernel_(), index, size, value);
  if (status != CL_SUCCESS) return status;
  known.word = word;
  known.is_set = true;
  return CL_SUCCESS;
}

cl_int KernelObject::set_bytes(cl_uint index, std::size_t size, const void* value) {
  auto& known = held(index);
  if (known.large < 0) {
    large_.emplace_back(size);
    known.large = static_cast<std::int32_t>(large_.size()) - 1;
  }
  auto& bytes = large_[static_cast<std::size_t>(known.large)];
  if (bytes.size() != size) {  // the driver has refused the other size
    bytes.resize(size);
    known.is_set = false;
  }
  if (known.is_set && std::memcmp(bytes.data(), value, size) == 0) return CL_SUCCESS;
  known.is_set = false;
  const cl_int status = clSetKernelArg(kernel_(), index, size, value);
  if (status != CL_SUCCESS) return status;
  std::memcpy(bytes.data(), value, size);
  known.is_set = true;
  return CL_SUCCESS;
}

cl_int KernelObject::set_memory(cl_uint index, cl_mem memory, std::int64_t epoch) {
  auto& known = held(index);
  const auto word = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(memory));
  const bool stays = memory == nullptr || epoch != 0;
  if (stays && known.is_set && known.word == word && known.epoch == epoch) return CL_SUCCESS;
  known.is_set = false;
  const cl_int status = clSetKernelArg(kernel_(), index, sizeof(memory), &memory);
  known.word = word;
  known.epoch = epoch;
  known.is_set = status == CL_SUCCESS && stays;
  return status;
}

std::uint64_t hash_of(const Specialisation& key) noexcept {
  Hash hash;
  for (const std::string* text : {&key.options, &key.file, &key.engine}) hash.add(*text);
  hash.add(static_cast<std::uint64_t>(key.patched_items));
  return hash.value() != 0 ? hash.value() : 1;
}

struct ProgramCache::Lease::Shelf {
  std::mutex* mutex = nullptr;  // the cache's
  std::string entry;
  std::vector<std::unique_ptr<KernelObject>> idle;
};

namespace {

std::string build_log(cl_program program, cl_device_id device) {
  std::size_t size = 0;
  if (clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size) !=
      CL_SUCCESS) {
    return {};
  }
  std::string log(size, '\0');
  if (clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr) !=
      CL_SUCCESS) {
    return {};
  }
  while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
  return log;
}

/// "add;scale", as the driver lists the kernels of a program.
std::string kernel_names(cl_program program) {
  std::size_t size = 0;
  if (clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, 0, nullptr, &size) != CL_SUCCESS ||
      size <= 1) {
    return "none";
  }
  std::string names(size, '\0');
  if (clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, size, names.data(), nullptr) !=
      CL_SUCCESS) {
    return "none";
  }
  names.pop_back();
  return names;
}

/// The first line that says "error", for the message; the whole log travels beside it.
std::string first_error(const std::string& log) {
  const auto at = log.find("error");
  if (at == std::string::npos) return log.substr(0, log.find('\n'));
  const auto line_start = log.rfind('\n', at);
  const auto start = line_start == std::string::npos ? 0 : line_start + 1;
  return log.substr(start, log.find('\n', at) - start);
}

/// True: files or the time decide what is compiled, beside this text, a program with its options.
/// Words in comments count, too.
bool depends_on_more(std::string text) {
  // Blanks decide nothing, and a line may go on in the next in the middle of a word.
  std::erase_if(text, [](char letter) { return std::strchr("\\ \t\v\f\r\n", letter) != nullptr; });
  constexpr std::string_view other_backslash = "?\?/";
  for (std::size_t at = 0; (at = text.find(other_backslash, at)) != std::string::npos;) {
    text.erase(at, other_backslash.size());
  }
  // The common words of these stand behind what may precede a directive's name.
  constexpr std::array words = {"include",     "imacros", "incbin",    "__DATE__",   "__TIME",
                                "__has_embed", "#import", "%:import",  "?\?=import", "*/import",
                                "#embed",      "%:embed", "?\?=embed", "*/embed"};
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return text.find(word) != std::string::npos; });
}

}  // namespace

struct ProgramCache::Impl {
  enum class Progress { building, ready, failed };
  struct Program {
    Specialisation key;
    Progress progress = Progress::building;
    cl::Program program;
    std::string dumped_as{};  // empty: it is not
    std::optional<Error> failure;
    std::deque<Lease::Shelf> shelves;  // a deque: leases point into it
  };

  cl::Context context;
  cl::Device device;
  std::string device_name;
  std::mutex mutex;
  std::condition_variable changed;
  std::unordered_multimap<std::uint64_t, std::shared_ptr<Program>> programs;  // by hash_of
  std::atomic<std::int64_t> builds{0};
  BinaryCache binaries;
  std::string device_key;  // what the driver's answer depends on beside the source
  ProgramDump dump;

  /// Into `made`, which no other thread looks at until it is ready.
  cl::Program build(Program& made) {
    const Specialisation& wanted = made.key;
    const dispatch::Timed timed(dispatch::current_call(), ProfileKind::wait, "build a program");
    const std::string source =
        wanted.source ? *wanted.source : assemble_source(wanted.file, wanted.engine);
    // No warnings (-w): PoCL counts them on stderr, and some are of the compiler's own headers, as
    // where vectors are wider than the processor's.
    const bool has_standard = wanted.options.find("-cl-std=") != std::string::npos;
    const std::string options = wanted.options + (wanted.options.empty() ? "" : " ") +
                                (has_standard ? "-w" : "-cl-std=CL1.2 -w");
    const std::string patch =
        wanted.patched_items == 0
            ? std::string()
            : fmt::format("\npatched for sm_90a, {} work-items", wanted.patched_items);
    if (dump.is_on()) made.dumped_as = ProgramDump::name_of(wanted.file, source, options + patch);
    const std::string text = options + patch + '\n' + source;
    // Files that a caller's program includes may change, and are no part of the key.
    const bool keeps =
        binaries.is_on() && !dump.is_on() && !(wanted.source && depends_on_more(text));
    const std::string key = keeps ? device_key + text : std::string();
    if (const auto kept = keeps ? binaries.find(key) : std::nullopt) {
      // The driver does not take a file from before its update.
      const Loaded loaded = load(*kept, options);
      if (loaded.status == CL_SUCCESS) return loaded.program;
    }
    cl::Program program = compile(made, source, options);
    auto binary = keeps || wanted.patched_items != 0 ? binary_of(program()) : std::nullopt;
    if (wanted.patched_items != 0) {
      binary = patched(wanted, binary);
      // A text that the driver does not take is what somebody wants to see.
      if (dump.is_on()) dump.ran(made.dumped_as, *binary);
      const Loaded loaded = load(*binary, options);
      if (loaded.status != CL_SUCCESS) {
        fail(loaded.status, loaded.call, loaded.program, "loading patched PTX of", wanted.file,
             options);
      }
      program = loaded.program;
    }
    if (keeps && binary) binaries.keep(key, *binary);
    return program;
  }

  /// The text for sm_90a of what the driver gives for a program.
  std::string patched(const Specialisation& wanted,
                      const std::optional<std::string>& binary) const {
    try {
      if (!binary) throw PtxRefused("the driver gives no binary");
      return to_sm_90a(*binary, wanted.patched_items).text;
    } catch (const PtxRefused& refused) {
      throw Error(ErrorCode::build_failed,
                  fmt::format("the PTX of {} on {} cannot be patched for sm_90a: {}; another "
                              "implementation may serve",
                              wanted.file, device_name, refused.what()));
    }
  }

  struct Loaded {
    cl::Program program;
    cl_int status = CL_SUCCESS;
    const char* call = "clBuildProgram";  ///< whose status it is
  };
  Loaded load(const std::string& binary, const std::string& options) const {
    const cl_device_id id = device();
    const auto* bytes = reinterpret_cast<const unsigned char*>(binary.data());
    const std::size_t size = binary.size();
    cl_int loaded = CL_SUCCESS;
    cl_int status = CL_SUCCESS;
    cl::Program program(
        clCreateProgramWithBinary(context(), 1, &id, &size, &bytes, &loaded, &status), false);
    if (status == CL_SUCCESS) status = loaded;
    if (status != CL_SUCCESS) return {program, status, "clCreateProgramWithBinary"};
    return {program, clBuildProgram(program(), 1, &id, options.c_str(), nullptr, nullptr)};
  }

  /// Of a program that this cache made, whose context may have devices besides.
  std::optional<std::string> binary_of(cl_program program) const {
    cl_uint count = 0;
    if (clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof(count), &count, nullptr) !=
        CL_SUCCESS) {
      return std::nullopt;
    }
    std::vector<cl_device_id> devices(count);
    std::vector<std::size_t> sizes(count);
    if (clGetProgramInfo(program, CL_PROGRAM_DEVICES, count * sizeof(cl_device_id), devices.data(),
                         nullptr) != CL_SUCCESS ||
        clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, count * sizeof(std::size_t),
                         sizes.data(), nullptr) != CL_SUCCESS) {
      return std::nullopt;
    }
    const auto own = std::find(devices.begin(), devices.end(), device());
    if (own == devices.end()) return std::nullopt;
    const auto index = static_cast<std::size_t>(own - devices.begin());
    std::string binary(sizes[index], '\0');
    if (binary.empty()) return std::nullopt;
    std::vector<unsigned char*> places(count, nullptr);  // null: that one is not wanted
    places[index] = reinterpret_cast<unsigned char*>(binary.data());
    if (clGetProgramInfo(program, CL_PROGRAM_BINARIES, count * sizeof(unsigned char*),
                         places.data(), nullptr) != CL_SUCCESS) {
      return std::nullopt;
    }
    return binary;
  }

  cl::Program compile(const Program& made, const std::string& source, const std::string& options) {
    const std::string& file = made.key.file;
    ++builds;
    const char* text = source.c_str();
    const std::size_t length = source.size();
    cl_int status = CL_SUCCESS;
    cl::Program program(clCreateProgramWithSource(context(), 1, &text, &length, &status), false);
    check(status, "clCreateProgramWithSource", device_name, "loading " + file);
    const cl_device_id id = device();
    status = clBuildProgram(program(), 1, &id, options.c_str(), nullptr, nullptr);
    if (dump.is_on()) dump.compiled(made.dumped_as, source, options, build_log(program(), id));
    if (status != CL_SUCCESS) fail(status, "clBuildProgram", program, "building", file, options);
    return program;
  }

  [[noreturn]] void fail(cl_int status, const char* call, const cl::Program& program,
                         const std::string& doing, const std::string& file,
                         const std::string& options) const {
    if (classify(status) == ErrorCode::out_of_memory) {
      throw_error(status, call, device_name, doing + ' ' + file);
    }
    const std::string log = build_log(program(), device());
    throw Error(ErrorCode::build_failed,
                fmt::format("{} failed with {} while {} {} with \"{}\" on {}; {}; build_log() has "
                            "all of it, another implementation may serve",
                            call, code_name(status), doing, file, options, device_name,
                            log.empty() ? std::string("the compiler left no log")
                                        : "the compiler says: " + first_error(log)),
                log);
  }

  /// The finished program of `wanted`, built by this thread or another.
  std::shared_ptr<Program> program(const Specialisation& wanted,
                                   std::unique_lock<std::mutex>& lock) {
    const std::uint64_t hash = wanted.hash != 0 ? wanted.hash : hash_of(wanted);
    const auto [first, last] = programs.equal_range(hash);
    const auto found =
        std::find_if(first, last, [&](const auto& entry) { return entry.second->key == wanted; });
    if (found != last) {
      const auto program = found->second;
      changed.wait(lock, [&] { return program->progress != Progress::building; });
      if (program->progress == Progress::failed) throw Error(*program->failure);
      return program;
    }
    const auto program = std::make_shared<Program>();
    program->key = wanted;
    programs.emplace(hash, program);
    lock.unlock();
    std::exception_ptr other;
    try {
      program->program = build(*program);
    } catch (const Error& error) {
      program->failure = error;
    } catch (...) {
      other = std::current_exception();
      program->failure =
          Error(ErrorCode::out_of_memory, "the host ran out of memory building " + wanted.file);
    }
    lock.lock();
    program->progress = program->failure ? Progress::failed : Progress::ready;
    // What may succeed next time is forgotten, for everybody who comes later.
    if (program->failure && program->failure->code() != ErrorCode::build_failed) {
      std::erase_if(programs, [&](const auto& entry) { return entry.second == program; });
    }
    changed.notify_all();
    if (other) std::rethrow_exception(other);
    if (program->failure) throw Error(*program->failure);
    return program;
  }
};

ProgramCache::ProgramCache(const cl::Context& context, const cl::Device& device)
    : impl_(std::make_unique<Impl>()) {
  impl_->context = context;
  impl_->device = device;
  char name[256] = "";
  if (clGetDeviceInfo(device(), CL_DEVICE_NAME, sizeof(name), name, nullptr) == CL_SUCCESS) {
    impl_->device_name = name;
  }
}

ProgramCache::~ProgramCache() {
  for (const auto& [hash, program] : impl_->programs) {
    if (program->dumped_as.empty() || program->progress != Impl::Progress::ready) continue;
    if (const auto binary = impl_->binary_of(program->program())) {
      impl_->dump.ran(program->dumped_as, *binary);
    }
  }
}

void ProgramCache::keep_in(BinaryCache binaries, std::string device_key) {
  impl_->binaries = std::move(binaries);
  impl_->device_key = std::move(device_key);
}

void ProgramCache::dump_to(ProgramDump dump) { impl_->dump = std::move(dump); }

ProgramCache::Lease::Lease(Lease&& other) noexcept
    : shelf_(std::exchange(other.shelf_, nullptr)), object_(std::move(other.object_)) {}

ProgramCache::Lease& ProgramCache::Lease::operator=(Lease&& other) noexcept {
  std::swap(shelf_, other.shelf_);
  std::swap(object_, other.object_);
  return *this;
}

ProgramCache::Lease::~Lease() {
  if (shelf_ == nullptr) return;
  std::lock_guard lock(*shelf_->mutex);
  try {
    shelf_->idle.push_back(std::move(object_));
  } catch (...) {
    // No room to remember the kernel: it is released with the lease.
  }
}

ProgramCache::Lease ProgramCache::kernel(const Specialisation& specialisation,
                                         std::string_view entry) {
  Lease lease;
  std::unique_lock lock(impl_->mutex);
  const auto program = impl_->program(specialisation, lock);
  Lease::Shelf* shelf = nullptr;
  for (auto& candidate : program->shelves) {
    if (candidate.entry == entry) shelf = &candidate;
  }
  if (shelf != nullptr && !shelf->idle.empty()) {
    lease.object_ = std::move(shelf->idle.back());
    shelf->idle.pop_back();
    lease.shelf_ = shelf;
    return lease;
  }
  const std::string name(entry);
  cl_int status = CL_SUCCESS;
  const cl_kernel made = clCreateKernel(program->program(), name.c_str(), &status);
  if (status == CL_INVALID_KERNEL_NAME) {
    throw Error(ErrorCode::invalid_argument, specialisation.file + " has no kernel \"" + name +
                                                 "\"; it has " + kernel_names(program->program()));
  }
  if (status != CL_SUCCESS) {
    throw_error(status, "clCreateKernel", impl_->device_name,
                "making kernel " + name + " of " + specialisation.file);
  }
  lease.object_ = std::make_unique<KernelObject>(cl::Kernel(made, false));
  if (shelf == nullptr) {
    shelf = &program->shelves.emplace_back(Lease::Shelf{&impl_->mutex, name, {}});
  }
  lease.shelf_ = shelf;
  return lease;
}

std::int64_t ProgramCache::builds() const noexcept { return impl_->builds; }

}  // namespace tessera::opencl
