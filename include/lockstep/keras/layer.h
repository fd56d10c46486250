// Layers: functions with weights.
//
//   Layer hidden = layers::Dense(64, {.activation = "relu"});
//   Tensor y = hidden(x);                 // runs it (or joins the trace); the first time builds its weights
//   KerasTensor s = hidden(Input({16}));  // or draws it into a model of the functional API
//
// A layer that is made inside a tf::device() scope lives there: its weights are made and its calls run on
// that device, wherever it is called.
//
// A Layer is a handle: copies name the same layer. To write a layer, derive from LayerBase and make a
// handle with make_layer<MyLayer>(arguments...). Errors of a layer that a model runs name the line that made
// it.
//
// A layer belongs to one thread at a time: a call may build it, and keeps the losses that it adds. Layers
// that share nothing may be called by several threads at once.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/graph/variable.h"
#include "lockstep/keras/constraints.h"
#include "lockstep/keras/initializers.h"
#include "lockstep/keras/mixed_precision.h"
#include "lockstep/keras/regularizers.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::train {
class TrackedObject;
}

namespace lockstep::keras {

class LayerBase;
struct RematMode;

// --- symbolic values of the functional API -----------------------------------------------------------------

// A value of a model that is being put together: what a layer will be given or give back.
class KerasTensor {
 public:
  struct Impl;
  KerasTensor() = default;
  explicit KerasTensor(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return impl_ != nullptr; }
  // -1 stands for a size that is known only when the model runs, such as the batch.
  const Shape& shape(std::source_location where = std::source_location::current()) const;
  DType dtype(std::source_location where = std::source_location::current()) const;
  const std::string& name(std::source_location where = std::source_location::current()) const;

  const std::shared_ptr<const Impl>& impl() const { return impl_; }
  bool operator==(const KerasTensor&) const = default;

 private:
  std::shared_ptr<const Impl> impl_;
};
using KerasTensorList = std::vector<KerasTensor>;

// The inputs or the outputs of a model: one, several in an order, or several by name.
class KerasTensors {
 public:
  using Named = std::map<std::string, KerasTensor>;
  // NOLINTBEGIN(google-explicit-constructor): Model({a, b}, {{"kind", c}, {"size", d}})
  KerasTensors(const KerasTensor& one) : list_{one} {}
  KerasTensors(KerasTensorList list) : list_(std::move(list)) {}
  KerasTensors(std::initializer_list<KerasTensor> list) : list_(list) {}
  KerasTensors(std::initializer_list<Named::value_type> named) : KerasTensors(Named(named)) {}
  KerasTensors(const Named& named) {
    for (const auto& [name, value] : named) {
      names_.push_back(name);
      list_.push_back(value);
    }
  }
  // NOLINTEND(google-explicit-constructor)
  // Sorted by name, where they have names.
  const KerasTensorList& list() const { return list_; }
  const std::vector<std::string>& names() const { return names_; }  // empty: a list

 private:
  KerasTensorList list_;
  std::vector<std::string> names_;
};

struct InputOptions {
  int64_t batch_size = -1;
  std::optional<DType> dtype = {};  // nullopt: float64 where that is the global policy, else float32
  // The whole shape, with the batch if there is one, in the place of both.
  std::optional<Shape> batch_shape = {};
  std::string name = {};
};
// A model's input; `shape` leaves the batch out, -1 is any size.
KerasTensor Input(const Shape& shape, const InputOptions& options = {},
                  std::source_location where = std::source_location::current());

// One side of an operator while a model is put together: a value of the model or a number, and the line of
// the call.
class KerasOperand {
 public:
  // NOLINTBEGIN(google-explicit-constructor): conversion at the call is the purpose
  KerasOperand(const KerasTensor& value, std::source_location where = std::source_location::current())
      : value_(value), where_(where) {}
  template <class T>
  requires std::integral<T> || std::floating_point<T> KerasOperand(
      T number, std::source_location where = std::source_location::current())
      : number_(static_cast<double>(number)), where_(where) {}
  // NOLINTEND(google-explicit-constructor)
  const KerasTensor& value() const { return value_; }  // undefined: a number
  double number() const { return number_; }
  std::source_location where() const { return where_; }

