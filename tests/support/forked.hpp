// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <string>

namespace tessera::test {

/// What `child` returns of a forked child: 0 is right. A hang ends by a signal.
inline int status_of_child(const std::function<int()>& child) {
  const pid_t process = fork();
  if (process == 0) {
    alarm(60);
    int code = 99;
    try {
      code = child();
    } catch (const std::exception& error) {
      (void)!write(STDERR_FILENO, error.what(), std::string(error.what()).size());
    }
    _exit(code);
  }
  int status = 0;
  EXPECT_EQ(waitpid(process, &status, 0), process);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace tessera::test
