// Layers, initializers and their kin, and the layers and models that are written in Python.
#include "lockstep/keras/layers.h"
#include "keras.h"
#include "lockstep/keras/activations.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/catalogue.h"
#include "lockstep/keras/clear_session.h"
#include "lockstep/keras/constraints.h"
#include "lockstep/keras/initializers.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/metrics.h"
#include "lockstep/keras/regularizers.h"
#include "lockstep/keras/remat.h"
#include "lockstep/keras/schedules.h"

namespace lockstep::python {

using keras::CallContext;
using keras::KerasTensor;
using keras::KerasTensorList;
using keras::Layer;
using keras::LayerBase;
using keras::LayerBaseOptions;
using keras::Model;
using keras::ModelBase;
using keras::optimizers::LearningRateSchedule;

namespace {

nb::list to_python(const std::vector<Variable>& variables) {
  nb::list list;
  for (const Variable& variable : variables) list.append(nb::cast(variable));
  return list;
}

// --- written in Python ---------------------------------------------------------------------------------------------------

// By which Python knows the engine's part of a layer.
uintptr_t key_of(const Layer& layer) { return reinterpret_cast<uintptr_t>(layer.base().get()); }

// What is the same in layers and models that are written in Python. The engine keeps the object of Python alive, and the
// object the engine's; visit() shows this circle to Python's garbage collector.
class Written {
 public:
  explicit Written(Any self) : self_(self) {}
  virtual ~Written() = default;
  nb::handle self() const { return self_.get(); }

  virtual Variable new_weight(const std::string& name, const Shape& shape,
                              const keras::WeightOptions& options) = 0;
  virtual void hold(const Layer& layer) = 0;
  virtual void hold(const Variable& variable) = 0;
  virtual void penalize(const Tensor& loss) = 0;

 private:
  Kept self_;
};

// The form of a call: an object of Python.
class WrittenCall final : public keras::CallForm {
 public:
  explicit WrittenCall(Any form) : form_(form) {}
  // Of a call; None: inputs and options say all.
  static nb::object of(const std::shared_ptr<const keras::CallForm>& form) {
    const auto* written = dynamic_cast<const WrittenCall*>(form.get());
    return written ? nb::borrow(written->form_.get()) : nb::none();
  }
  Json written(const Json::List& inputs) const override {
    const nb::gil_scoped_acquire acquire;
    return json(form_.get().attr("written")(python::to_python(Json(inputs))));
  }

 private:
  Kept form_;
};

template <class Base>
class WrittenLayer : public Base, public Written {
 public:
  WrittenLayer(Any self, std::string class_name, LayerBaseOptions options, bool autocast,
               std::source_location where)
      : Base(std::move(class_name), std::move(options), where), Written(self), autocast_(autocast) {}

