// One exception type for everything Lockstep refuses to do.
//
// An Error carries a closed code (for programs), a message that names what was wrong with the
// received values and the fix (for people), the caller's source location, and notes that outer
// layers add while it unwinds ("in layer dense_1", "while tracing the training step").
#pragma once

#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class ErrorCode {
  invalid_argument,     // a value outside what the operation accepts
  shape_mismatch,       // shapes that do not fit together
  dtype_mismatch,       // element types that do not fit together, or are not supported
  device_mismatch,      // tensors on different devices, or a device that does not exist
  out_of_memory,        // an allocation failed or a limit would be passed
  not_found,            // a name, file or registration that does not exist
  failed_precondition,  // the object is not in a state in which this may be called
  unsupported,          // a legal request that this build or device cannot serve
  io,                   // reading or writing a file or socket failed
  internal,             // a broken promise of Lockstep's own: always a bug
};

std::string_view name(ErrorCode code);

// "main.cc:12"
std::string file_and_line(std::source_location where);

// A std::runtime_error, so that a program may treat it as one; which of its kinds is thrown:
// lockstep/base/errors.h.
class Error : public std::runtime_error {
 public:
  // A `where` in the library's own code stands for the line of the call that led there
  // (lockstep/base/call_site.h).
  Error(ErrorCode code, std::string message, std::source_location where);

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::vector<std::string>& notes() const { return notes_; }
  std::source_location where() const { return where_; }

  // Adds context while the error unwinds: catch (Error& e) { e.note("in layer dense_1"); throw; }
  Error& note(std::string text);

  // Names this line where the one it names is the library's own:
  // catch (Error& e) { e.locate(stage.where); throw; }
  Error& locate(std::source_location where);

  // "shape_mismatch: matmul: ... [main.cc:12]\n  in layer dense_1"
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  void render();

  ErrorCode code_;
  std::string message_;
  std::source_location where_;
  std::vector<std::string> notes_;
  std::string text_;
};

namespace detail {
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}
// As the type of lockstep/base/errors.h that the code says.
[[noreturn]] void throw_error(ErrorCode code, std::string message, std::source_location where,
                              std::vector<std::string> notes = {});
}  // namespace detail

// fail(code, where, "matmul: inner dimensions differ in ", a, " x ", b);
template <class... Parts>
[[noreturn]] void fail(ErrorCode code, std::source_location where, const Parts&... parts) {
  detail::throw_error(code, detail::concat(parts...), where);
}

// The message is only built where the condition does not hold.
template <class... Parts>
void require(bool condition, ErrorCode code, std::source_location where, const Parts&... parts) {
  if (!condition) [[unlikely]]
    fail(code, where, parts...);
}

}  // namespace lockstep
