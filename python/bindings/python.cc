#include "python.h"

#include <bit>
#include <map>
#include <mutex>
#include <regex>
#include <set>
#include <tuple>
#include <typeinfo>

#include "lockstep/base/errors.h"
#include "lockstep/base/log.h"
#include "lockstep/base/terminal.h"
#include "lockstep/ops/math.h"

namespace lockstep::python {
namespace {

// What libstdc++'s std::source_location points to. The compiler alone makes one, so a line of Python that shall be one is
// laid out as the compiler would.
struct Line {
  const char* file;
  const char* function;
  unsigned line;
  unsigned column;
};
static_assert(sizeof(std::source_location) == sizeof(const Line*));

std::source_location located(const Line* line) { return std::bit_cast<std::source_location>(line); }

constexpr Line kAsked{"<Python>", "", 0, 0};

// Kept for ever: whoever was told a line may name it at any time. There are as many as a program has lines that call.
std::source_location located(std::string file, unsigned line) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, unsigned>, Line> lines;
  const std::lock_guard lock(mutex);
  const auto [entry, added] = lines.try_emplace({std::move(file), line});
  if (added) entry->second = {entry->first.first.c_str(), "", line, 0};
  return located(&entry->second);
}

}  // namespace

std::source_location when_asked() { return located(&kAsked); }

std::source_location here() {
  nb::object frame = nb::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame.is_valid() && !frame.is_none()) {
    const std::string file = nb::cast<std::string>(frame.attr("f_code").attr("co_filename"));
    if (!file.starts_with(package().folder) && !file.starts_with("<frozen")) {
      const nb::object line = frame.attr("f_lineno");
      return located(file, line.is_none() ? 0 : nb::cast<unsigned>(line));
    }
    frame = frame.attr("f_back");
  }
  return when_asked();
}

Kept::Kept(nb::handle object)
    : object_(object.inc_ref().ptr(), [](PyObject* dropped) {
        // When the interpreter has ended there is nobody left to tell.
        if (!Py_IsInitialized()) return;
        const nb::gil_scoped_acquire acquire;
        Py_XDECREF(dropped);
      }) {}

PythonError::PythonError(const nb::python_error& thrown)
    : Error(ErrorCode::invalid_argument, thrown.what(), when_asked()),
      thrown_(std::make_shared<nb::python_error>(thrown)) {}

void PythonError::restore() const { nb::python_error(*thrown_).restore(); }

