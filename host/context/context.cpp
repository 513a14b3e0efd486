// SPDX-License-Identifier: Apache-2.0
#include "tessera/context.hpp"

#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>

#include "host/context/open_device.hpp"
#include "host/dispatch/context_state.hpp"
#include "host/dispatch/guarded.hpp"
#include "tessera/tile/chip.hpp"

namespace tessera {

namespace {

template <class Body>
auto guarded(const Body& body) {
  return dispatch::guarded("making a Context", body);
}

/// Far above any machine; a larger number is a bug in the caller that would exhaust the system.
constexpr int max_threads = 4096;

const ContextOptions& checked(const ContextOptions& options) {
  if (options.threads < 0 || options.threads > max_threads) {
    throw Error(ErrorCode::invalid_argument,
                "ContextOptions::threads is " + std::to_string(options.threads) +
                    "; give 0 for one per hardware thread, or 1 to " + std::to_string(max_threads));
  }
  if (options.host_only && !options.device.empty()) {
    throw Error(ErrorCode::invalid_argument, "ContextOptions::device is \"" + options.device +
                                                 "\" but host_only is set; give one of the two");
  }
  if (!options.plan_for.empty() && (options.host_only || !options.device.empty())) {
    throw Error(ErrorCode::invalid_argument,
                "ContextOptions::plan_for is \"" + options.plan_for +
                    "\" but device or host_only is given too; give one of the three");
  }
  return options;
}

/// The chip where the text that chooses a device is the name of a TPU; empty where it is not.
std::string tile_chip_of(const ContextOptions& options) {
  std::string wanted = options.device;
  if (wanted.empty() && !options.host_only && options.plan_for.empty()) {
    const char* variable = std::getenv("TESSERA_DEVICE");
    if (variable != nullptr) wanted = variable;
  }
  const tile::Chip* chip = tile::known_chip(wanted);
  return chip != nullptr ? chip->name : std::string();
}

/// A caller's handles already are the choice, so that the options may not hold another.
const ContextOptions& checked_for_handles(const ContextOptions& options) {
  if (options.host_only || !options.device.empty() || !options.plan_for.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "ContextOptions::device, plan_for and host_only have no meaning beside OpenCL "
                "handles; leave "
                "them empty");
  }
  return checked(options);
}

std::shared_ptr<ContextState> make_state(const ContextOptions& options,
                                         std::shared_ptr<DeviceRuntime> device,
                                         std::string tile_chip = {}) {
  auto state = std::make_shared<ContextState>(options, device, std::move(tile_chip));
  if (device == nullptr) return state;
  try {
    // The code is written when the device goes, perhaps later than the state.
    if (!options.dump_folder.empty()) {
      device->dump_programs(options.dump_folder,
                            std::make_shared<dispatch::WarningLog>(options.warning_handler));
    }
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::invalid_argument,
                "ContextOptions::dump_folder \"" + options.dump_folder + "\" cannot be written (" +
                    error.code().message() + "); give a folder that can be, or none");
  }
  if (options.cache_folder.empty()) return state;
  try {
    device->keep_programs(options.cache_folder);
  } catch (const std::system_error& error) {
    state->warnings.warn("tessera: ContextOptions::cache_folder \"" + options.cache_folder +
                         "\" cannot be written (" + error.code().message() +
                         "); programs are compiled in each process");
  } catch (const Error& error) {
    state->warnings.warn("tessera: ContextOptions::cache_folder \"" + options.cache_folder +
                         "\" is not used, because " + error.what() +
                         ", and what lies in it is run; programs are compiled in each process: "
                         "give a folder of your own, or make this one so (chmod 700)");
  }
  return state;
}

/// `$VARIABLE/below`; empty where it is none.
std::string below_folder(const char* variable, const char* below) {
  const char* folder = std::getenv(variable);
  // The XDG specification: a relative path counts as none.
  return folder != nullptr && *folder == '/' ? std::string(folder) + below : std::string();
}

}  // namespace

std::string default_cache_folder() {
  const std::string own = below_folder("XDG_CACHE_HOME", "/tessera");
  return own.empty() ? below_folder("HOME", "/.cache/tessera") : own;
}

std::string tuned_blocks_file() {
  if (const char* file = std::getenv("TESSERA_TUNED_FILE")) return file;
  const std::string own = below_folder("XDG_CONFIG_HOME", "/tessera/tuned.csv");
  return own.empty() ? below_folder("HOME", "/.config/tessera/tuned.csv") : own;
}

Context::Context() : Context(ContextOptions{}) {}

Context::Context(const ContextOptions& options) {
  state_ = guarded([&] {
    std::string chip = tile_chip_of(checked(options));
    auto device = options.host_only || !chip.empty() ? nullptr : context::open_device(options);
    return make_state(options, std::move(device), std::move(chip));
  });
}

Context::Context(cl_context context, cl_device_id device, const ContextOptions& options) {
  checked_for_handles(options);
  if (context == nullptr || device == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                std::string(context == nullptr ? "context" : "device") +
                    " is null; give the cl_context and one of its devices");
  }
  state_ =
      guarded([&] { return make_state(options, context::wrap_device(context, device, nullptr)); });
}

Context Context::from_queue(cl_command_queue queue, const ContextOptions& options) {
  checked_for_handles(options);
  if (queue == nullptr) {
    throw Error(ErrorCode::invalid_argument, "queue is null; give a cl_command_queue");
  }
  return Context(
      guarded([&] { return make_state(options, context::wrap_device(nullptr, nullptr, queue)); }));
}

Context::Context(std::shared_ptr<ContextState> state) : state_(std::move(state)) {}
Context::Context(const Context&) = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(const Context&) = default;
Context& Context::operator=(Context&&) noexcept = default;
Context::~Context() = default;

ContextState& Context::state() const {
  if (!state_) {
    throw Error(ErrorCode::invalid_argument,
                "the Context was moved from; use the one that it was moved to, or a copy");
  }
  return *state_;
}

bool Context::has_device() const noexcept { return state_ && state_->device; }

const DeviceInfo& Context::device_info() const noexcept {
  static const auto& none = *new DeviceInfo;  // never destroyed
  return has_device() ? state_->device->info() : none;
}

cl_context Context::native_context() const noexcept {
  return has_device() ? state_->device->native_context() : nullptr;
}

cl_device_id Context::native_device() const noexcept {
  return has_device() ? state_->device->native_device() : nullptr;
}

cl_command_queue Context::native_queue() const noexcept {
  return has_device() ? state_->device->native_queue() : nullptr;
}

int Context::threads() const noexcept { return state_ ? state_->threads.size() : 0; }

void Context::trim() {
  state().workspaces.trim();
  if (state_->device) state_->device->trim();
}

std::int64_t Context::pooled_bytes() const noexcept {
  return has_device() ? state_->device->pooled_bytes() : 0;
}

}  // namespace tessera
