// SPDX-License-Identifier: Apache-2.0
#include "interpreter.hpp"

#include <map>
#include <mutex>

#include "machine.hpp"

namespace tessera_ptx {

struct Module::Impl {
  Program program;
  std::vector<Signature> kernels;
  std::map<std::string, Code> codes;
};

Module::Module(std::string_view text) : impl_(std::make_unique<Impl>()) {
  impl_->program = parse(text);
  for (auto& entry : impl_->program.entries) {
    impl_->kernels.push_back(entry.signature);
    const std::string name = entry.signature.name;
    impl_->codes.emplace(name, prepare(std::move(entry)));
  }
}

Module::~Module() = default;

const std::string& Module::target() const noexcept { return impl_->program.target; }
const std::vector<Signature>& Module::kernels() const noexcept { return impl_->kernels; }

Report Module::run(const std::string& kernel, const Launch& launch) const {
  const auto found = impl_->codes.find(kernel);
  if (found == impl_->codes.end()) throw Fault("no kernel " + kernel);
  Machine machine(found->second, launch, impl_->program.constants);
  return {machine.run()};
}

}  // namespace tessera_ptx
