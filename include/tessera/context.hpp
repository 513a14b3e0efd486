// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/error.hpp"

// The C handles alone, declared as CL/cl.h declares them, so that this header needs no OpenCL.
extern "C" {
typedef struct _cl_context* cl_context;
typedef struct _cl_device_id* cl_device_id;
typedef struct _cl_command_queue* cl_command_queue;
typedef struct _cl_mem* cl_mem;
typedef struct _cl_event* cl_event;
}

namespace tessera {

/// What an OpenCL driver says of a device.
struct DeviceInfo {
  std::string platform{};          ///< platform name
  std::string name{};              ///< device name
  std::string vendor{};            ///< device vendor
  std::string driver{};            ///< driver version
  std::string version{};           ///< device version, "OpenCL 3.0 ..."
  std::string type{};              ///< "gpu", "accelerator", "cpu" or "custom"
  int platform_index = 0;          ///< `p` of the selector "p:d"
  int device_index = 0;            ///< `d` of the selector "p:d"
  std::int64_t compute_units = 0;  ///< of a Context: those that it uses
  std::int64_t global_memory_bytes = 0;
  std::int64_t max_allocation_bytes = 0;
  std::int64_t local_memory_bytes = 0;
  std::int64_t max_work_group_size = 0;
  bool shares_host_memory = false;  ///< host pointers are used without a copy
};

/// Receives one line of text per distinct warning, on the calling thread and outside locks.
using WarningHandler = std::function<void(const std::string& message)>;

/// How to make a Context.
struct ContextOptions {
  /// Text found in a platform or device name (case-insensitive), or "p:d". Empty: the environment
  /// variable TESSERA_DEVICE, else the first GPU, else accelerator, else CPU. A text that matches
  /// nothing is `Error device_not_found`, which lists what is there; with neither text nor device
  /// the context is host only. The name of a TPU ("TPU v5p", "v6e") makes a context without an
  /// OpenCL device, in which `tpu_tile` takes that chip for its own.
  std::string device{};
  /// Threads for work on the host, the caller's included; 0: one per hardware thread. An OpenCL CPU
  /// device of more compute units lends as many, as a sub-device (docs/processes.md); where its
  /// driver cannot, Dispatch::notes says so. 0: all of them. Without effect on handles of the
  /// caller's.
  int threads = 0;
  /// Where compiled programs are kept for later processes, and looked for first; made where it is
  /// missing. Empty: nowhere; a driver may keep its own. Files are taken only for the same device,
  /// driver and revision of the library; damaged ones are ignored; removing them is always safe.
  /// Programs in it are run: a folder that is not the user's own, or that others may write to, is
  /// not used, with a warning; default_cache_folder() is a good one. One that cannot be written is
  /// a warning, too, and nothing is kept.
  /// With PoCL the call that fills the folder takes up to three times as long as without.
  std::string cache_folder{};
  /// Where each compiled program leaves what a compiler can say of it, in a folder of its own
  /// (docs/profiling.md): the source, the options and the log once it is compiled, the code when
  /// the Context ends. Made where it is missing; empty: nowhere. Programs are then compiled anew in
  /// each Context, whatever cache_folder holds. A folder that cannot be written is an Error
  /// invalid_argument; what cannot be written later, as where the disk is full, is a warning.
  std::string dump_folder{};
  /// Makes a context without any device even where one exists.
  bool host_only = false;
  /// A machine that is not here, by name: "h100", "mi300x", "a770", "cpu-64" and others, which the
  /// Error device_not_found of an unknown one lists. In such a context `plan`, `cost_estimate`,
  /// `infer_block_sizes` and `why_unsupported` answer for that machine by data sheets, without
  /// touching a driver or compiling anything; calls are Error unsupported.
  std::string plan_for{};
  /// Empty: a line to stderr, once per distinct message.
  WarningHandler warning_handler{};
};

/// `$XDG_CACHE_HOME/tessera`, else `$HOME/.cache/tessera`; empty where neither variable is an
/// absolute path.
TESSERA_API std::string default_cache_folder();

class ContextState;

/// A device (or none), its compiled programs and pooled workspaces, and a pool of host threads.
///
/// Copies share the state. One Context may be used from several threads at once. Nothing touches a
/// driver before a Context exists, and handlers of signals are the same afterwards. In a forked
/// child of a process that had used OpenCL nothing runs but on the host (docs/processes.md).
class TESSERA_API Context {
 public:
  Context();
  explicit Context(const ContextOptions& options);
  /// Works on the caller's context and device; both are retained.
  /// Throws `Error foreign_context` when the device does not belong to the context.
  Context(cl_context context, cl_device_id device, const ContextOptions& options = {});
  /// Works on the caller's queue (in-order or out-of-order), its context and device.
  static Context from_queue(cl_command_queue queue, const ContextOptions& options = {});

  /// What a Context was moved from has no device and no threads, and is an Error invalid_argument
  /// wherever a call is given it.
  Context(const Context&);
  Context(Context&&) noexcept;
  Context& operator=(const Context&);
  Context& operator=(Context&&) noexcept;
  ~Context();

  bool has_device() const noexcept;
  /// The device's description; a host-only context has an empty name.
  const DeviceInfo& device_info() const noexcept;
  /// The handles in use, for callers who enqueue commands of their own; nullptr when host only.
  cl_context native_context() const noexcept;
  cl_device_id native_device() const noexcept;
  cl_command_queue native_queue() const noexcept;

  /// Host threads, the caller's included.
  int threads() const noexcept;

  /// Frees pooled workspaces that no call uses at the moment.
  void trim();
  /// Bytes of device memory that the pool holds at the moment, in use or not.
  std::int64_t pooled_bytes() const noexcept;

  /// The library's own state behind this context. Throws Error invalid_argument where this was
  /// moved from.
  ContextState& state() const;

 private:
  explicit Context(std::shared_ptr<ContextState> state);
  std::shared_ptr<ContextState> state_;
};

/// The user's file of tuned block sizes (docs/block_sizes.md): what the environment variable
/// TESSERA_TUNED_FILE names (set and empty: none), else `$XDG_CONFIG_HOME/tessera/tuned.csv`, else
/// `$HOME/.config/tessera/tuned.csv`; empty where neither variable is an absolute path.
TESSERA_API std::string tuned_blocks_file();

/// Reads that file again, which is else read once in a process, so that the next call of any
/// Context sees what changed. No file is as good as an empty one. Returns what is wrong with it, a
/// line for each: the lines named there are skipped, and each Context warns of them once.
TESSERA_API std::vector<std::string> reload_tuned_blocks();

/// Every OpenCL device that the installed drivers report, in the order of their indices. Empty
/// without OpenCL. Never throws for a missing driver.
TESSERA_API std::vector<DeviceInfo> devices();

}  // namespace tessera
