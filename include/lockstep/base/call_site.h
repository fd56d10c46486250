// The line of a program that an error is about.
//
// Public functions know the line that called them: their last argument, or an argument that was made there
// (Located, TensorArg). Errors name it. But much of what a call sets off happens elsewhere in the library,
// and some of it later: a model runs its layers, a step is compiled with the first batch, a thread reads a
// file. There a CallSite stands for the line that it is all about: the call, or the line that made the layer
// or the stage.
#pragma once

#include <concepts>
#include <source_location>
#include <utility>

namespace lockstep {

// While it lives, errors that this thread finds in the library's own code name `where`; where that is itself
// a line of the library, the line of the CallSite around this one. They nest: they end in the reverse order
// in which they began.
class CallSite {
 public:
  explicit CallSite(std::source_location where);
  ~CallSite();
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

  // `where` itself if it lies outside of the library, else the line of the innermost CallSite of this thread;
  // where there is none, `where` all the same.
  static std::source_location of(std::source_location where);
  // Whether a line is one of the library: of its sources, its headers, or of the standard library's headers.
  static bool in_library(std::source_location where);

 private:
  std::source_location where_;
  const CallSite* outer_;
};

// An argument with the line of its call, for operators, which take no further argument: x[0], logs["loss"].
template <class T>
struct Located {
  // NOLINTBEGIN(*-explicit-constructor,*-forwarding-reference-overload): conversion is the purpose; no T is a Located
  template <std::convertible_to<T> U>
  constexpr Located(U&& given, std::source_location line = std::source_location::current())
      : value(static_cast<T>(std::forward<U>(given))), where(line) {}
  // NOLINTEND(*-explicit-constructor,*-forwarding-reference-overload)

  T value;
  std::source_location where;
};

}  // namespace lockstep