 private:
  KerasTensor value_;
  double number_ = 0;
  std::source_location where_;
};
// Elementwise arithmetic; a number is taken as a constant.
KerasTensor operator+(const KerasOperand& a, const KerasOperand& b);
KerasTensor operator-(const KerasOperand& a, const KerasOperand& b);
KerasTensor operator*(const KerasOperand& a, const KerasOperand& b);
KerasTensor operator/(const KerasOperand& a, const KerasOperand& b);

// --- calling -----------------------------------------------------------------------------------------------

// The form of a call that inputs and options do not say: arguments in structures, and values that are no
// tensors. Operations have one, and layers that a front defines.
class CallForm {
 public:
  virtual ~CallForm() = default;
  // {"args": [...], "kwargs": {...}} as Keras' files hold the call, with these in place of its inputs.
  virtual Json written(const Json::List& inputs) const = 0;
};

// What a call may say beside its inputs. Layers ignore what does not concern them.
template <class Value>
struct BasicCallOptions {
  // Nullopt: as the call around this one, else what the layer takes for granted, else false.
  std::optional<bool> training = {};
  Value mask = {};                        // undefined: the one that the input carries
  Value attention_mask = {};              // attention: which keys each query may see
  std::vector<Value> initial_state = {};  // recurrent layers
  bool use_causal_mask = false;           // attention: no query sees a later key
  bool return_attention_scores = false;   // attention: the scores are a second result
  std::shared_ptr<const CallForm> form = {};
  // Of layers of several inputs, in the place of `mask`: one for each, undefined: the one that it carries.
  std::vector<Value> masks = {};
};
using CallOptions = BasicCallOptions<Tensor>;
using SymbolicCallOptions = BasicCallOptions<KerasTensor>;

// The same, as a layer sees it.
struct CallContext {
  bool training = false;
  TensorList masks = {};  // one for each input, undefined where it has none
  Tensor attention_mask = {};
  TensorList initial_state = {};
  bool use_causal_mask = false;
  bool return_attention_scores = false;
  std::shared_ptr<const CallForm> form = {};

  const Tensor& mask() const;  // of the first input
};

// The mask that a layer attached to its result (Embedding, Masking, ...); undefined where there is none.
Tensor mask_of(const Tensor& tensor);

class Layer {
 public:
  Layer() = default;
  explicit Layer(std::shared_ptr<LayerBase> base) : base_(std::move(base)) {}
  // An Input among the layers of a Sequential: Sequential({Input({784}), layers::Dense(10)}).
  Layer(const KerasTensor& input,  // NOLINT(google-explicit-constructor)
        std::source_location where = std::source_location::current());

  Tensor operator()(const Tensor& x, const CallOptions& options = {},
                    std::source_location where = std::source_location::current()) const;
  Tensor operator()(const TensorList& inputs, const CallOptions& options = {},
                    std::source_location where = std::source_location::current()) const;
  KerasTensor operator()(const KerasTensor& x, const SymbolicCallOptions& options = {},
                         std::source_location where = std::source_location::current()) const;
  KerasTensor operator()(const KerasTensorList& inputs, const SymbolicCallOptions& options = {},
                         std::source_location where = std::source_location::current()) const;
  // For layers with several results.
  TensorList apply(const TensorList& inputs, const CallOptions& options = {},
                   std::source_location where = std::source_location::current()) const;
  KerasTensorList apply(const KerasTensorList& inputs, const SymbolicCallOptions& options = {},
                        std::source_location where = std::source_location::current()) const;

  // Makes the weights for inputs of this shape (the batch included, -1 where not known).
  void build(const Shape& input, std::source_location where = std::source_location::current()) const;
  void build(const std::vector<Shape>& inputs,
             std::source_location where = std::source_location::current()) const;
  bool built(std::source_location where = std::source_location::current()) const;

