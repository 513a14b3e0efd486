// SPDX-License-Identifier: Apache-2.0
#include "tessera/profile.hpp"

#include <filesystem>
#include <system_error>

#include "host/dispatch/context_state.hpp"
#include "host/dispatch/files.hpp"
#include "host/dispatch/guarded.hpp"

namespace tessera {
namespace {

template <class Body>
auto guarded(const Body& body) {
  return dispatch::guarded("Profile", body);
}

void write_trace(const std::string& path, const std::string& text) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw Error(ErrorCode::invalid_argument,
                "Profile::write: path \"" + path + "\" is a folder; give the name of a file in it");
  }
  try {
    auto file = dispatch::NewFile::named(path);
    file.write(text);
    file.put();
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::execution_failed,
                "Profile::write: path \"" + path +
                    "\" cannot be written: " + error.code().message() +
                    "; what was there is unchanged, and the profile is complete: write it to "
                    "another path");
  }
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
