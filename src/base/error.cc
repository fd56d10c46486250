#include "lockstep/base/error.h"

#include "lockstep/base/call_site.h"
#include "lockstep/base/errors.h"

namespace lockstep {

std::string_view name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::shape_mismatch: return "shape_mismatch";
    case ErrorCode::dtype_mismatch: return "dtype_mismatch";
    case ErrorCode::device_mismatch: return "device_mismatch";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::not_found: return "not_found";
    case ErrorCode::failed_precondition: return "failed_precondition";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::io: return "io";
    case ErrorCode::internal: return "internal";
  }
  return "unknown";
}

Error::Error(ErrorCode code, std::string message, std::source_location where)
    : std::runtime_error(""), code_(code), message_(std::move(message)), where_(CallSite::of(where)) {
  render();
}

Error& Error::note(std::string text) {
  notes_.push_back(std::move(text));
  render();
  return *this;
}

Error& Error::locate(std::source_location where) {
  if (CallSite::in_library(where_) && !CallSite::in_library(where)) {
    where_ = where;
    render();
  }
  return *this;
}

std::string file_and_line(std::source_location where) {
  std::string_view file = where.file_name();
  if (const size_t slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
  return detail::concat(file, ":", where.line());
}

void Error::render() {
  text_ = detail::concat(name(code_), ": ", message_, " [", file_and_line(where_), "]");
  for (const std::string& n : notes_) text_ += "\n  " + n;
}

namespace {
template <class E>
[[noreturn]] void throw_as(ErrorCode code, std::string message, std::source_location where,
                           std::vector<std::string> notes) {
  E error(code, std::move(message), where);
  for (std::string& note : notes) error.note(std::move(note));
  throw error;
}
}  // namespace

void detail::throw_error(ErrorCode code, std::string message, std::source_location where,
                         std::vector<std::string> notes) {
  const auto thrown = [&]<class E>() { throw_as<E>(code, std::move(message), where, std::move(notes)); };
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::shape_mismatch:
    case ErrorCode::dtype_mismatch:
    case ErrorCode::device_mismatch: thrown.operator()<errors::InvalidArgumentError>(); break;
    case ErrorCode::out_of_memory: thrown.operator()<errors::ResourceExhaustedError>(); break;
    case ErrorCode::not_found: thrown.operator()<errors::NotFoundError>(); break;
    case ErrorCode::failed_precondition: thrown.operator()<errors::FailedPreconditionError>(); break;
    case ErrorCode::unsupported: thrown.operator()<errors::UnimplementedError>(); break;
    case ErrorCode::io: thrown.operator()<errors::IOError>(); break;
    case ErrorCode::internal: break;
  }
  throw_as<errors::InternalError>(code, std::move(message), where, std::move(notes));
}

}  // namespace lockstep