  const std::string& name(std::source_location where = std::source_location::current()) const;
  // "sequential/dense": how its weights are named in files.
  const std::string& path(std::source_location where = std::source_location::current()) const;
  const std::string& class_name(std::source_location where = std::source_location::current()) const;
  DTypePolicy dtype_policy(std::source_location where = std::source_location::current()) const;

  bool trainable(std::source_location where = std::source_location::current()) const;
  // Sets it for this layer and those inside it. A compiled model takes notice when it is compiled again.
  void set_trainable(bool trainable, std::source_location where = std::source_location::current()) const;

  // Weights of this layer, then of those inside it, each once. The names in `variables` are TensorFlow's.
  std::vector<Variable> weights(std::source_location where = std::source_location::current()) const;
  std::vector<Variable> trainable_weights(std::source_location where = std::source_location::current()) const;
  std::vector<Variable> non_trainable_weights(
      std::source_location where = std::source_location::current()) const;
  std::vector<Variable> variables(std::source_location where = std::source_location::current()) const {
    return weights(where);
  }
  std::vector<Variable> trainable_variables(
      std::source_location where = std::source_location::current()) const {
    return trainable_weights(where);
  }
  std::vector<Variable> non_trainable_variables(
      std::source_location where = std::source_location::current()) const {
    return non_trainable_weights(where);
  }
  // Copies, in the order of weights().
  TensorList get_weights(std::source_location where = std::source_location::current()) const;
  void set_weights(const TensorList& values,
                   std::source_location where = std::source_location::current()) const;
  int64_t count_params(std::source_location where = std::source_location::current()) const;
  // Penalties of regularizers, and what add_loss() gave in the last call.
  TensorList losses(std::source_location where = std::source_location::current()) const;

  // The layers directly inside it.
  std::vector<Layer> layers(std::source_location where = std::source_location::current()) const;

  // What a checkpoint holds of it: weights and random state, named by where they stand among the layers.
  // Names that were not chosen but numbered ("dense_7") do not matter: the second Dense inside is "dense_1".
  std::shared_ptr<train::TrackedObject> tracked(
      std::source_location where = std::source_location::current()) const;

  // Keras' {"module", "class_name", "config", ...} of it.
  Json serialize(std::source_location where = std::source_location::current()) const;
  static Layer deserialize(const Json& json, std::source_location where = std::source_location::current());

  bool defined() const { return base_ != nullptr; }
  const std::shared_ptr<LayerBase>& base() const { return base_; }
  bool operator==(const Layer&) const = default;

 private:
  LayerBase& checked(std::source_location where) const;

  std::shared_ptr<LayerBase> base_;
};

template <class L, class... Args>
Layer make_layer(Args&&... args) {
  return Layer(std::make_shared<L>(std::forward<Args>(args)...));
}

// --- writing a layer ---------------------------------------------------------------------------------------

struct WeightOptions {
  Initializer initializer = "glorot_uniform";
  Regularizer regularizer = {};
  Constraint constraint = {};
  bool trainable = true;
  std::optional<DType> dtype = {};  // nullopt: the policy's
  bool autocast = true;             // reads give the compute dtype where a policy has two
};

struct LayerBaseOptions {
  std::string name = {};  // empty: the class name in snake case, numbered
  bool trainable = true;
  DTypePolicy dtype = {};
  Regularizer activity_regularizer = {};
  // Without the batch: a Sequential is built at once where its first layer says it. Empty: not said.
  Shape input_shape = {};
};

class LayerBase : public std::enable_shared_from_this<LayerBase> {
 public:
  // `class_name` is what files call this kind of layer.
  explicit LayerBase(std::string class_name, LayerBaseOptions options = {},
                     std::source_location where = std::source_location::current());
  virtual ~LayerBase();
  LayerBase(const LayerBase&) = delete;
  LayerBase& operator=(const LayerBase&) = delete;

