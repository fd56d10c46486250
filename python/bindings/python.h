// What all bindings share: lines of Python programs, the GIL, and how values cross the border.
//
// The bindings hold no logic. Names, keyword arguments and their order, structures and documentation are those of the
// package in python/lockstep, which alone calls what is bound here.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/graph/tensor_arg.h"
#include "lockstep/graph/variable.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::python {

namespace nb = nanobind;
using namespace nb::literals;

// An argument that may be anything, None included, which nanobind keeps from arguments of type nb::handle.
class Any : public nb::handle {
 public:
  Any() = default;
  template <class T>
  requires std::is_convertible_v<const T&, nb::handle> Any(
      const T& value)  // NOLINT(google-explicit-constructor)
      : nb::handle(static_cast<nb::handle>(value)) {}
};

// --- lines -------------------------------------------------------------------------------------------------------------

// The line of the Python program that is being executed, that is the innermost one outside of this package.
std::source_location here();
// The same, looked up only where an error is about it: for calls that take less time than looking does.
std::source_location when_asked();

// --- the GIL -------------------------------------------------------------------------------------------------------------

// Runs f while other threads may run Python.
template <class F>
decltype(auto) released(F&& f) {
  const nb::gil_scoped_release release;
  return f();
}

// Makes the C++ exception that is being handled Python's: for functions that Python calls without nanobind between.
void set_python_error() noexcept;

// A Python object that C++ holds. Copies may be made and dropped by any thread, with the GIL or without it.
class Kept {
 public:
  Kept() = default;
  explicit Kept(nb::handle object);
  nb::handle get() const { return object_.get(); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  std::shared_ptr<PyObject> object_;
};

// An object that is not destroyed while the GIL is held: its destructor waits for threads that may want it.
template <class T>
class Apart {
 public:
  template <class... Args>
  explicit Apart(std::in_place_t, Args&&... args)
      : value_(std::make_unique<T>(std::forward<Args>(args)...)) {}
  Apart(Apart&&) noexcept = default;
  ~Apart() { reset(); }
  void reset() {
    if (value_) released([&] { value_.reset(); });
  }
  explicit operator bool() const { return value_ != nullptr; }
  T& operator*() const { return *value_; }
  T* operator->() const { return value_.get(); }

 private:
  std::unique_ptr<T> value_;
};

// What has threads that may be in functions of Python. They end before the interpreter does: one that asks for the GIL when that
// is gone would end the process. Made, asked and destroyed with the GIL.
class Stoppable {
 public:
  Stoppable();
  Stoppable(const Stoppable&) = delete;
  virtual ~Stoppable();
  virtual void stop() = 0;
};
// All of them.
void stop_all();

// An exception of Python on its way through parts of the engine that know errors of its own only, such as the threads of a
// dataset: raised again as it was.
class PythonError final : public Error {
 public:
  explicit PythonError(const nb::python_error& thrown);
  void restore() const;

 private:
  std::shared_ptr<nb::python_error> thrown_;
};

// Runs f with the GIL; what Python raises there is thrown as a PythonError.
template <class F>
auto in_python(F&& f) {
  const nb::gil_scoped_acquire acquire;
  try {
    return f();
  } catch (const nb::python_error& error) {
    throw PythonError(error);
  }
}

// Throws KeyboardInterrupt where Ctrl-C was pressed. Any thread may call it, without the GIL.
void check_signals();

// --- values --------------------------------------------------------------------------------------------------------------

// What the package gives the bindings when it is imported.
struct Package {
  Kept as_tensor;  // (value, dtype or None) -> Tensor: numbers, lists, arrays
  Kept dtypes;     // the DType objects, in the order of the enum
  Kept as_dtype;   // (value) -> number of the dtype
  Kept error;      // (name of the code, message) -> exception
  Kept saved;      // (object of Python) -> (class name, configuration), as files hold it
  std::string folder;
};
Package& package();

DType dtype(nb::handle value);
nb::object to_python(DType dtype);

// None, where it is undefined.
nb::object to_python(const Tensor& tensor);
nb::list to_python(std::span<const Tensor> tensors);
nb::tuple to_python(const Dims& dims);
nb::object to_python(const Json& json);

bool is_tensor(nb::handle value);
// A tensor, a variable (read), or what the package makes a tensor of. None: undefined.
Tensor tensor(nb::handle value, std::optional<DType> dtype = {});
TensorList tensors(nb::handle sequence);
Dims dims(nb::handle sequence);  // integers; None is -1
inline Shape shape(nb::handle sequence) { return dims(sequence); }
std::vector<int64_t> integers(nb::handle sequence);
Json json(nb::handle value);

inline TensorArg arg(nb::handle value) { return {tensor(value), when_asked()}; }
OperandArg operand(nb::handle value, std::optional<DType> dtype = {});
// Two sides of an op: what is no tensor takes the dtype of the other side.
std::pair<OperandArg, OperandArg> operands(nb::handle a, nb::handle b);

// a / b as Python has it: of integers it is a floating point number, float64 or, of uint8, float32, as in TensorFlow.
Tensor true_divide(const OperandArg& a, const OperandArg& b);

// What is written in Python, as files hold it.
struct SavedForm {
  std::string class_name;
  Json config;
};
SavedForm saved_form(const Kept& object);

// A function of Python as one of tensors. It may be called by any thread, without the GIL.
std::function<TensorList(std::span<const Tensor>)> tensor_function(nb::handle function);

// --- modules -------------------------------------------------------------------------------------------------------------

void bind_tensor(nb::module_& m);
void bind_ops(nb::module_& m);
void bind_engine(nb::module_& m);
void bind_layers(nb::module_& m);
void bind_training(nb::module_& m);
void bind_data(nb::module_& m);
void bind_distribute(nb::module_& m);
void bind_files(nb::module_& m);
void bind_errors(nb::module_& m);

}  // namespace lockstep::python

namespace nanobind::detail {

template <>
struct has_arg_defaults<lockstep::python::Any> : std::true_type {};

template <>
struct type_caster<lockstep::python::Any> {
  NB_TYPE_CASTER(lockstep::python::Any, const_name("object"))
  bool from_python(handle given, uint32_t, void*) noexcept {
    value = given;
    return true;
  }
  static handle from_cpp(lockstep::python::Any given, rv_policy, void*) noexcept { return given.inc_ref(); }
};

}  // namespace nanobind::detail