  void build_all(const std::vector<Shape>& inputs) override {
    const nb::gil_scoped_acquire acquire;
    nb::list shapes;
    for (const Shape& shape : inputs) shapes.append(python::to_python(shape));
    self().attr("_build_for_engine")(shapes);
  }
  TensorList call_all(const TensorList& inputs, const CallContext& context) override {
    const nb::gil_scoped_acquire acquire;
    try {
      return tensors(self().attr("_call_for_engine")(python::to_python(inputs), context.training,
                                                     python::to_python(context.masks),
                                                     WrittenCall::of(context.form)));
    } catch (const nb::python_error& error) {
      // Whoever looks for sizes that fit tries others after a mistake; not after Ctrl-C.
      if (!error.matches(PyExc_Exception)) throw;
      throw PythonError(error);
    }
  }
  TensorList compute_mask(const TensorList& inputs, const TensorList& masks, size_t results) override {
    const nb::gil_scoped_acquire acquire;
    const nb::object given =
        self().attr("_mask_for_engine")(python::to_python(inputs), python::to_python(masks), results);
    return given.is_none() ? Base::compute_mask(inputs, masks, results) : tensors(given);
  }
  bool autocast_inputs() const override { return autocast_; }
  bool inputs_are_arguments() const override { return has("_inputs_are_arguments"); }
  std::shared_ptr<const keras::CallForm> read_call(const Json& args, const Json& kwargs) const override {
    const nb::gil_scoped_acquire acquire;
    const nb::object form = self().attr("_form_of_file")(python::to_python(args), python::to_python(kwargs));
    return form.is_none() ? nullptr : std::make_shared<WrittenCall>(form);
  }
  bool supports_masking() const override { return has("supports_masking"); }
  std::optional<bool> training_by_default() const override {
    const nb::gil_scoped_acquire acquire;
    const nb::object value = self().attr("_training_by_default");
    return value.is_none() ? std::nullopt : std::optional(nb::cast<bool>(value));
  }
  // The name that the class was registered by; of an operation, Keras' module.
  std::string module() const override {
    const nb::gil_scoped_acquire acquire;
    return nb::cast<std::string>(self().attr("_name_in_files"));
  }
  Json build_config() const override {
    const nb::gil_scoped_acquire acquire;
    return json(self().attr("_build_config_for_engine")());
  }
  void build_from_config(const Json& config) override {
    const nb::gil_scoped_acquire acquire;
    self().attr("_build_of_file")(python::to_python(config));
  }
  bool keeps_values() const override { return has("_keeps_values"); }
  LayerBase::Named<Tensor> kept_values() const override {
    const nb::gil_scoped_acquire acquire;
    LayerBase::Named<Tensor> named;
    for (const auto& [name, value] : nb::cast<nb::dict>(self().attr("_values_for_file")()))
      named.emplace_back(nb::cast<std::string>(name), tensor(value));
    return named;
  }
  void restore_values(const LayerBase::Named<Tensor>& values) override {
    const nb::gil_scoped_acquire acquire;
    nb::dict named;
    for (const auto& [name, value] : values) named[name.c_str()] = python::to_python(value);
    self().attr("_values_of_file")(named);
  }
  bool keeps_files() const override { return has("_keeps_files"); }
  LayerBase::Named<std::string> kept_files() const override {
    const nb::gil_scoped_acquire acquire;
    LayerBase::Named<std::string> named;
    if (!keeps_files()) return named;
    for (const auto& [name, bytes] : nb::cast<nb::dict>(self().attr("_files_for_file")())) {
      const auto given = nb::cast<nb::bytes>(bytes);
      named.emplace_back(nb::cast<std::string>(name), std::string(given.c_str(), given.size()));
    }
    return named;
  }
  void restore_files(const LayerBase::Named<std::string>& files) override {
    const nb::gil_scoped_acquire acquire;
    nb::dict named;
    for (const auto& [name, bytes] : files) named[name.c_str()] = nb::bytes(bytes.data(), bytes.size());
    self().attr("_files_of_file")(named);
  }
  // Files name layers by the attributes that hold them, as Keras' do.
  std::vector<std::string> stored_names() const override {
    const nb::gil_scoped_acquire acquire;
    nb::list keys;
    for (const Layer& layer : this->layers()) keys.append(key_of(layer));
    const nb::object names = self().attr("_stored_names")(keys);
    return names.is_none() ? Base::stored_names() : nb::cast<std::vector<std::string>>(names);
  }
  Json get_config() const override {
    const nb::gil_scoped_acquire acquire;
    return json(self().attr("_config_for_engine")());
  }

  Variable new_weight(const std::string& name, const Shape& shape,
                      const keras::WeightOptions& options) override {
    return this->add_weight(name, shape, options);
  }
  void hold(const Layer& layer) override { this->track(layer, here()); }
  void hold(const Variable& variable) override { this->track(variable); }
  void penalize(const Tensor& loss) override { this->add_loss(loss); }

 private:
  // Whether an attribute is true.
  bool has(const char* attribute) const {
    const nb::gil_scoped_acquire acquire;
    return nb::cast<bool>(self().attr(attribute));
  }

