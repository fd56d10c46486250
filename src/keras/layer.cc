#include "lockstep/keras/layer.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "graph/emit.h"
#include "keras/fields.h"
#include "keras/functional_graph.h"
#include "keras/layer_outputs.h"
#include "keras/layers/registry.h"
#include "keras/registry.h"
#include "keras/remat_mode.h"
#include "keras/saving/shared_layers.h"
#include "keras/saving/stored_weights.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/log.h"
#include "lockstep/keras/clear_session.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/math.h"
#include "tensor/tensor_impl.h"

namespace lockstep::keras {
namespace {

// The calls under way on this thread, innermost last.
struct Frame {
  LayerBase* layer;
  std::optional<bool> training;  // none: nobody has said so far
  std::string scope;             // "model/block": what weights made inside are named under
  const Frame* outer;
};
thread_local const Frame* innermost = nullptr;

class FrameScope {
 public:
  FrameScope(LayerBase& layer, std::optional<bool> training)
      : frame_{&layer, training, innermost ? innermost->scope + "/" + layer.name() : layer.name(),
               innermost} {
    innermost = &frame_;
  }
  ~FrameScope() { innermost = frame_.outer; }
  FrameScope(const FrameScope&) = delete;
  FrameScope& operator=(const FrameScope&) = delete;

