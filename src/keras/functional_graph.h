// What the functional API draws: calls of layers on symbolic values.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/keras/layer.h"

namespace lockstep::keras {

// One call of a layer. Values keep the calls that they come from alive.
struct LayerCall {
  Layer layer;
  KerasTensorList inputs;  // none for an input of a model
  SymbolicCallOptions options;
  std::vector<TensorSpec> results;
};

struct KerasTensor::Impl {
  Shape shape;
  DType dtype = DType::float32;
  std::string name;
  std::shared_ptr<const LayerCall> call;
  int output = 0;
};

// What a layer would give for inputs of these shapes; runs nothing. Sizes that are not known stay -1.
std::vector<TensorSpec> infer_outputs(const Layer& layer, const std::vector<TensorSpec>& inputs,
                                      const SymbolicCallOptions& options, std::source_location where);

// While infer_outputs() runs on this thread: sizes of symbols may be stand-ins for any size.
bool infers_outputs();

KerasTensorList call_symbolically(const Layer& layer, const KerasTensorList& inputs,
                                  const SymbolicCallOptions& options, std::source_location where);

// The tensors that `options` holds, in one fixed order, and the same options with others in their places.
template <class Value>
std::vector<Value> values_of(const BasicCallOptions<Value>& options) {
  std::vector<Value> values;
  if (options.mask.defined()) values.push_back(options.mask);
  if (options.attention_mask.defined()) values.push_back(options.attention_mask);
  values.insert(values.end(), options.initial_state.begin(), options.initial_state.end());
  for (const Value& mask : options.masks)
    if (mask.defined()) values.push_back(mask);
  return values;
}
template <class To, class From, class Map>
BasicCallOptions<To> map_options(const BasicCallOptions<From>& options, Map&& map) {
  BasicCallOptions<To> mapped;
  mapped.training = options.training;
  mapped.use_causal_mask = options.use_causal_mask;
  mapped.return_attention_scores = options.return_attention_scores;
  mapped.form = options.form;
  if (options.mask.defined()) mapped.mask = map(options.mask);
  if (options.attention_mask.defined()) mapped.attention_mask = map(options.attention_mask);
  for (const From& state : options.initial_state) mapped.initial_state.push_back(map(state));
  for (const From& mask : options.masks) mapped.masks.push_back(mask.defined() ? map(mask) : To());
  return mapped;
}

// The calls between inputs and outputs in an order in which they can be made, and their layers, each once, in
// Keras' order: by distance from the outputs, then by first visit.
struct FunctionalGraph {
  std::vector<std::shared_ptr<const LayerCall>> calls;
  std::vector<Layer> layers;
};
FunctionalGraph trace_back(const KerasTensorList& inputs, const KerasTensorList& outputs,
                           std::source_location where);

// A model's input as a layer.
class InputLayer final : public LayerBase {
 public:
  InputLayer(const Shape& shape, DType dtype, const std::string& name);
  Json get_config() const override;
  TensorList call_all(const TensorList& inputs, const CallContext& context) override;
  TensorSpec spec() const { return {dtype_, shape_}; }

 private:
  Shape shape_;  // with the batch
  DType dtype_;
};
// The value that it stands for; nullopt where the layer is no InputLayer.
std::optional<KerasTensor> input_of(const Layer& layer);
KerasTensor make_input(const Shape& shape_with_batch, DType dtype, const std::string& name);
// What floating-point data has for layers of this policy: the layers round it, where they do, not the input.
DType data_dtype(const DTypePolicy& policy);

// A name that no layer of this process has: "dense", "dense_1", ...
std::string unique_name(const std::string& base);

}  // namespace lockstep::keras
