// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/context.hpp"

namespace tessera::test::soak {

/// A queue of a thread's own and events that it opens or fails; without a device, nothing.
class Gates {
 public:
  Gates(Context& context, bool out_of_order);
  ~Gates();
  Gates(const Gates&) = delete;
  Gates& operator=(const Gates&) = delete;

  cl_command_queue queue() const { return queue_; }
  /// An event that commands may wait for; given back by `open` or `fail`.
  cl_event make();
  void open(cl_event gate);
  void fail(cl_event gate);

 private:
  Context context_;
  cl_command_queue queue_ = nullptr;
};

}  // namespace tessera::test::soak
