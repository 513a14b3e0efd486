// SPDX-License-Identifier: Apache-2.0
#include "tessera/profile.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "host/dispatch/context_state.hpp"
#include "host/dispatch/files.hpp"
#include "host/dispatch/guarded.hpp"

namespace tessera {
namespace {

namespace fs = std::filesystem;

template <class Body>
auto guarded(const Body& body) {
  return dispatch::guarded("Profile", body);
}

[[noreturn]] void fail_writing(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::execution_failed,
              "Profile::write: path \"" + path + "\" cannot be written: " + why +
                  "; what was there is unchanged, and the profile is complete: write it to another "
                  "path");
}

void write_trace(const std::string& path, const std::string& text) {
  std::error_code ignored;
  const auto there = fs::status(path, ignored);
  if (fs::is_directory(there)) {
    throw Error(ErrorCode::invalid_argument,
                "Profile::write: path \"" + path + "\" is a folder; give the name of a file in it");
  }
  // What is no file, a pipe or a device, cannot be replaced; a link stays one.
  const bool in_place = fs::exists(there) && !fs::is_regular_file(there);
  const std::string target =
      fs::is_regular_file(there) ? fs::canonical(path, ignored).string() : path;
  const std::string temporary = in_place ? target : dispatch::unfinished(target);
  errno = 0;
  if (dispatch::write_file(temporary, text) &&
      (in_place || std::rename(temporary.c_str(), target.c_str()) == 0)) {
    return;
  }
  const int reason = errno;
  if (!in_place) std::remove(temporary.c_str());
  fail_writing(path, std::strerror(reason));
}

}  // namespace

struct Profile::Impl {
  std::shared_ptr<ContextState> state;
  std::shared_ptr<dispatch::Recorder> recorder = std::make_shared<dispatch::Recorder>();

  ~Impl() {
    if (state) state->profiling.close();
  }
};

Profile::Profile(const Context& context) {
  guarded([&] {
    impl_ = std::make_unique<Impl>();
    auto state = context.state().shared_from_this();
    if (!state->profiling.open(impl_->recorder)) {
      throw Error(ErrorCode::invalid_argument,
                  "context has a Profile already, of which there is one at a time for a Context "
                  "and its copies; use that one, or end it first");
    }
    impl_->state = std::move(state);
  });
}

Profile::~Profile() = default;

std::vector<ProfileRow> Profile::kernels() const {
  return guarded([&] { return dispatch::rows_of(impl_->recorder->recorded()); });
}

ProfileTimes Profile::times() const {
  return guarded([&] { return dispatch::times_of(impl_->recorder->recorded()); });
}

std::vector<std::string> Profile::notes() const {
  return guarded([&] { return impl_->recorder->notes(); });
}

void Profile::write(const std::string& path) const {
  if (path.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "Profile::write: path is empty; give the name of a file");
  }
  guarded([&] {
    const auto& recorder = *impl_->recorder;
    write_trace(path, dispatch::trace_of(recorder.recorded(), recorder.begin, recorder.notes()));
  });
}

}  // namespace tessera
