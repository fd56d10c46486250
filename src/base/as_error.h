// Exceptions of the standard library that are no fault of Lockstep's, as an Error: memory, threads, files.
#pragma once

#include <source_location>
#include <string_view>
#include <utility>

#include "lockstep/base/call_site.h"

namespace lockstep {

// To be called in a catch (...): throws Error(out_of_memory) for memory and threads that there are not,
// Error(io) for what the file system refuses; what else is caught, a user's own exceptions above all, is
// thrown on as it is.
[[noreturn]] void rethrow_as_error(std::string_view what, std::source_location where);

// Runs f for a public function of this name that was called in this line.
template <class F>
auto as_error(std::string_view what, std::source_location where, F&& f) -> decltype(f()) {
  const CallSite site(where);
  try {
    return std::forward<F>(f)();
  } catch (...) {
    rethrow_as_error(what, where);
  }
}

}  // namespace lockstep
