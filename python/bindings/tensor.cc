// Tensors, variables, devices.
#include <nanobind/ndarray.h>

#include <array>

#include "lockstep/device/config.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/tensor/from_blob.h"
#include "lockstep/tf/test.h"
#include "python.h"

namespace lockstep::python {
namespace {

// --- elements ------------------------------------------------------------------------------------------------------------

// The elements of a tensor in host memory, and what keeps them there and as they are: of arrays that are lent a copy.
struct HostElements {
  const void* data = nullptr;
  std::shared_ptr<const void> owner;
};

HostElements host_elements(const Tensor& tensor) {
  const std::source_location where = when_asked();
  return dispatch(tensor.dtype(where), [&]<class T>() -> HostElements {
    auto elements = std::make_shared<Elements<T>>(tensor.numpy<T>(where));
    return {elements->data(), elements};
  });
}

const char* buffer_format(DType dtype) {
  switch (dtype) {
    case DType::float32: return "f";
    case DType::float64: return "d";
    case DType::float16: return "e";
    case DType::int32: return "i";
    case DType::int64: return "l";
    case DType::uint8: return "B";
    case DType::boolean: return "?";
    case DType::bfloat16: break;
  }
  return nullptr;
}

// The buffer protocol: elements are read where they are.
struct Buffer {
  HostElements elements;
  std::array<Py_ssize_t, kMaxRank> shape{};
  std::array<Py_ssize_t, kMaxRank> strides{};
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  if (flags & PyBUF_WRITABLE) {
    PyErr_SetString(PyExc_BufferError, "a tensor's elements cannot be written; make a copy with numpy()");
    return -1;
  }
  try {
    const Tensor& tensor = *nb::inst_ptr<Tensor>(self);
    const char* format = buffer_format(tensor.dtype());
    if (!format) {
      PyErr_SetString(PyExc_BufferError, "bfloat16 has no format in the buffer protocol; cast to float32");
      return -1;
    }
    auto buffer = std::make_unique<Buffer>();
    buffer->elements = host_elements(tensor);
    const auto bytes = static_cast<Py_ssize_t>(size_of(tensor.dtype()));
    Py_ssize_t stride = bytes;
    for (int i = tensor.rank() - 1; i >= 0; --i) {
      const auto axis = static_cast<size_t>(i);
      buffer->shape[axis] = static_cast<Py_ssize_t>(tensor.shape()[i]);
      buffer->strides[axis] = stride;
      stride *= buffer->shape[axis];
    }
    view->buf = const_cast<void*>(buffer->elements.data);
    view->len = static_cast<Py_ssize_t>(tensor.size()) * bytes;
    view->itemsize = bytes;
    view->readonly = 1;
    view->ndim = tensor.rank();
    view->format = flags & PyBUF_FORMAT ? const_cast<char*>(format) : nullptr;
    view->shape = flags & PyBUF_ND ? buffer->shape.data() : nullptr;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? buffer->strides.data() : nullptr;
    view->suboffsets = nullptr;
    view->internal = buffer.release();
    view->obj = nb::handle(self).inc_ref().ptr();
    return 0;
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
    return -1;
  }
}

void release_buffer(PyObject*, Py_buffer* view) { delete static_cast<Buffer*>(view->internal); }

nb::dlpack::dtype dlpack_dtype(DType dtype) {
  using nb::dlpack::dtype_code;
  const auto bits = static_cast<uint8_t>(8 * size_of(dtype));
  const dtype_code code = dtype == DType::bfloat16  ? dtype_code::Bfloat
                          : dtype == DType::boolean ? dtype_code::Bool
                          : dtype == DType::uint8   ? dtype_code::UInt
                          : is_floating(dtype)      ? dtype_code::Float
                                                    : dtype_code::Int;
  return {static_cast<uint8_t>(code), bits, 1};
}

// For __dlpack__: the elements where they are.
nb::ndarray<nb::ro> as_ndarray(const Tensor& tensor) {
  auto* elements = new HostElements(host_elements(tensor));
  const nb::capsule owner(elements, [](void* p) noexcept { delete static_cast<HostElements*>(p); });
  std::array<size_t, kMaxRank> sizes{};
  for (int i = 0; i < tensor.rank(); ++i)
    sizes[static_cast<size_t>(i)] = static_cast<size_t>(tensor.shape()[i]);
  return {elements->data, static_cast<size_t>(tensor.rank()), sizes.data(), owner,
          nullptr,        dlpack_dtype(tensor.dtype())};
}

// What gives arrays: NumPy, the buffer protocol, DLPack. Of other layouts nanobind makes a copy.
using HostArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

TensorSpec spec_of(const HostArray& array) {
  Shape shape;
  for (size_t i = 0; i < array.ndim(); ++i)
    shape.push_back(static_cast<int64_t>(array.shape(i)), when_asked());
  for (int i = 0; i < kNumDTypes; ++i)
    if (array.dtype() == dlpack_dtype(static_cast<DType>(i))) return {static_cast<DType>(i), shape};
  fail(ErrorCode::dtype_mismatch, when_asked(), "no tensor holds elements of an array with DLPack's dtype ",
       int(array.dtype().code), " of ", int(array.dtype().bits),
       " bits; there are float16, bfloat16, float32, float64, int32, int64, uint8 and bool");
}

// A copy of the elements.
Tensor from_array(const HostArray& array) {
  const TensorSpec spec = spec_of(array);
  return dispatch(spec.dtype, [&]<class T>() {
    return Tensor::from(std::span(static_cast<const T*>(array.data()), array.size()), spec.shape,
                        when_asked());
  });
}

// The last tensor may be let go of by any thread, and when the interpreter has ended.
std::shared_ptr<const HostArray> held(const HostArray& array) {
  return {new HostArray(array), [](const HostArray* held) {
            if (!Py_IsInitialized()) return;
            const nb::gil_scoped_acquire acquire;
            delete held;
          }};
}

bool aligned(const HostArray& array, const TensorSpec& spec) {
  return reinterpret_cast<uintptr_t>(array.data()) % size_of(spec.dtype) == 0;
}

// The elements where they are, as long as the tensor lives.
Tensor shared_array(const HostArray& array) {
  const TensorSpec spec = spec_of(array);
  if (!aligned(array, spec)) throw nb::type_error("the elements lie between those of a tensor");
  return from_blob(array.data(), spec, held(array), when_asked());
}

// The elements where they are until they are given back, unless they lie between those of a tensor.
Tensor lent_array(const HostArray& array) {
  const TensorSpec spec = spec_of(array);
  if (!aligned(array, spec)) return from_array(array);
  return lend(array.data(), spec, held(array), when_asked());
}

// --- operators -----------------------------------------------------------------------------------------------------------

// What is no tensor and no number may know what to do with one.
bool defers(nb::handle value) {
  return !is_tensor(value) && !PyFloat_Check(value.ptr()) && !PyLong_Check(value.ptr()) &&
         nb::hasattr(value, "_defers_tensor_operators");
}

template <Tensor (*op)(const OperandArg&, const OperandArg&)>
nb::object binary(nb::handle a, nb::handle b) {
  if (defers(a) || defers(b)) return nb::borrow(Py_NotImplemented);
  const auto [left, right] = operands(a, b);
  return nb::cast(op(left, right));
}

// The same as a slot of the type, which Python calls at once: the dispatch of methods takes longer than a small sum. Either side
// may be the tensor.
template <Tensor (*op)(const OperandArg&, const OperandArg&)>
PyObject* slot(PyObject* a, PyObject* b) {
  try {
    return binary<op>(a, b).release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}
PyObject* power_slot(PyObject* a, PyObject* b, PyObject*) { return slot<pow>(a, b); }

template <class Function>
PyType_Slot slot_of(int number, Function* function) {
  return {number, reinterpret_cast<void*>(function)};
}
// The arithmetic of tensors and variables, in front of other slots.
template <size_t count>
std::array<PyType_Slot, count + 8> with_arithmetic(const std::array<PyType_Slot, count>& others) {
  std::array<PyType_Slot, count + 8> all{slot_of(Py_nb_add, slot<add>),
                                         slot_of(Py_nb_subtract, slot<subtract>),
                                         slot_of(Py_nb_multiply, slot<multiply>),
                                         slot_of(Py_nb_true_divide, slot<true_divide>),
                                         slot_of(Py_nb_floor_divide, slot<floordiv>),
                                         slot_of(Py_nb_remainder, slot<floormod>),
                                         slot_of(Py_nb_power, power_slot)};
  std::copy(others.begin(), others.end(), all.begin() + 7);
  return all;
}

template <class Class>
void add_operators(Class& c) {
  c.def("__lt__", binary<less>)
      .def("__le__", binary<less_equal>)
      .def("__gt__", binary<greater>)
      .def("__ge__", binary<greater_equal>)
      .def("__matmul__", [](nb::handle a, nb::handle b) { return matmul(arg(a), arg(b)); })
      .def("__rmatmul__", [](nb::handle a, nb::handle b) { return matmul(arg(b), arg(a)); })
      .def("__neg__", [](nb::handle a) { return negative(arg(a)); })
      .def("__abs__", [](nb::handle a) { return abs(arg(a)); });
}

// --- scopes --------------------------------------------------------------------------------------------------------------

// `with tf.device(name):`
class DeviceContext {
 public:
  explicit DeviceContext(std::string name) : name_(std::move(name)) {}
  DeviceContext(const DeviceContext&) = delete;
  void enter() {
    // A scope is made in its place: it cannot be moved. NOLINTNEXTLINE(modernize-make-unique)
    scopes_.push_back(std::unique_ptr<DeviceScope>(new DeviceScope(device(name_, here()))));
  }
  void exit() { scopes_.pop_back(); }

 private:
  std::string name_;
  std::vector<std::unique_ptr<DeviceScope>> scopes_;
};

config::PhysicalDevice physical(nb::handle device) {
  return {nb::cast<std::string>(device.attr("name")), nb::cast<std::string>(device.attr("device_type"))};
}

std::vector<config::PhysicalDevice> physical_devices(nb::handle devices) {
  std::vector<config::PhysicalDevice> list;
  for (const nb::handle device : nb::borrow<nb::sequence>(devices)) list.push_back(physical(device));
  return list;
}

template <class Device>
std::vector<std::pair<std::string, std::string>> names(const std::vector<Device>& devices) {
  std::vector<std::pair<std::string, std::string>> list;
  for (const Device& device : devices) list.emplace_back(device.name, device.device_type);
  return list;
}

void bind_devices(nb::module_& m) {
  nb::class_<DeviceContext>(m, "DeviceContext")
      .def(nb::init<std::string>())
      .def("enter", &DeviceContext::enter)
      .def("exit", &DeviceContext::exit);
  m.def("set_logical_cpus",
        [](int count, int threads) { set_logical_cpus({.count = count, .threads = threads}, here()); });
  m.def("device_counters", [](const std::string& name) {
    const DeviceCounters counters = device_by_name(name, here()).counters();
    nb::dict dict;
    dict["kernels"] = counters.kernels;
    dict["flops"] = counters.flops;
    dict["bytes_copied_in"] = counters.bytes_copied_in;
    dict["bytes_copied_out"] = counters.bytes_copied_out;
    return dict;
  });
  m.def("device_threads", [](const std::string& name) { return device_by_name(name, here()).threads(); });

  nb::module_ c = m.def_submodule("config");
  c.def("list_physical_devices",
        [](const std::string& type) { return names(config::list_physical_devices(type, here())); });
  c.def("list_logical_devices",
        [](const std::string& type) { return names(config::list_logical_devices(type, here())); });
  c.def("get_visible_devices",
        [](const std::string& type) { return names(config::get_visible_devices(type, here())); });
  c.def("set_visible_devices", [](nb::handle devices, const std::string& type) {
    config::set_visible_devices(physical_devices(devices), type, here());
  });
  c.def("set_logical_device_configuration",
        [](nb::handle device, const std::vector<std::pair<int64_t, int>>& parts) {
          std::vector<config::LogicalDeviceConfiguration> all;
          for (const auto& [memory, threads] : parts) all.push_back({memory, threads});
          config::set_logical_device_configuration(physical(device), all, here());
        });
  c.def("get_logical_device_configuration", [](nb::handle device) {
    std::vector<std::pair<int64_t, int>> parts;
    for (const auto& part : config::get_logical_device_configuration(physical(device), here()))
      parts.emplace_back(part.memory_limit_mb, part.threads);
    return parts;
  });
  c.def("get_device_details", [](nb::handle device) {
    const config::DeviceDetails details = config::get_device_details(physical(device), here());
    nb::dict dict;
    if (!details.device_name.empty()) {
      dict["device_name"] = details.device_name;
      dict["compute_capability"] = details.compute_capability;
    }
    return dict;
  });
  c.def("set_memory_growth",
        [](nb::handle device, bool enable) { config::set_memory_growth(physical(device), enable, here()); });
  c.def("get_memory_growth",
        [](nb::handle device) { return config::get_memory_growth(physical(device), here()); });
  c.def("get_memory_info", [](const std::string& device) {
    const MemoryInfo info = config::get_memory_info(device, here());
    nb::dict dict;
    dict["current"] = info.current;
    dict["peak"] = info.peak;
    return dict;
  });
  c.def("reset_memory_stats", [](const std::string& device) { config::reset_memory_stats(device, here()); });
  c.def("set_intra_op_parallelism_threads",
        [](int threads) { config::threading::set_intra_op_parallelism_threads(threads, here()); });
  c.def("get_intra_op_parallelism_threads", config::threading::get_intra_op_parallelism_threads);
  c.def("set_inter_op_parallelism_threads",
        [](int threads) { config::threading::set_inter_op_parallelism_threads(threads, here()); });
  c.def("get_inter_op_parallelism_threads", config::threading::get_inter_op_parallelism_threads);
  c.def("enable_tensor_float_32_execution", config::enable_tensor_float_32_execution);
  c.def("tensor_float_32_execution_enabled", config::tensor_float_32_execution_enabled);
  c.def("enable_op_determinism", config::enable_op_determinism);
  c.def("op_determinism_enabled", config::op_determinism_enabled);
  c.def("set_soft_device_placement", config::set_soft_device_placement);
  c.def("get_soft_device_placement", config::get_soft_device_placement);
  c.def("set_log_device_placement", config::set_log_device_placement);
  c.def("get_log_device_placement", config::get_log_device_placement);
  c.def("run_functions_eagerly", config::run_functions_eagerly);
  c.def("functions_run_eagerly", config::functions_run_eagerly);
  c.def("is_built_with_cuda", test::is_built_with_cuda);
}

// What variable.value is: Keras asks for it as an attribute, TensorFlow by a call.
struct ValueOfVariable : Tensor {
  explicit ValueOfVariable(Tensor value) : Tensor(std::move(value)) {}
};

}  // namespace

void bind_tensor(nb::module_& m) {
  // Slots end with one that is zero.
  auto tensor_slots = with_arithmetic(
      std::array{slot_of(Py_bf_getbuffer, get_buffer), slot_of(Py_bf_releasebuffer, release_buffer)});
  auto variable_slots = with_arithmetic(std::array<PyType_Slot, 0>{});
  auto t = nb::class_<Tensor>(m, "Tensor", nb::type_slots(tensor_slots.data()), nb::is_weak_referenceable());
  add_operators(t);
  t.def("_eq", binary<equal>)
      .def("_ne", binary<not_equal>)
      .def_prop_ro("dtype", [](const Tensor& x) { return to_python(x.dtype(when_asked())); })
      .def_prop_ro("_shape", [](const Tensor& x) { return to_python(x.shape(when_asked())); })
      .def_prop_ro("ndim", [](const Tensor& x) { return x.rank(when_asked()); })
      .def_prop_ro("_size", [](const Tensor& x) { return x.size(when_asked()); })
      .def_prop_ro("_device", [](const Tensor& x) { return x.device(when_asked()).name(); })
      .def_prop_ro("symbolic", &Tensor::symbolic,
                   "Whether it stands for a value of a function that is being traced.")
      .def("_to", [](const Tensor& x,
                     const std::string& device) { return x.to(device_by_name(device, here()), here()); })
      // On this device, or the current one, where it is in host memory now, and no longer lent: for what is computed of it op by
      // op.
      .def("_at_hand",
           [](const Tensor& x, const std::string& device) {
             if (x.device(here()).kind() != DeviceKind::cpu) return x;
             return owned(x, device.empty() ? current_device(here()) : device_by_name(device, here()),
                          here());
           })
      // Another object for the same tensor.
      .def("_again", [](const Tensor& x) { return x; })
      .def("_ndarray", &as_ndarray)
      // Elements of bfloat16 as they are in memory, for whoever has a type for them.
      .def("_bits",
           [](const Tensor& x) {
             return nb::bytes(static_cast<const char*>(host_elements(x).data),
                              static_cast<size_t>(x.size()) * size_of(x.dtype()));
           })
      .def("_item",
           [](const Tensor& x) -> nb::object {
             return dispatch(x.dtype(when_asked()), [&]<class T>() -> nb::object {
               const T value = x.item<T>(when_asked());
               if constexpr (std::is_same_v<T, bool>)
                 return nb::bool_(value);
               else if constexpr (std::is_integral_v<T>)
                 return nb::int_(static_cast<int64_t>(value));
               else if constexpr (std::is_floating_point_v<T>)
                 return nb::float_(static_cast<double>(value));
               else
                 return nb::float_(static_cast<double>(static_cast<float>(value)));
             });
           })
      .def("_to_string", &Tensor::to_string);
  nb::class_<ValueOfVariable, Tensor>(m, "ValueOfVariable",
                                      "A tensor, which is given back where it is called.")
      .def("__call__", [](const ValueOfVariable& x) { return Tensor(x); });
  m.def("from_array", &from_array);
  m.def("shared_array", &shared_array, nb::arg().noconvert());
  m.def("lent_array", &lent_array);
  m.def("give_back", [](nb::handle tensor) { give_back(std::move(*nb::inst_ptr<Tensor>(tensor))); });
  m.def("scalar", [](nb::handle value, nb::handle type) {
    return dispatch(dtype(type), [&]<class T>() {
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
        return Tensor::scalar(nb::cast<T>(value), when_asked());
      else if constexpr (std::is_same_v<T, bool>)
        return Tensor::scalar(PyObject_IsTrue(value.ptr()) == 1, when_asked());
      else
        return Tensor::scalar(T(static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(
                                  nb::cast<double>(value))),
                              when_asked());
    });
  });

  auto v = nb::class_<Variable>(m, "Variable", nb::type_slots(variable_slots.data()),
                                nb::is_weak_referenceable(), nb::dynamic_attr());
  add_operators(v);
  v.def(
       "__init__",
       [](Variable* self, nb::handle initial_value, nb::handle trainable, nb::handle, nb::handle,
          nb::handle name, nb::handle, nb::handle type, nb::handle, nb::handle constraint, nb::handle,
          nb::handle, nb::handle) {
         VariableOptions options{.trainable = trainable.is_none() || nb::cast<bool>(trainable)};
         if (!name.is_none()) options.name = nb::cast<std::string>(name);
         if (!constraint.is_none())
           options.constraint = [kept = Kept(constraint)](const Tensor& value) {
             const nb::gil_scoped_acquire acquire;
             return tensor(nb::borrow<nb::callable>(kept.get())(value));
           };
         const bool is_value =
             nb::isinstance<Tensor>(initial_value) || nb::isinstance<Variable>(initial_value);
         nb::object value = !is_value && PyCallable_Check(initial_value.ptr())
                                ? nb::borrow<nb::callable>(initial_value)()
                                : nb::borrow(initial_value);
         require(!value.is_none(), ErrorCode::invalid_argument, here(), "Variable: takes an initial value");
         Tensor initial = type.is_none() ? tensor(value) : tensor(value, dtype(type));
         if (!type.is_none() && initial.dtype() != dtype(type))
           initial = cast({initial, here()}, dtype(type));
         value.reset();  // a tensor that nobody else holds becomes the variable's memory
         new (self) Variable(TensorLike(std::move(initial), here()), std::move(options), here());
       },
       "initial_value"_a = nb::none(), "trainable"_a = nb::none(), "validate_shape"_a = nb::none(),
       "caching_device"_a = nb::none(), "name"_a = nb::none(), "variable_def"_a = nb::none(),
       "dtype"_a = nb::none(), "import_scope"_a = nb::none(), "constraint"_a = nb::none(),
       "synchronization"_a = nb::none(), "aggregation"_a = nb::none(), "shape"_a = nb::none(),
       "A tensor whose elements are updated in place.")
      .def("_eq", binary<equal>)
      .def("_ne", binary<not_equal>)
      .def_prop_ro("dtype", [](const Variable& x) { return to_python(x.dtype()); })
      .def_prop_ro("_shape", [](const Variable& x) { return to_python(x.shape()); })
      .def_prop_ro("_name", [](const Variable& x) { return x.name(); })
      .def_prop_ro("trainable", [](const Variable& x) { return x.trainable(); })
      .def_prop_ro("_id", [](const Variable& x) { return x.id(); })
      .def_prop_ro(
          "value", [](const Variable& x) { return ValueOfVariable(x.value(when_asked())); },
          "The value that the variable has now: an attribute in Keras, a call in TensorFlow.")
      .def(
          "read_value", [](const Variable& x) { return x.value(when_asked()); },
          "The value that the variable has now.")
      .def("_assign", [](const Variable& x, nb::handle value) { x.assign(tensor(value, x.dtype()), here()); })
      .def("_assign_add",
           [](const Variable& x, nb::handle value) { x.assign_add(tensor(value, x.dtype()), here()); })
      .def("_assign_sub",
           [](const Variable& x, nb::handle value) { x.assign_sub(tensor(value, x.dtype()), here()); });

  bind_devices(m);
}

}  // namespace lockstep::python
