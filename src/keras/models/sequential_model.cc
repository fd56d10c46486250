#include "keras/models/sequential_model.h"

#include <algorithm>

#include "keras/functional_graph.h"
#include "keras/models/functional_model.h"
#include "keras/models/remat_parts.h"
#include "keras/remat_mode.h"
#include "keras/training/trainer.h"
#include "lockstep/base/error.h"

namespace lockstep::keras {

SequentialModel::SequentialModel(const ModelOptions& options, std::source_location where)
    : ModelBase("Sequential", {.name = options.name, .trainable = options.trainable}, where) {}

void SequentialModel::add(const Layer& layer, std::source_location where) {
  require(layer.defined(), ErrorCode::invalid_argument, where, "Sequential: an empty Layer was added");
  if (const std::optional<KerasTensor> input = input_of(layer)) return set_input(*input, where);
  require(!layer.base()->takes_list(), ErrorCode::invalid_argument, where, "Sequential: ", layer.class_name(),
          " takes a list of inputs, and each layer here has the one that the layer before gives; build a "
          "Model({.inputs = ..., .outputs = ...}) of layers that are called");
  const auto same_name = [&](const Layer& other) { return other.name() == layer.name(); };
  require(std::none_of(layers().begin(), layers().end(), same_name), ErrorCode::invalid_argument, where,
          "Sequential: there is a layer \"", layer.name(),
          "\" already; layers of a model need names of their own");
  const bool first = layers().empty();
  track(layer);
  if (first && !input_.defined()) {
    const LayerBaseOptions& options = layer.base()->base_options();
    if (!options.input_shape.empty()) {
      input_ = Input(options.input_shape, {.dtype = data_dtype(options.dtype)}, where);
      input_given_ = true;
    } else if (const auto* model = dynamic_cast<const ModelBase*>(layer.base().get());
               model && model->inputs().size() == 1) {
      const KerasTensor inner = model->inputs()[0];
      input_ = make_input(inner.shape(), inner.dtype(), "");
      input_given_ = true;
    }
  }
  rebuild(where);
}

void SequentialModel::set_input(const KerasTensor& input, std::source_location where) {
  require(layers().empty() && !input_.defined(), ErrorCode::failed_precondition, where,
          "Sequential: the input must be added before the layers");
  input_ = input;
  input_given_ = true;
}

void SequentialModel::pop(std::source_location where) {
  require(!layers().empty(), ErrorCode::failed_precondition, where, "Sequential: there is no layer to pop");
  std::vector<Layer> kept(layers().begin(), layers().end() - 1);
  untrack_all();
  for (const Layer& layer : kept) track(layer);
  if (!input_given_) input_ = {};
  rebuild(where);
}

void SequentialModel::rebuild(std::source_location where) {
  values_.clear();
  mark_unbuilt();
  if (input_.defined() && !layers().empty()) ensure_built({input_.shape()}, where);
}

void SequentialModel::build(const Shape& input) {
  if (!input_.defined()) {
    Shape any_batch = input;
    if (any_batch.rank() > 0) any_batch[0] = -1;
    input_ =
        make_input(any_batch, data_dtype(layers().empty() ? policy() : layers()[0].base()->policy()), "");
  }
  values_.clear();
  KerasTensor value = input_;
  for (const Layer& layer : layers()) values_.push_back(value = layer(value));
}

Tensor SequentialModel::call(const Tensor& x, const CallContext&) {
  Tensor value = input_given_ ? fit_to_input(x, input_, name()) : x;
  const auto run = [&](size_t begin, size_t end, Tensor x) {
    for (size_t i = begin; i < end; ++i) x = layers()[i](x);
    return x;
  };
  const RematMode* mode = remat_mode();
  if (!mode || mode->kind != RematMode::Kind::full) return run(0, layers().size(), value);
  std::vector<std::vector<MadeValue>> made;
  for (size_t i = 0; i < layers().size(); ++i)
    made.push_back({{i < values_.size() ? size_of({values_[i].dtype(), values_[i].shape()}) : 1, i + 1}});
  call_in_parts(made, [&](size_t begin, size_t end) {
    return PartResults{{&value, run(begin, end, value)}};
  });
  return value;
}

TensorList SequentialModel::compute_mask(const TensorList&, const TensorList&, size_t) { return {}; }

KerasTensorList SequentialModel::inputs() const {
  return input_.defined() ? KerasTensorList{input_} : KerasTensorList{};
}
KerasTensorList SequentialModel::outputs() const {
  return values_.empty() ? KerasTensorList{} : KerasTensorList{values_.back()};
}

}  // namespace lockstep::keras
