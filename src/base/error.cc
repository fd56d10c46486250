#include "lockstep/base/error.h"

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
    : code_(code), message_(std::move(message)), where_(where) {
  render();
}

Error& Error::note(std::string text) {
  notes_.push_back(std::move(text));
  render();
  return *this;
}

void Error::render() {
  std::string_view file = where_.file_name();
  if (const size_t slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
  text_ = detail::concat(name(code_), ": ", message_, " [", file, ":", where_.line(), "]");
  for (const std::string& n : notes_) text_ += "\n  " + n;
}

}  // namespace lockstep