  // Makes the weights, by add_weight(). Called once, before the first call and outside of any trace; sizes
  // that are not known are -1. Layers of several inputs define build_all().
  virtual void build(const Shape& input);
  virtual void build_all(const std::vector<Shape>& inputs);

  // Computes the result. Layers of several inputs or results define call_all().
  virtual Tensor call(const Tensor& x, const CallContext& context);
  virtual TensorList call_all(const TensorList& inputs, const CallContext& context);

  // The masks of the results. Default: the first input's for every result where supports_masking(), else
  // none.
  virtual TensorList compute_mask(const TensorList& inputs, const TensorList& masks, size_t results);
  virtual bool supports_masking() const { return false; }
  // Whether floating-point inputs are brought to the compute dtype.
  virtual bool autocast_inputs() const { return true; }

  // What `training` is where neither this call nor one around it says: layers that augment data take it to be
  // true. Nullopt: false for this layer, and those inside of it may take for granted what they like.
  virtual std::optional<bool> training_by_default() const { return {}; }

  // Whether Keras' call() takes the inputs as arguments of their own (query, value, key), not as one list.
  virtual bool inputs_are_arguments() const { return false; }

  // Whether Keras' call() takes a list even where it has one element: layers that merge.
  virtual bool takes_list() const { return false; }

  // The form of a call that a file holds, of which "args" and "kwargs" have {"input": i} in place of its i-th
  // input. Null: inputs and options say all, as they do of the library's layers.
  virtual std::shared_ptr<const CallForm> read_call(const Json& args, const Json& kwargs) const;

  // What deserialisation needs to make it again; start from LayerBase::get_config().
  virtual Json get_config() const;
  // Keras' name of the module the class is found in.
  virtual std::string module() const { return "keras.layers"; }

  // Where Keras' files keep the layers inside, in the order of layers(): "cell", "forward_layer". Empty for
  // one that they do not keep; "." for one whose weights are this layer's own: what is inside of it is kept
  // as if it were inside of this one. Default: "layers/" and the class in snake case, numbered.
  virtual std::vector<std::string> stored_names() const;

  // "build_config" of Keras' files: what the weights are made of before anything is called. Default: the
  // shapes of its inputs.
  virtual Json build_config() const;
  virtual void build_from_config(const Json& config);

  // What files keep of a layer that keeps something else than its own weights, numbered: tensors by name
  // among the weights, and files of its own, as bytes by name, in a model's archive.
  template <class Value>
  using Named = std::vector<std::pair<std::string, Value>>;
  virtual bool keeps_values() const { return false; }
  virtual Named<Tensor> kept_values() const { return {}; }
  virtual void restore_values(const Named<Tensor>&) {}
  virtual bool keeps_files() const { return false; }
  virtual Named<std::string> kept_files() const { return {}; }
  virtual void restore_files(const Named<std::string>&) {}

  const std::string& class_name() const { return class_name_; }
  const std::string& name() const { return options_.name; }
  const std::string& path() const { return path_; }
  const DTypePolicy& policy() const { return options_.dtype; }
  DType compute_dtype() const { return options_.dtype.compute_dtype(); }
  DType variable_dtype() const { return options_.dtype.variable_dtype(); }
  const LayerBaseOptions& base_options() const { return options_; }
  bool built() const { return built_; }
  const std::vector<Shape>& build_shapes() const { return build_shapes_; }
  bool trainable() const { return options_.trainable; }
  void set_trainable(bool trainable);
  // Where it was made.
  std::source_location where() const { return where_; }
  // The strategy in whose scope it was made: what it makes later belongs to it too. May be null.
  const std::shared_ptr<const VariableOwner>& owner() const { return owner_; }
  // Gives this layer, its weights and the layers inside to `owner`.
  void set_owner(const std::shared_ptr<const VariableOwner>& owner);
  // Where it lives; null: it was made outside of all tf::device() scopes, and runs where its inputs are.
  Device* device() const { return device_; }