  bool autocast_;
};

// A model that is written in Python.
class WrittenModel final : public WrittenLayer<ModelBase> {
 public:
  using WrittenLayer::WrittenLayer;
  std::vector<std::string> output_names(size_t count) const override {
    const nb::gil_scoped_acquire acquire;
    const nb::object names = self().attr("_names_of_results")(count);
    return names.is_none() ? ModelBase::output_names(count) : nb::cast<std::vector<std::string>>(names);
  }
  Json compile_config() const override {
    const nb::gil_scoped_acquire acquire;
    const nb::object config = self().attr("_compile_config_for_engine")();
    return config.is_none() ? ModelBase::compile_config() : json(config);
  }
  void compile_from_config(const Json& config, std::source_location where) override {
    const nb::gil_scoped_acquire acquire;
    if (!nb::cast<bool>(self().attr("_compile_of_file")(python::to_python(config))))
      ModelBase::compile_from_config(config, where);
  }
};

Written& written(const Layer& layer) {
  auto* found = dynamic_cast<Written*>(layer.base().get());
  require(found, ErrorCode::failed_precondition, here(), "layer \"", layer.name(),
          "\" is one of the engine's own");
  return *found;
}

// A handle holds the engine's part of a layer. Where nobody else holds that, it alone keeps the object of Python alive.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const std::shared_ptr<LayerBase>& base = nb::inst_ptr<Layer>(self)->base();
  if (base && base.use_count() == 1)
    if (const nb::handle object = python_self(*base)) Py_VISIT(object.ptr());
  return 0;
}
int clear(PyObject* self) {
  if (nb::inst_ready(self)) *nb::inst_ptr<Layer>(self) = Layer();
  return 0;
}
std::array kLayerSlots{PyType_Slot{Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       PyType_Slot{Py_tp_clear, reinterpret_cast<void*>(clear)}, PyType_Slot{0, nullptr}};

LayerBaseOptions base_options(const std::string& name, bool trainable, const std::string& dtype,
                              Any regularizer) {
  LayerBaseOptions options{.name = name, .trainable = trainable};
  if (!dtype.empty()) options.dtype = keras::DTypePolicy(dtype, here());
  options.activity_regularizer = keras::Regularizer::deserialize(json(regularizer), here());
  return options;
}

// An initializer, a regularizer, a constraint or a schedule that is written in Python: a function, or an object that is called.
template <class Made>
class WrittenRule : public Made::Rule {
 public:
  explicit WrittenRule(Any object) : object_(object) {}
  std::string class_name() const override { return saved_form(object_).class_name; }
  Json config() const override { return saved_form(object_).config; }

 protected:
  template <class... Args>
  Tensor called(std::optional<DType> dtype, Args&&... args) const {
    const nb::gil_scoped_acquire acquire;
    return tensor(nb::borrow<nb::callable>(object_.get())(std::forward<Args>(args)...), dtype);
  }

 private:
  Kept object_;
};

class WrittenInitializer final : public WrittenRule<keras::Initializer> {
 public:
  using WrittenRule::WrittenRule;
  Tensor make(const Shape& shape, DType dtype) const override {
    const nb::gil_scoped_acquire acquire;
    return called(dtype, python::to_python(shape), "dtype"_a = python::to_python(dtype));
  }
};
class WrittenRegularizer final : public WrittenRule<keras::Regularizer> {
 public:
  using WrittenRule::WrittenRule;
  Tensor penalty(const Tensor& x) const override { return called({}, x); }
};
class WrittenConstraint final : public WrittenRule<keras::Constraint> {
 public:
  using WrittenRule::WrittenRule;
  Tensor project(const Tensor& weights) const override { return called(weights.dtype(), weights); }
};

class WrittenSchedule final : public WrittenRule<LearningRateSchedule> {
 public:
  using WrittenRule::WrittenRule;
  Tensor rate(const Tensor& step) const override { return called({}, step); }
};

template <class Made, class Rule>
Made made_of(Any object) {
  return Made(std::static_pointer_cast<const typename Made::Rule>(std::make_shared<Rule>(object)));
}

keras::Initializer initializer(Any value) {
  if (PyCallable_Check(value.ptr())) return made_of<keras::Initializer, WrittenInitializer>(value);
  return keras::Initializer::deserialize(json(value), here());
}

keras::catalogue::Kind kind(const std::string& name) {
  using keras::catalogue::Kind;
  const std::pair<const char*, Kind> kinds[] = {{"layer", Kind::layer},
                                                {"loss", Kind::loss},
                                                {"metric", Kind::metric},
                                                {"optimizer", Kind::optimizer},
                                                {"schedule", Kind::schedule},
                                                {"initializer", Kind::initializer},
                                                {"regularizer", Kind::regularizer},
                                                {"constraint", Kind::constraint}};
  for (const auto& [known, kind] : kinds)
    if (name == known) return kind;
  throw nb::value_error(name.c_str());
}

// A function of Python that makes what a configuration describes, for the engine.
template <class Made, class Take>
std::function<Made(const Json&)> maker(Any make, Take take) {
  return [kept = Kept(make), take](const Json& config) {
    return in_python([&] { return take(nb::borrow<nb::callable>(kept.get())(python::to_python(config))); });
  };
}
template <class Made>
std::function<Made(const Json&)> maker_of_handles(Any make) {
  return maker<Made>(make, [](const nb::object& made) { return nb::cast<Made>(made); });
}

// Makes a name known that files may have: make(config) gives an object of Python, or the handle of a layer, loss or metric.
void register_object(const std::string& of, const std::string& name, Any make) {
  if (of == "activation") {
    keras::activations::register_activation(name, [kept = Kept(make)](const Tensor& x) {
      const nb::gil_scoped_acquire acquire;
      return tensor(nb::borrow<nb::callable>(kept.get())(x));
    });
    return;
  }
  using keras::catalogue::Kind;
  switch (kind(of)) {
    case Kind::layer: return keras::register_layer(name, maker_of_handles<Layer>(make));
    case Kind::loss: return keras::losses::register_loss(name, maker_of_handles<keras::Loss>(make));
    case Kind::metric: return keras::metrics::register_metric(name, maker_of_handles<keras::Metric>(make));
    case Kind::initializer:
      return keras::initializers::register_initializer(
          name, maker<keras::Initializer>(make, made_of<keras::Initializer, WrittenInitializer>));
    case Kind::regularizer:
      return keras::regularizers::register_regularizer(
          name, maker<keras::Regularizer>(make, made_of<keras::Regularizer, WrittenRegularizer>));
    case Kind::constraint:
      return keras::constraints::register_constraint(
          name, maker<keras::Constraint>(make, made_of<keras::Constraint, WrittenConstraint>));
    case Kind::schedule:
      return keras::optimizers::register_schedule(
          name, maker<LearningRateSchedule>(make, made_of<LearningRateSchedule, WrittenSchedule>));
    case Kind::optimizer:
      return keras::optimizers::register_optimizer(name,
                                                   maker_of_handles<keras::optimizers::Optimizer>(make));
  }
}

// --- calls ---------------------------------------------------------------------------------------------------------------

template <class Value>
keras::BasicCallOptions<Value> call_options(Any given) {
  keras::BasicCallOptions<Value> options;
  for (const auto& [key, value] : nb::borrow<nb::dict>(given)) {
    const std::string name = nb::cast<std::string>(key);
    const auto one = [&](Any v) -> Value {
      if constexpr (std::is_same_v<Value, Tensor>)
        return tensor(v);
      else
        return nb::cast<KerasTensor>(v);
    };
    if (value.is_none()) continue;
    if (name == "training")
      options.training = nb::cast<bool>(value);
    else if (name == "mask")
      options.mask = one(value);
    else if (name == "masks")
      for (const nb::handle mask : nb::borrow<nb::sequence>(value))
        options.masks.push_back(mask.is_none() ? Value() : one(mask));
    else if (name == "attention_mask")
      options.attention_mask = one(value);
    else if (name == "use_causal_mask")
      options.use_causal_mask = nb::cast<bool>(value);
    else if (name == "return_attention_scores")
      options.return_attention_scores = nb::cast<bool>(value);
    else if (name == "form")
      options.form = std::make_shared<WrittenCall>(value);
    else if (name == "initial_state")
      for (const nb::handle state : nb::borrow<nb::sequence>(value))
        options.initial_state.push_back(one(state));
    else
      throw nb::type_error(("no layer of the engine takes the argument " + name).c_str());
  }
  return options;
}

KerasTensorList keras_tensors(Any sequence) {
  KerasTensorList list;
  for (const nb::handle item : nb::borrow<nb::sequence>(sequence))
    list.push_back(nb::cast<KerasTensor>(item));
  return list;
}
nb::list to_python(const KerasTensorList& values) {
  nb::list list;
  for (const KerasTensor& value : values) list.append(nb::cast(value));
  return list;
}

// `with keras.RematScope(mode):`
class RematContext {
 public:
  explicit RematContext(keras::RematScopeOptions options) : options_(std::move(options)) {}
  RematContext(const RematContext&) = delete;
  void enter() { scopes_.push_back(std::make_unique<keras::RematScope>(options_, here())); }
  void exit() { scopes_.pop_back(); }

 private:
  keras::RematScopeOptions options_;
  std::vector<std::unique_ptr<keras::RematScope>> scopes_;
};

std::vector<Shape> shapes(Any sequence) {
  std::vector<Shape> all;
  for (const nb::handle item : nb::borrow<nb::sequence>(sequence)) all.push_back(shape(item));
  return all;
}

}  // namespace

nb::handle python_self(const LayerBase& layer) {
  const auto* found = dynamic_cast<const Written*>(&layer);
  return found ? found->self() : nb::handle();
}

void bind_layers(nb::module_& m) {
  nb::class_<KerasTensor>(m, "KerasTensor", nb::dynamic_attr())
      .def(
          "__init__",
          [](KerasTensor* self, Any size, Any type, Any, Any, Any, const std::string& name) {
            keras::InputOptions options{.batch_shape = shape(size), .name = name};
            if (!type.is_none()) options.dtype = dtype(type);
            new (self) KerasTensor(keras::Input({}, options, here()));
          },
          "shape"_a, "dtype"_a = nb::none(), "sparse"_a = nb::none(), "ragged"_a = nb::none(),
          "record_history"_a = nb::none(), "name"_a = "")
      .def_prop_ro("_shape", [](const KerasTensor& t) { return python::to_python(t.shape()); })
      .def_prop_ro("dtype", [](const KerasTensor& t) { return python::to_python(t.dtype()); })
      .def_prop_ro("name", [](const KerasTensor& t) { return t.name(); })
      .def_prop_ro("_key", [](const KerasTensor& t) { return reinterpret_cast<uintptr_t>(t.impl().get()); });
  m.def("Input", [](Any size, int64_t batch_size, Any type, std::string name) {
    keras::InputOptions options{.batch_size = batch_size, .name = std::move(name)};
    if (!type.is_none()) options.dtype = dtype(type);
    return keras::Input(shape(size), options, here());
  });

  nb::class_<Layer>(m, "Layer", nb::type_slots(kLayerSlots.data()), nb::is_weak_referenceable())
      .def_static("of_input", [](const KerasTensor& input) { return Layer(input, here()); })
      .def_static("deserialize", [](Any config) { return Layer::deserialize(json(config), here()); })
      .def_static(
          "written",
          [](Any self, const std::string& class_name, const std::string& name, bool trainable,
             const std::string& dtype, Any regularizer, bool autocast) {
            return Layer(std::make_shared<WrittenLayer<LayerBase>>(
                self, class_name, base_options(name, trainable, dtype, regularizer), autocast, here()));
          })
      .def_static("adapted",
                  [](const Layer& layer, Any data) {
                    keras::layers::AdaptableLayer(layer.base()).adapt(tensor(data), here());
                  })
      .def("serialize", [](const Layer& l) { return python::to_python(l.serialize(here())); })
      .def("get_config", [](const Layer& l) { return python::to_python(l.base()->get_config()); })
      .def("apply",
           [](const Layer& l, Any inputs, Any options) {
             const TensorList given = tensors(inputs);
             const keras::CallOptions said = call_options<Tensor>(options);
             const std::source_location where = here();
             return python::to_python(released([&] { return l.apply(given, said, where); }));
           })
      .def("apply_symbolic",
           [](const Layer& l, Any inputs, Any options) {
             return to_python(l.apply(keras_tensors(inputs), call_options<KerasTensor>(options), here()));
           })
      .def("build", [](const Layer& l, Any all) { l.build(shapes(all), here()); })
      .def_prop_ro("python_self",
                   [](const Layer& l) -> nb::object {
                     const nb::handle self = python_self(*l.base());
                     return self ? nb::borrow(self) : nb::none();
                   })
      .def_prop_ro("key", key_of)
      .def_prop_ro("built", [](const Layer& l) { return l.built(); })
      .def_prop_ro("name", [](const Layer& l) { return l.name(); })
      .def_prop_ro("path", [](const Layer& l) { return l.path(); })
      .def_prop_ro("class_name", [](const Layer& l) { return l.class_name(); })
      .def_prop_ro("module", [](const Layer& l) { return l.base()->module(); })
      .def_prop_ro("supports_masking", [](const Layer& l) { return l.base()->supports_masking(); })
      .def_prop_ro("inputs_are_arguments", [](const Layer& l) { return l.base()->inputs_are_arguments(); })
      .def("compute_mask",
           [](const Layer& l, Any inputs, Any masks) {
             TensorList given;
             for (const nb::handle mask : nb::borrow<nb::sequence>(masks))
               given.push_back(mask.is_none() ? Tensor() : tensor(mask));
             return python::to_python(l.base()->compute_mask(tensors(inputs), given, 1));
           })
      .def_prop_ro("takes_list", [](const Layer& l) { return l.base()->takes_list(); })
      .def_prop_ro("dtype_policy", [](const Layer& l) { return l.dtype_policy().name(); })
      .def_prop_ro("compute_dtype",
                   [](const Layer& l) { return python::to_python(l.base()->compute_dtype()); })
      .def_prop_ro("variable_dtype",
                   [](const Layer& l) { return python::to_python(l.base()->variable_dtype()); })
      .def_prop_rw(
          "trainable", [](const Layer& l) { return l.trainable(); },
          [](const Layer& l, bool trainable) { l.set_trainable(trainable, here()); })
      .def_prop_ro("build_shapes",
                   [](const Layer& l) {
                     nb::list all;
                     for (const Shape& shape : l.base()->build_shapes()) all.append(python::to_python(shape));
                     return all;
                   })
      .def("weights", [](const Layer& l) { return to_python(l.weights()); })
      .def("trainable_weights", [](const Layer& l) { return to_python(l.trainable_weights()); })
      .def("non_trainable_weights", [](const Layer& l) { return to_python(l.non_trainable_weights()); })
      .def("set_weights", [](const Layer& l, Any values) { l.set_weights(tensors(values), here()); })
      .def("count_params", [](const Layer& l) { return l.count_params(here()); })
      .def("losses", [](const Layer& l) { return python::to_python(l.losses(here())); })
      .def("layers", [](const Layer& l) { return l.layers(here()); })
      .def("stored_names", [](const Layer& l) { return l.base()->stored_names(); })
      .def("add_weight",
           [](const Layer& l, const std::string& name, Any size, Any type, Any initial, Any regularizer,
              Any constraint, bool trainable) {
             keras::WeightOptions options{
                 .initializer = initializer(initial),
                 .regularizer = keras::Regularizer::deserialize(json(regularizer), here()),
                 .constraint = keras::Constraint::deserialize(json(constraint), here()),
                 .trainable = trainable};
             if (!type.is_none()) options.dtype = dtype(type);
             return written(l).new_weight(name, shape(size), options);
           })
      .def("hold_layer", [](const Layer& l, const Layer& inner) { written(l).hold(inner); })
      .def("hold_variable", [](const Layer& l, const Variable& variable) { written(l).hold(variable); })
      .def("own_state", [](const Layer& l) { return l.base()->own_state(); })
      .def("reset_states", [](const Layer& l) { keras::layers::reset_states(l, here()); })
      .def("add_loss", [](const Layer& l, Any loss) { written(l).penalize(tensor(loss)); });
  m.def("written_model", [](Any self, const std::string& class_name, const std::string& name, bool trainable,
                            const std::string& dtype) {
    return Model(std::static_pointer_cast<ModelBase>(std::make_shared<WrittenModel>(
        self, class_name, base_options(name, trainable, dtype, nb::none()), true, here())));
  });
  m.def("register_object", &register_object);
  // make(configuration) gives the handle of a layer of Keras' own, or None: the engine makes it.
  m.def("register_keras_layer", [](const std::string& class_name, Any make) {
    keras::register_keras_layer(class_name, maker<Layer>(make, [](const nb::object& made) {
                                  return made.is_none() ? Layer() : nb::cast<Layer>(made);
                                }));
  });
  // make(entry of a file) gives the handle of an operation between layers.
  m.def("register_operations", [](Any make) { keras::register_operations(maker_of_handles<Layer>(make)); });
  m.def("remat", [](Any f) {
    return python::to_python(
        keras::rematerialized([&] { return tensors(nb::borrow<nb::callable>(f)()); }, here()));
  });
  nb::class_<RematContext>(m, "RematContext")
      .def("__init__",
           [](RematContext* self, Any mode, int64_t output_size_threshold,
              std::vector<std::string> layer_names) {
             keras::RematScopeOptions options{.mode = std::nullopt,
                                              .output_size_threshold = output_size_threshold,
                                              .layer_names = std::move(layer_names)};
             if (!mode.is_none()) options.mode = nb::cast<std::string>(mode);
             new (self) RematContext(std::move(options));
           })
      .def("enter", &RematContext::enter)
      .def("exit", &RematContext::exit);

  // --- by name ---
  m.def("clear_session", &keras::utils::clear_session);
  m.def("class_names", [](const std::string& of) { return keras::catalogue::class_names(kind(of)); });
  m.def("parameters", [](const std::string& of, const std::string& name) {
    return python::to_python(keras::catalogue::parameters(kind(of), name, here()));
  });
  m.def("activation_names", &keras::activations::names);
  m.def("activate",
        [](const std::string& name, Any x) { return keras::Activation(name, here())(tensor(x)); });
  m.def("initialize", [](Any config, Any size, Any type) {
    return keras::Initializer::deserialize(json(config), here())(shape(size), dtype(type), here());
  });
  m.def("regularize", [](Any config, Any x) {
    return keras::Regularizer::deserialize(json(config), here())(tensor(x), here());
  });
  m.def("constrain", [](Any config, Any x) {
    return keras::Constraint::deserialize(json(config), here())(tensor(x), here());
  });
  // What a configuration becomes, with all its defaults: an error where it is none.
  m.def("checked_config", [](const std::string& of, Any config) {
    const Json given = json(config);
    using keras::catalogue::Kind;
    switch (kind(of)) {
      case Kind::initializer:
        return python::to_python(keras::Initializer::deserialize(given, here()).serialize());
      case Kind::regularizer:
        return python::to_python(keras::Regularizer::deserialize(given, here()).serialize());
      default: return python::to_python(keras::Constraint::deserialize(given, here()).serialize());
    }
  });
  m.def("set_global_policy", [](const std::string& name) {
    keras::mixed_precision::set_global_policy({name, here()});
  });
  m.def("check_policy", [](const std::string& name) { keras::DTypePolicy(name, here()); });
  m.def("global_policy", [] { return keras::mixed_precision::global_policy().name(); });
  m.def("mask_of", [](Any x) { return python::to_python(keras::mask_of(tensor(x))); });
}

}  // namespace lockstep::python
