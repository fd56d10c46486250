// For tests of errors.
#pragma once

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {

// The error that `f` throws; fails the test where it throws none.
template <class F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(ErrorCode::internal, "", std::source_location::current());
}

}  // namespace lockstep
