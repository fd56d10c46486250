// Looking at what a program computes while it runs.
#pragma once

#include <concepts>
#include <initializer_list>
#include <iosfwd>
#include <source_location>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/graph/tensor_arg.h"

namespace lockstep {

// A piece of what print() prints: text, a number, a tensor or a variable.
class PrintPart {
 public:
  // NOLINTBEGIN(google-explicit-constructor): conversion at the call is the purpose
  PrintPart(const char* text) : text_(text) {}
  PrintPart(std::string_view text) : text_(text) {}
  PrintPart(std::string text) : text_(std::move(text)) {}
  PrintPart(const Tensor& tensor) : tensor_(tensor) {}
  PrintPart(const Variable& variable) : tensor_(variable.value()) {}
  template <class T>
  requires std::integral<T> || std::floating_point<T> PrintPart(T number) {
    std::ostringstream out;
    out << std::boolalpha << number;
    text_ = out.str();
  }
  // NOLINTEND(google-explicit-constructor)

  const std::string& text() const { return text_; }
  const Tensor& tensor() const { return tensor_; }

 private:
  std::string text_;
  Tensor tensor_;  // undefined: text
};

struct PrintOptions {
  std::ostream* output = nullptr;  // not owned; null: standard error
  int64_t summarize = 3;           // elements shown of each end of a dimension; -1: all
};

// Prints the parts with spaces between them and a line end behind. In a traced function it prints at every
// run, the values of that run, in program order with all other prints; as replicas, each replica prints
// its own values behind its number.
void print(std::initializer_list<PrintPart> parts, const PrintOptions& options = {},
           std::source_location where = std::source_location::current());
template <class... Parts>
requires(std::convertible_to<const Parts&, PrintPart>&&...) void print(const Parts&... parts) {
  print({PrintPart(parts)...}, PrintOptions{});
}

namespace debugging {

// From now on every op's floating-point results are looked at, outside of traced functions and in them
// (which are compiled anew, without joining ops): the first NaN or infinity is an Error that names the op,
// the line that called it, and the ranges of what went in. Slow. For the whole process.
void enable_check_numerics();
// Switched off it costs nothing.
void disable_check_numerics();

// x, if all its elements are finite; else an Error with this message. In a traced function it is looked at
// where the result is used.
Tensor check_numerics(const TensorArg& x, std::string_view message);

// An Error with this message unless all elements of `condition` (boolean) are true. In a traced function it
// is looked at in every run.
void assert_true(const TensorArg& condition, std::string_view message);
// The same for x == y; shapes broadcast.
void assert_equal(const OperandArg& x, const OperandArg& y, std::string_view message);

}  // namespace debugging

}  // namespace lockstep