 private:
  Frame frame_;
};

std::mutex names_mutex;
std::map<std::string, int> used_names;

Tensor to_dtype(const Tensor& value, DType dtype, std::source_location) {
  return is_floating(value.dtype()) && value.dtype() != dtype ? cast(value, dtype) : value;
}

void attach_mask(const Tensor& tensor, const Tensor& mask) {
  if (mask.defined()) tensor.impl()->mask = mask.impl();
}

void say_once_of_lost_mask(const LayerBase& layer) {
  static std::mutex mutex;
  static std::set<const LayerBase*> said;
  const std::lock_guard lock(mutex);
  if (said.insert(&layer).second)
    log(LogLevel::warning, "layer \"" + layer.name() + "\" (" + layer.class_name() +
                               ") does not know masks: the mask of its input ends here");
}

std::vector<Shape> shapes_of(const TensorList& tensors) {
  std::vector<Shape> shapes;
  shapes.reserve(tensors.size());
  for (const Tensor& tensor : tensors) shapes.push_back(tensor.shape());
  return shapes;
}

double examples_of(const Tensor& tensor) {
  return tensor.rank() == 0 ? 1 : std::max(1.0, static_cast<double>(tensor.shape()[0]));
}

Tensor only(TensorList results, const Layer& layer, std::source_location where) {
  require(results.size() == 1, ErrorCode::invalid_argument, where, "layer \"", layer.name(), "\" gives ",
          results.size(), " results; call apply() for all of them");
  return std::move(results[0]);
}

}  // namespace

std::string unique_name(const std::string& base) {
  const std::lock_guard lock(names_mutex);
  const int count = used_names[base]++;
  return count == 0 ? base : base + "_" + std::to_string(count);
}

void utils::clear_session() {
  const std::lock_guard lock(names_mutex);
  used_names.clear();
}

Tensor mask_of(const Tensor& tensor) {
  return tensor.defined() && tensor.impl()->mask ? Tensor(tensor.impl()->mask) : Tensor();
}

const Tensor& CallContext::mask() const {
  static const Tensor none;
  return masks.empty() ? none : masks[0];
}

// --- LayerBase ---------------------------------------------------------------------------------------------

LayerBase::LayerBase(std::string class_name, LayerBaseOptions options, std::source_location where)
    : class_name_(std::move(class_name)), options_(std::move(options)), where_(CallSite::of(where)) {
  if (options_.name.empty()) options_.name = unique_name(to_snake_case(class_name_));
  // Weights are named "layer/weight" in files.
  require(options_.name.find('/') == std::string::npos, ErrorCode::invalid_argument, where_, "layer name \"",
          options_.name, "\" must not contain '/'");
  // What the global policy is when the layer is made counts, not when it is used.
  if (!options_.dtype.set()) options_.dtype = mixed_precision::global_policy();
  path_ = options_.name;
  enter_remat_scope();
  // It may make its weights much later.
  if (owner_) owner_->mark_used();
}

LayerBase::~LayerBase() = default;

std::vector<std::string> LayerBase::stored_names() const { return names_by_class("layers/", layers_); }

void LayerBase::build(const Shape&) {}
void LayerBase::build_all(const std::vector<Shape>& inputs) {
  build(inputs.empty() ? Shape() : inputs[0]);  // some need to know nothing of their input
}

Tensor LayerBase::call(const Tensor&, const CallContext&) {
  fail(ErrorCode::unsupported, std::source_location::current(), "layer class ", class_name_,
       " defines neither call() nor call_all()");
}

TensorList LayerBase::call_all(const TensorList& inputs, const CallContext& context) {
  require(inputs.size() == 1, ErrorCode::invalid_argument, std::source_location::current(), "layer class ",
          class_name_, " takes one input, received ", inputs.size());
  return {call(inputs[0], context)};
}

std::shared_ptr<const CallForm> LayerBase::read_call(const Json&, const Json&) const { return nullptr; }

TensorList LayerBase::compute_mask(const TensorList&, const TensorList& masks, size_t results) {
  const auto first =
      std::find_if(masks.begin(), masks.end(), [](const Tensor& mask) { return mask.defined(); });
  if (first == masks.end()) return {};
  if (!supports_masking()) {
    say_once_of_lost_mask(*this);
    return {};
  }
  return TensorList(results, *first);
}

Json LayerBase::get_config() const {
  Json config = Json::object(
      {{"name", options_.name}, {"trainable", options_.trainable}, {"dtype", to_json(options_.dtype)}});
  if (options_.activity_regularizer.defined())
    config.set("activity_regularizer", options_.activity_regularizer.serialize());
  return config;
}

void LayerBase::set_trainable(bool trainable) {
  options_.trainable = trainable;
  for (const Layer& layer : layers_) layer.set_trainable(trainable);
}

void LayerBase::collect(std::vector<Variable>& into, bool trainable, bool non_trainable, bool frozen) const {
  frozen = frozen || !options_.trainable;
  const auto add = [&](const Variable& variable) {
    const bool known = std::any_of(into.begin(), into.end(),
                                   [&](const Variable& other) { return other.id() == variable.id(); });
    if (!known) into.push_back(variable);
  };
  for (const Weight& weight : weights_) {
    const bool learns = weight.variable.trainable() && !frozen;
    if (learns ? trainable : non_trainable) add(weight.variable);
  }
  for (const Layer& layer : layers_) layer.base()->collect(into, trainable, non_trainable, frozen);
}

std::vector<Variable> LayerBase::weights() const {
  std::vector<Variable> all;
  collect(all, true, true, false);
  return all;
}
std::vector<Variable> LayerBase::trainable_weights() const {
  std::vector<Variable> all;
  collect(all, true, false, false);
  return all;
}
std::vector<Variable> LayerBase::non_trainable_weights() const {
  std::vector<Variable> all;
  collect(all, false, true, false);
  return all;
}

TensorList LayerBase::losses() const {
  // A layer that several parts of a model share counts once.
  TensorList losses;
  std::set<const LayerBase*> seen;
  const auto visit = [&](const auto& self, const LayerBase& layer) -> void {
    if (!seen.insert(&layer).second) return;
    losses.insert(losses.end(), layer.added_losses_.begin(), layer.added_losses_.end());
    for (const Layer& inner : layer.layers_) self(self, *inner.base());
  };
  visit(visit, *this);
  // A replica adds its share, so that the sum over replicas is right: of a mean over its examples as of what
  // does not depend on them.
  const ReplicaTrace* replica = ReplicaTrace::current();
  const auto shared = [&](const Tensor& loss) { return replica ? loss * replica->share() : loss; };
  for (Tensor& loss : losses) loss = shared(loss);
  // Weights that do not learn are not pulled anywhere.
  std::map<uint64_t, Regularizer> regularizers;
  for (const LayerBase* layer : seen)
    for (const Weight& weight : layer->weights_)
      if (weight.regularizer.defined()) regularizers.emplace(weight.variable.id(), weight.regularizer);
  if (regularizers.empty()) return losses;
  for (const Variable& weight : trainable_weights()) {
    const auto found = regularizers.find(weight.id());
    if (found == regularizers.end()) continue;
    losses.push_back(shared(found->second(weight.value())));
  }
  return losses;
}

void LayerBase::forget_losses() {
  added_losses_.clear();
  for (const Layer& layer : layers_) layer.base()->forget_losses();
}

void LayerBase::add_loss(const Tensor& loss) {
  if (AddedLosses* scope = AddedLosses::current())
    scope->added.push_back({this, loss});
  else
    added_losses_.push_back(loss);
}

Layer LayerBase::track(Layer layer, std::source_location where) {
  require(layer.defined(), ErrorCode::invalid_argument, where, "layer \"", name(),
          "\" was given an empty Layer");
  const bool known = std::find(layers_.begin(), layers_.end(), layer) != layers_.end();
  if (!known) layers_.push_back(layer);
  return layer;
}

void LayerBase::adopt(LayerBase& called) {
  const auto has = [&](const auto& self, const LayerBase& layer) -> bool {
    return std::any_of(layer.layers_.begin(), layer.layers_.end(), [&](const Layer& inner) {
      return inner.base().get() == &called || self(self, *inner.base());
    });
  };
  if (&called != this && !has(has, *this)) track(Layer(called.shared_from_this()));
}

std::source_location LayerBase::line_of(std::source_location where) const {
  return CallSite::in_library(where) ? where_ : where;
}

void LayerBase::set_owner(const std::shared_ptr<const VariableOwner>& owner) {
  owner_ = owner;
  if (owner_) owner_->mark_used();
  for (const Weight& weight : weights_) weight.variable.set_owner(owner);
  for (const Layer& layer : layers_) layer.base()->set_owner(owner);
}

Variable LayerBase::add_weight(const std::string& name, const Shape& shape, const WeightOptions& options) {
  const VariableOwnerScope own(owner_);
  for (const int64_t size : shape)
    require(size >= 0, ErrorCode::shape_mismatch, where_, "layer \"", this->name(),
            "\" cannot make weight \"", name, "\" of shape ", shape,
            ": a size of its input that it depends on is not known");
  const DType dtype = options.dtype.value_or(variable_dtype());
  const bool floating = is_floating(dtype);
  VariableOptions variable{
      .name = path_ + "/" + name, .trainable = options.trainable, .autocast = options.autocast && floating};
  if (options.constraint.defined())
    variable.constraint = [constraint = options.constraint](const Tensor& value) {
      return constraint(value);
    };
  const TracePause outside;
  return insert({Variable(options.initializer(shape, dtype), std::move(variable)), options.regularizer});
}

void LayerBase::track(const Variable& weight) { insert({weight, {}}); }

const Variable& LayerBase::insert(Weight weight) {
  // Keras lists the trainable ones first.
  const auto place = weight.variable.trainable()
                         ? std::find_if(weights_.begin(), weights_.end(),
                                        [](const Weight& w) { return !w.variable.trainable(); })
                         : weights_.end();
  return weights_.insert(place, std::move(weight))->variable;
}

std::vector<Variable> LayerBase::own_weights() const {
  std::vector<Variable> own;
  for (const Weight& weight : weights_) own.push_back(weight.variable);
  return own;
}

void LayerBase::when_built(const void* key, std::function<void()> call) {
  const bool known = std::any_of(when_built_.begin(), when_built_.end(),
                                 [&](const auto& other) { return other.first == key; });
  if (!known) when_built_.emplace_back(key, std::move(call));
}

void LayerBase::ensure_built(const std::vector<Shape>& inputs, std::source_location where) {
  if (built_) return;
  enter_remat_scope();
  const CallSite site(line_of(where));
  std::optional<FrameScope> frame;
  if (!innermost || innermost->layer != this)
    frame.emplace(*this, innermost ? innermost->training : std::nullopt);
  path_ = innermost->scope;
  const TracePause outside;
  std::optional<DeviceScope> device;
  if (device_) device.emplace(*device_);
  try {
    build_all(inputs);
  } catch (Error& error) {
    error.note("while building layer \"" + name() + "\" (" + class_name_ + ")");
    throw;
  }
  build_shapes_ = inputs;
  built_ = true;
  for (const auto& [key, call] : std::exchange(when_built_, {})) call();
}

TensorList LayerBase::call_in_policy(const TensorList& inputs, const CallContext& context) {
  if (compute_dtype() == variable_dtype()) {
    const VariableReadScope reads;
    return call_all(inputs, context);
  }
  const VariableReadScope reads(to_dtype, compute_dtype());
  return call_all(inputs, context);
}

// --- rematerialisation -------------------------------------------------------------------------------------

void LayerBase::enter_remat_scope() {
  if (!remat_) remat_ = current_remat_mode();
}

bool is_outermost_call() { return innermost && !innermost->outer; }

bool recomputes_activations() {
  const RematMode* mode = innermost ? innermost->layer->remat_mode() : nullptr;
  return mode && mode->kind == RematMode::Kind::activations && remat_depth() == 0;
}

bool LayerBase::recomputes(const TensorList& inputs, const CallContext& context) {
  if (!remat_ || !has_recorders()) return false;
  switch (remat_->kind) {
    case RematMode::Kind::full:
      // As a whole, a model that nobody else calls would make all its values again at once, and a layer that
      // is recomputed with the one around it would make its few a third time.
      if (recomputes_parts() || (is_outermost_call() && dynamic_cast<const ModelBase*>(this))) return false;
      return remat_depth() == 0 || !layers_.empty();
    case RematMode::Kind::list_of_layers:
      return std::find(remat_->layer_names.begin(), remat_->layer_names.end(), name()) !=
             remat_->layer_names.end();
    case RematMode::Kind::larger_than:
      return output_elements(inputs, context) > remat_->output_size_threshold;
    default: return false;
  }
}

// How many elements the results for these inputs have, all together; computes nothing.
int64_t LayerBase::output_elements(const TensorList& inputs, const CallContext& context) {
  const std::source_location here = std::source_location::current();
  const RecorderPause pause;
  const AddedLosses ignored;
  // Results are symbols of this trace; only their sizes outlive it.
  Trace trace;
  int parameters = 0;
  const auto symbols = [&](const TensorList& tensors) {
    TensorList made;
    for (const Tensor& tensor : tensors)
      made.push_back(tensor.defined() ? trace.parameter(parameters++, tensor.spec(), here) : Tensor());
    return made;
  };
  CallContext symbolic = context;
  symbolic.masks = symbols(context.masks);
  symbolic.attention_mask = symbols({context.attention_mask})[0];
  symbolic.initial_state = symbols(context.initial_state);
  int64_t elements = 0;
  for (const Tensor& output : call_in_policy(symbols(inputs), symbolic)) elements += output.size();
  return elements;
}

TensorList LayerBase::run(const TensorList& inputs, const CallOptions& options, std::source_location where) {
  std::optional<bool> training = options.training;
  if (!training && innermost) training = innermost->training;
  if (!training) training = training_by_default();
  // What call() calls belongs to the layer, whether or not it was tracked before.
  if (innermost) innermost->layer->adopt(*this);
  const CallSite site(line_of(where));
  const FrameScope frame(*this, training);
  enter_remat_scope();
  std::optional<DeviceScope> device;
  if (device_ && device_ != scoped_device()) device.emplace(*device_);
  try {
    TensorList cast_inputs;
    CallContext context{.training = training.value_or(false),
                        .attention_mask = options.attention_mask,
                        .initial_state = options.initial_state,
                        .use_causal_mask = options.use_causal_mask,
                        .return_attention_scores = options.return_attention_scores,
                        .form = options.form};
    for (const Tensor& input : inputs) {
      require(input.defined(), ErrorCode::invalid_argument, where, "an input is none");
      context.masks.push_back(mask_of(input));
      cast_inputs.push_back(autocast_inputs() ? to_dtype(input, compute_dtype(), where) : input);
      if (context.masks.back().defined() && !(cast_inputs.back().impl() == input.impl()))
        attach_mask(cast_inputs.back(), context.masks.back());
    }
    if (options.mask.defined() && !context.masks.empty()) context.masks[0] = options.mask;
    require(options.masks.size() <= inputs.size(), ErrorCode::invalid_argument, where, options.masks.size(),
            " masks for ", inputs.size(), " inputs");
    for (size_t i = 0; i < options.masks.size(); ++i)
      if (options.masks[i].defined()) context.masks[i] = options.masks[i];
    ensure_built(shapes_of(cast_inputs), where);
    const auto compute = [&] { return call_in_policy(cast_inputs, context); };
    const TensorList outputs = recomputes(cast_inputs, context) ? rematerialized(compute, where) : compute();
    if (options_.activity_regularizer.defined())
      for (const Tensor& output : outputs)
        if (is_floating(output.dtype()))
          add_loss(options_.activity_regularizer(output) * (1 / examples_of(output)));
    const TensorList masks = compute_mask(cast_inputs, context.masks, outputs.size());
    for (size_t i = 0; i < masks.size() && i < outputs.size(); ++i) attach_mask(outputs[i], masks[i]);
    LayerOutputScope::tell(*this, outputs);
    return outputs;
  } catch (Error& error) {
    error.note("in layer \"" + name() + "\" (" + class_name_ + ")");
    throw;
  }
}

// --- Layer -------------------------------------------------------------------------------------------------

TensorList Layer::apply(const TensorList& inputs, const CallOptions& options,
                        std::source_location where) const {
  checked(where);
  if (!innermost) base_->forget_losses();
  return base_->run(inputs, options, where);
}
Tensor Layer::operator()(const TensorList& inputs, const CallOptions& options,
                         std::source_location where) const {
  return only(apply(inputs, options, where), *this, where);
}
// A merge of one tensor is a forgotten second one more often than not; a list of one says that it is meant.
static void require_no_list(const LayerBase& layer, std::source_location where) {
  require(!layer.takes_list(), ErrorCode::invalid_argument, where, layer.class_name(),
          " takes a list of inputs, received one tensor; {a, b} is a list");
}

Tensor Layer::operator()(const Tensor& x, const CallOptions& options, std::source_location where) const {
  require_no_list(checked(where), where);
  return only(apply(TensorList{x}, options, where), *this, where);
}

KerasTensorList Layer::apply(const KerasTensorList& inputs, const SymbolicCallOptions& options,
                             std::source_location where) const {
  return call_symbolically(*this, inputs, options, where);
}
KerasTensor Layer::operator()(const KerasTensorList& inputs, const SymbolicCallOptions& options,
                              std::source_location where) const {
  const KerasTensorList results = apply(inputs, options, where);
  require(results.size() == 1, ErrorCode::invalid_argument, where, "layer \"", name(), "\" gives ",
          results.size(), " results; call apply() for all of them");
  return results[0];
}
KerasTensor Layer::operator()(const KerasTensor& x, const SymbolicCallOptions& options,
                              std::source_location where) const {
  require_no_list(checked(where), where);
  return (*this)(KerasTensorList{x}, options, where);
}

LayerBase& Layer::checked(std::source_location where) const {
  require(defined(), ErrorCode::failed_precondition, where,
          "this Layer was default-constructed: it names no layer");
  return *base_;
}

void Layer::build(const Shape& input, std::source_location where) const {
  checked(where).ensure_built({input}, where);
}
void Layer::build(const std::vector<Shape>& inputs, std::source_location where) const {
  checked(where).ensure_built(inputs, where);
}
bool Layer::built(std::source_location where) const { return checked(where).built(); }
const std::string& Layer::name(std::source_location where) const { return checked(where).name(); }
const std::string& Layer::path(std::source_location where) const { return checked(where).path(); }
const std::string& Layer::class_name(std::source_location where) const { return checked(where).class_name(); }
DTypePolicy Layer::dtype_policy(std::source_location where) const { return checked(where).policy(); }
bool Layer::trainable(std::source_location where) const { return checked(where).trainable(); }
void Layer::set_trainable(bool trainable, std::source_location where) const {
  checked(where).set_trainable(trainable);
}
std::vector<Variable> Layer::weights(std::source_location where) const { return checked(where).weights(); }
std::vector<Variable> Layer::trainable_weights(std::source_location where) const {
  return checked(where).trainable_weights();
}
std::vector<Variable> Layer::non_trainable_weights(std::source_location where) const {
  return checked(where).non_trainable_weights();
}
TensorList Layer::losses(std::source_location where) const {
  const CallSite site(where);
  return checked(where).losses();
}
std::vector<Layer> Layer::layers(std::source_location where) const { return checked(where).layers(); }

TensorList Layer::get_weights(std::source_location where) const {
  TensorList values;
  for (const Variable& weight : weights(where)) values.push_back(weight.value(where));
  return values;
}

void Layer::set_weights(const TensorList& values, std::source_location where) const {
  const std::vector<Variable> own = weights(where);
  require(own.size() == values.size(), ErrorCode::invalid_argument, where, "set_weights: layer \"", name(),
          "\" has ", own.size(), " weights", built() ? "" : " (it is not built)", ", received ",
          values.size());
  // All are checked before the first is changed.
  for (size_t i = 0; i < own.size(); ++i)
    require(values[i].defined() && values[i].shape() == own[i].shape(), ErrorCode::shape_mismatch, where,
            "set_weights: weight \"", own[i].name(), "\" has shape ", own[i].shape(), ", received ",
            values[i].defined() ? values[i].shape() : Shape());
  for (size_t i = 0; i < own.size(); ++i)
    own[i].assign(values[i].dtype() == own[i].dtype() ? values[i] : cast(values[i], own[i].dtype()), where);
}

int64_t Layer::count_params(std::source_location where) const {
  const std::vector<Variable> own = weights(where);
  require(built() || !own.empty(), ErrorCode::failed_precondition, where, "count_params: layer \"", name(),
          "\" has no weights yet; call build() or give it an input first");
  int64_t count = 0;
  for (const Variable& weight : own) count += weight.shape().size();
  return count;
}

namespace {
// Classes that register_layer() made known, with the names that files know them by: "Package>Name".
std::map<std::string, std::string>& user_classes() {
  static std::map<std::string, std::string> classes;
  return classes;
}
}  // namespace

Json LayerBase::build_config() const {
  // Keras' layers of several arguments name the shapes one by one; their first call builds them as well.
  if (build_shapes_.empty() || inputs_are_arguments()) return {};
  Json all = Json::list();
  for (const Shape& shape : build_shapes_) all.push_back(to_json(shape));
  return Json::object({{"input_shape", build_shapes_.size() == 1 ? all.at(0) : all}});
}

// One shape, or a list of them.
void LayerBase::build_from_config(const Json& config) {
  const Json& given = config.at("input_shape");
  const bool several = given.is_list() && !given.items().empty() && given.items()[0].is_list();
  std::vector<Shape> shapes;
  for (const Json& one : several ? given.items() : Json::List{given}) from_json(one, shapes.emplace_back());
  ensure_built(shapes, std::source_location::current());
}

Json Layer::serialize(std::source_location where) const {
  const CallSite site(where);
  checked(where);
  const std::string module = base_->module();
  Json json = serialized(module, class_name(), base_->get_config());
  SharedLayersWritten::mark(*base_, json);
  // A front that has classes of its own, two of one name perhaps, says what they were registered by in the
  // module's place: "Package>Name", or "module:Name" of one that was not.
  if (module.find('>') != std::string::npos) {
    json.set("module", nullptr);
    json.set("registered_name", module);
  } else if (const size_t colon = module.find(':'); colon != std::string::npos) {
    json.set("module", module.substr(0, colon));
    json.set("registered_name", module.substr(colon + 1));
  } else if (const auto registered = user_classes().find(class_name()); registered != user_classes().end()) {
    json.set("module", nullptr);
    json.set("registered_name", registered->second);
  }
  if (const Json build = built() ? base_->build_config() : Json(); !build.is_null())
    json.set("build_config", build);
  return json;
}

Layer Layer::deserialize(const Json& json, std::source_location where) {
  const CallSite site(where);
  if (const std::optional<Layer> shared = SharedLayersRead::find(json)) return *shared;
  const Layer layer = layer_registry().make(json, where);
  SharedLayersRead::add(json, layer);
  // A model of a user's own is not called while it is read, so that nothing else would make its weights.
  if (user_classes().contains(layer.class_name()) && !layer.built())
    if (const Json* build = json.find("build_config"); build && build->is_object())
      layer.base()->build_from_config(*build);
  return layer;
}

Registry<Layer>& layer_registry() {
  static Registry<Layer> registry("layer");
  return registry;
}
const Catalogued& known_layers() { return layer_registry(); }

// "Package>Name" is what Keras' files call a layer that a package registers; without a package it is Keras'
// default, Custom.
void register_layer(const std::string& class_name, std::function<Layer(const Json& config)> make) {
  const size_t package = class_name.find('>');
  const bool packaged = package != std::string::npos;
  const std::string registered = packaged ? class_name : "Custom>" + class_name;
  layer_registry().add(class_name, std::move(make), {registered});
  user_classes()[packaged ? class_name.substr(package + 1) : class_name] = registered;
}

void register_keras_layer(const std::string& class_name, std::function<Layer(const Json& config)> make) {
  layer_registry().extend(class_name, std::move(make));
}

}  // namespace lockstep::keras
