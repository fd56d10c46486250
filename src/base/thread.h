// Threads that the system may refuse to make.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

// A thread that runs f. Throws Error(out_of_memory) where the system makes no more of them.
template <class F>
std::thread start_thread(F&& f, std::source_location where = std::source_location::current()) {
  try {
    return std::thread(std::forward<F>(f));
  } catch (const std::system_error& error) {
    fail(ErrorCode::out_of_memory, where, "cannot start a thread: ", error.code().message(),
         "; use fewer devices and threads, or raise the limit on processes (ulimit -u)");
  }
}

}  // namespace lockstep
