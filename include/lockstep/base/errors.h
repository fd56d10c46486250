// tf::errors: the kinds of errors under TensorFlow's names.
//
// Every error is a lockstep::Error and of the type here that its code says, so a program may catch by type or
// look at code():
//
//   try { checkpoint.restore(path); } catch (const tf::errors::NotFoundError&) { ... }
#pragma once

#include "lockstep/base/error.h"

namespace lockstep::errors {

using OpError = Error;

// Values, shapes, dtypes or devices that do not fit.
struct InvalidArgumentError : Error {
  using Error::Error;
};
struct ResourceExhaustedError : Error {  // memory
  using Error::Error;
};
struct NotFoundError : Error {
  using Error::Error;
};
struct FailedPreconditionError : Error {
  using Error::Error;
};
struct UnimplementedError : Error {  // what this build or device cannot do
  using Error::Error;
};
struct IOError : Error {  // files and sockets
  using Error::Error;
};
// Another worker of the run is lost, and this one cannot go on without it. Nothing is wrong here: started
// again, together with the others, the program may go on from its last backup. Its code is io.
struct UnavailableError : IOError {
  using IOError::IOError;
};
// The exit status with which a program says so to its scheduler: EX_TEMPFAIL of sysexits.h.
inline constexpr int kUnavailableStatus = 75;
struct InternalError : Error {
  using Error::Error;
};

}  // namespace lockstep::errors