void check_signals() {
  const nb::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

Package& package() {
  static Package& given = *new Package;
  return given;
}

// --- values --------------------------------------------------------------------------------------------------------------

DType dtype(nb::handle value) {
  return static_cast<DType>(nb::cast<int>(nb::borrow<nb::callable>(package().as_dtype.get())(value)));
}

nb::object to_python(DType dtype) { return package().dtypes.get()[static_cast<size_t>(dtype)]; }

nb::object to_python(const Tensor& tensor) { return tensor.defined() ? nb::cast(tensor) : nb::none(); }

nb::list to_python(std::span<const Tensor> tensors) {
  nb::list list;
  for (const Tensor& tensor : tensors) list.append(to_python(tensor));
  return list;
}

nb::tuple to_python(const Dims& dims) {
  nb::list list;
  for (const int64_t size : dims) list.append(size < 0 ? nb::none() : nb::object(nb::int_(size)));
  return nb::tuple(list);
}

nb::object to_python(const Json& json) {
  if (json.is_null()) return nb::none();
  if (json.is_bool()) return nb::bool_(json.as_bool());
  if (json.is_int()) return nb::int_(json.as_int());
  if (json.is_number()) return nb::float_(json.as_double());
  if (json.is_string()) return nb::str(json.as_string().c_str());
  if (json.is_list()) {
    nb::list list;
    for (const Json& item : json.items()) list.append(to_python(item));
    return list;
  }
  nb::dict dict;
  for (const auto& [name, value] : json.members()) dict[name.c_str()] = to_python(value);
  return dict;
}

bool is_tensor(nb::handle value) {
  // No class is derived from it, so that a look at the type says it all.
  static const PyObject* const type = nb::type<Tensor>().ptr();
  return reinterpret_cast<const PyObject*>(Py_TYPE(value.ptr())) == type;
}

Tensor tensor(nb::handle value, std::optional<DType> dtype) {
  if (is_tensor(value)) return *nb::inst_ptr<Tensor>(value);
  if (value.is_none()) return {};
  if (nb::isinstance<Variable>(value)) return nb::inst_ptr<Variable>(value)->value(when_asked());
  return nb::cast<Tensor>(
      nb::borrow<nb::callable>(package().as_tensor.get())(value, dtype ? to_python(*dtype) : nb::none()));
}

TensorList tensors(nb::handle sequence) {
  TensorList list;
  for (const nb::handle item : nb::borrow<nb::sequence>(sequence)) list.push_back(tensor(item));
  return list;
}

std::vector<int64_t> integers(nb::handle sequence) {
  std::vector<int64_t> values;
  if (sequence.is_none()) return values;
  for (const nb::handle item : nb::borrow<nb::sequence>(sequence))
    values.push_back(item.is_none() ? -1 : nb::cast<int64_t>(item));
  return values;
}

Dims dims(nb::handle sequence) {
  const std::vector<int64_t> values = integers(sequence);
  return Dims(std::span<const int64_t>(values), when_asked());
}

Json json(nb::handle value) {
  if (value.is_none()) return {};
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value);
  if (nb::isinstance<nb::int_>(value)) return nb::cast<int64_t>(value);
  if (nb::isinstance<nb::float_>(value)) return nb::cast<double>(value);
  if (nb::isinstance<nb::str>(value)) return nb::cast<std::string>(value);
  if (nb::isinstance<nb::dict>(value)) {
    Json object = Json::object();
    for (const auto& [name, item] : nb::borrow<nb::dict>(value))
      object.set(nb::cast<std::string>(nb::str(name)), json(item));
    return object;
  }
  Json list = Json::list();
  for (const nb::handle item : nb::borrow<nb::sequence>(value)) list.push_back(json(item));
  return list;
}

OperandArg operand(nb::handle value, std::optional<DType> dtype) {
  if (PyFloat_Check(value.ptr())) return {PyFloat_AsDouble(value.ptr()), when_asked()};
  if (PyLong_Check(value.ptr()) && !PyBool_Check(value.ptr()))
    return {nb::cast<int64_t>(value), when_asked()};
  return {tensor(value, dtype), when_asked()};
}

std::pair<OperandArg, OperandArg> operands(nb::handle a, nb::handle b) {
  OperandArg left = operand(a);
  if (left.is_number()) {
    OperandArg right = operand(b);
    if (right.is_number()) left = {tensor(a), when_asked()};
    return {std::move(left), std::move(right)};
  }
  const std::optional<DType> other =
      left.tensor().defined() ? std::optional(left.tensor().dtype()) : std::nullopt;
  return {std::move(left), operand(b, other)};
}

Tensor true_divide(const OperandArg& a, const OperandArg& b) {
  const Tensor& known = a.is_number() ? b.tensor() : a.tensor();
  const bool alike = a.is_number() || b.is_number() || !known.defined() || !b.tensor().defined() ||
                     b.tensor().dtype() == known.dtype();
  if (!alike || !known.defined() || is_floating(known.dtype()) || known.dtype() == DType::boolean)
    return divide(a, b);
  const DType wide = known.dtype() == DType::uint8 ? DType::float32 : DType::float64;
  const auto as_floats = [&](const OperandArg& x) {
    return x.is_number() ? x : OperandArg{cast(x, wide), x.where()};
  };
  return divide(as_floats(a), as_floats(b));
}

SavedForm saved_form(const Kept& object) {
  return in_python([&] {
    const nb::object form = nb::borrow<nb::callable>(package().saved.get())(object.get());
    return SavedForm{nb::cast<std::string>(form[0]), json(form[1])};
  });
}

std::function<TensorList(std::span<const Tensor>)> tensor_function(nb::handle function) {
  return [kept = Kept(function)](std::span<const Tensor> inputs) {
    const nb::gil_scoped_acquire acquire;
    const nb::object result = nb::borrow<nb::callable>(kept.get())(to_python(inputs));
    return tensors(result);
  };
}

// --- the end of the program ---------------------------------------------------------------------------------------------