  std::vector<Variable> weights() const;
  std::vector<Variable> trainable_weights() const;
  std::vector<Variable> non_trainable_weights() const;
  TensorList losses() const;
  const std::vector<Layer>& layers() const { return layers_; }
  // Weights of this layer alone, and state that is no weight (random generators).
  std::vector<Variable> own_weights() const;
  const std::vector<Variable>& own_state() const { return state_; }
  // Adds to own_state(): a resumed run needs it.
  void track_state(const Variable& state) { state_.push_back(state); }

  // Calls it once, when this layer has been built. A second one of the same key is not taken.
  void when_built(const void* key, std::function<void()> call);

  // Runs build and call with everything that belongs to them: name scope, dtype policy, masks, losses.
  TensorList run(const TensorList& inputs, const CallOptions& options, std::source_location where);
  void ensure_built(const std::vector<Shape>& inputs, std::source_location where);
  void forget_losses();

  // What the RematScope to which it belongs asks of it; null: it belongs to none.
  const RematMode* remat_mode() const { return remat_.get(); }
  // Whether it recomputes parts of itself where a scope asks for "full", so that it is not recomputed as a
  // whole.
  virtual bool recomputes_parts() const { return false; }
  // A scalar that is added to the loss of the step in which this call takes place.
  void add_loss(const Tensor& loss);

 protected:
  // A weight of this layer, named "path/name".
  Variable add_weight(const std::string& name, const Shape& shape, const WeightOptions& options = {});
  // Makes `layer` part of this one: its weights and losses are found through it. A layer that is called
  // inside of call() and was not tracked becomes part of this one then; track() says it before, and in which
  // order.
  Layer track(Layer layer, std::source_location where = std::source_location::current());
  // Lists a weight of a layer inside among this layer's own, which come first.
  void track(const Variable& weight);
  void untrack_all() { layers_.clear(); }
  void set_path(std::string path) { path_ = std::move(path); }
  void mark_unbuilt() { built_ = false; }

 private:
  struct Weight {
    Variable variable;
    Regularizer regularizer;
  };
  const Variable& insert(Weight weight);
  // Tracks a layer that was called inside of this one's call() and is not found through it yet.
  void adopt(LayerBase& called);
  // The line that errors of a call from this line name: where the library called, that which made this layer.
  std::source_location line_of(std::source_location where) const;
  void collect(std::vector<Variable>& into, bool trainable, bool non_trainable, bool frozen) const;
  // Enters the RematScope around, where it belongs to none.
  void enter_remat_scope();
  // Whether this call is to be recomputed in the backward pass.
  bool recomputes(const TensorList& inputs, const CallContext& context);
  int64_t output_elements(const TensorList& inputs, const CallContext& context);
  TensorList call_in_policy(const TensorList& inputs, const CallContext& context);

  std::string class_name_;
  LayerBaseOptions options_;
  std::string path_;
  std::source_location where_;
  std::shared_ptr<const VariableOwner> owner_ = VariableOwnerScope::current();
  bool built_ = false;
  std::vector<Shape> build_shapes_;
  std::vector<Weight> weights_;  // trainable ones first
  std::vector<Layer> layers_;
  std::vector<Variable> state_;
  std::vector<std::pair<const void*, std::function<void()>>> when_built_;
  TensorList added_losses_;
  std::shared_ptr<const RematMode> remat_;
  Device* device_ = scoped_device();
};

// Makes layers of your own readable from files: `make` gets what get_config() wrote.
void register_layer(const std::string& class_name, std::function<Layer(const Json& config)> make);

// Makes layers of Keras' own that this library has not, or not in every form, readable from files. An
// undefined layer leaves the configuration to the library.
void register_keras_layer(const std::string& class_name, std::function<Layer(const Json& config)> make);

// Makes operations of keras.ops between layers, of their entries in a model's file, in the place of those of
// this library: for a front that has functions for all of them.
void register_operations(std::function<Layer(const Json& entry)> make);

}  // namespace lockstep::keras
