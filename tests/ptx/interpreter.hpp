// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// An interpreter of PTX for tests without a GPU: it runs a kernel's warps and groups in a random
/// order that the architecture allows, lets what is asynchronous arrive as late or as early as it
/// may, and ends with a Fault where the kernel breaks a rule. Written from NVIDIA's "PTX ISA".
namespace tessera_ptx {

/// A broken rule, or what the interpreter does not know; the message names the instruction.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Parameter {
  enum class Kind { value, global, local };
  Kind kind = Kind::value;
  std::size_t bytes = 0;  ///< of a value; a pointer has 8
};

struct Signature {
  std::string name;
  std::vector<Parameter> parameters;
  std::array<std::size_t, 3> required_items{0, 0, 0};  ///< .reqntid; 0: none
  std::size_t shared_bytes = 0;                        ///< of its own, beside local arguments
};

struct Argument {
  std::vector<std::byte> value;  ///< of a value; of a global pointer its 8 bytes
  std::size_t local_bytes = 0;   ///< of a local pointer
};

/// Memory that a launch may touch. Addresses in kernels are those of the host.
struct Span {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

struct Launch {
  std::array<std::size_t, 3> groups{1, 1, 1}, items{1, 1, 1};
  std::vector<Argument> arguments;
  std::vector<Span> memory;
  std::vector<Span> mapped;  ///< beside it, what copies by tensor maps may read
  std::uint64_t seed = 1;  ///< of the order, and of whether copies arrive early, late or at random
};

struct Report {
  std::uint64_t instructions = 0;  ///< of warps
};

/// The text of one program. Immutable, so that threads may share it.
class Module {
 public:
  /// Throws Fault with the number of the line.
  explicit Module(std::string_view text);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& target() const noexcept;  ///< "sm_90a"
  const std::vector<Signature>& kernels() const noexcept;
  /// Runs all groups of a kernel. Throws Fault.
  Report run(const std::string& kernel, const Launch& launch) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera_ptx