namespace {
std::set<Stoppable*>& running() {
  static std::set<Stoppable*> running;
  return running;
}
}  // namespace

Stoppable::Stoppable() { running().insert(this); }
Stoppable::~Stoppable() { running().erase(this); }

void stop_all() {
  while (!running().empty()) (*running().extract(running().begin()).value()).stop();
}

// --- errors --------------------------------------------------------------------------------------------------------------

namespace {

// An Error as Python's exception: its class follows from the code, its line is that of the program.
void raise(const Error& error) {
  if (const auto* python = dynamic_cast<const PythonError*>(&error)) return python->restore();
  std::source_location where = error.where();
  if (where.file_name() == kAsked.file || where.file_name() == std::string_view(kAsked.file)) where = here();
  std::string text = detail::concat(name(error.code()), ": ", error.message());
  if (where.line() > 0) text += " [" + file_and_line(where) + "]";
  for (const std::string& note : error.notes()) text += "\n  " + note;
  const char* kind = dynamic_cast<const errors::UnavailableError*>(&error) ? "unavailable" : nullptr;
  const nb::object exception = nb::borrow<nb::callable>(package().error.get())(
      kind ? std::string(kind) : std::string(name(error.code())), text);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
}

}  // namespace

void set_python_error() noexcept {
  try {
    throw;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const Error& error) {
    raise(error);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

namespace {

// The engine's advice as a Python program writes it: with strategy.scope(), callbacks.TerminateOnNaN(), name=value.
std::string as_python_writes(std::string text) {
  static const std::regex scope(R"(auto scope = strategy\.scope\(\);)");
  static const std::regex names(
      R"(\b(tf|activations|callbacks|config|data|debugging|distribute|keras|layers|losses|metrics|optimizers|random|utils)::(?=\w))");
  static const std::regex options(R"(\{((?:\.\w+ = [^{},]+(?:, )?)+)\})");
  static const std::regex option(R"(\.(\w+) = )");
  static const std::regex truth(R"(([(=])(true|false)\b)");
  text = std::regex_replace(text, scope, "with strategy.scope():");
  text = std::regex_replace(text, names, "$1.");
  std::string made;
  std::smatch found;
  for (; std::regex_search(text, found, options); text = found.suffix())
    made += found.prefix().str() + std::regex_replace(found[1].str(), option, "$1=");
  made += text;
  for (std::smatch word; std::regex_search(made, word, truth);)
    made.replace(static_cast<size_t>(word.position(2)), 1, word[2] == "true" ? "T" : "F");
  return made;
}

// Without the GIL: a thread that waits for it while it logs would keep others that have it from logging.
void log_in_python(const LogMessage& message) {
  const std::string text = as_python_writes(std::string(message.text));
  LogMessage told = message;
  told.text = text;
  terminal::write(render(told, false) + "\n", stderr);
}

// What fit() says goes where print() goes: into a notebook, or a file that somebody has put there, and in its order.
bool show(std::string_view text) {
  if (!Py_IsInitialized()) return false;
  const nb::gil_scoped_acquire acquire;
  const nb::handle out = PySys_GetObject("stdout");
  if (!out.is_valid() || out.is_none()) return false;
  try {
    out.attr("write")(nb::str(text.data(), text.size()));
    out.attr("flush")();
    return true;
  } catch (nb::python_error& error) {  // closed, or of another encoding
    error.restore();
    PyErr_Clear();
    return false;
  }
}

}  // namespace

void bind_errors(nb::module_& m) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      raise(error);
    } catch (const std::bad_cast&) {  // of nb::cast()
      PyErr_SetString(PyExc_TypeError,
                      "an argument, or something in it, is not of the kind that is taken here");
    }
  });
  m.def("as_python_writes", as_python_writes);
  m.def("introduce", [](nb::handle as_tensor, nb::handle dtypes, nb::handle as_dtype, nb::handle error,
                        std::string folder) {
    package() = {Kept(as_tensor), Kept(dtypes), Kept(as_dtype), Kept(error), Kept(), std::move(folder)};
    terminal::set_output(show);
    set_log_sink(log_in_python);
  });
  m.def("introduce_files", [](nb::handle saved) { package().saved = Kept(saved); });
}

}  // namespace lockstep::python
