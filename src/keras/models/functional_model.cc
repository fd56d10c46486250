#include "keras/models/functional_model.h"

#include <map>

#include "keras/models/remat_parts.h"
#include "keras/remat_mode.h"
#include "keras/training/trainer.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/drawn_calls.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "tensor/tensor_impl.h"

namespace lockstep::keras {

FunctionalModel::FunctionalModel(const KerasTensors& inputs, const KerasTensors& outputs,
                                 const ModelOptions& options, std::source_location where)
    : ModelBase("Functional", {.name = options.name, .trainable = options.trainable}, where),
      inputs_(inputs),
      outputs_(outputs),
      graph_(trace_back(inputs_.list(), outputs_.list(), where)) {
  require(!inputs_.list().empty() && !outputs_.list().empty(), ErrorCode::invalid_argument, where,
          "Model: give at least one input and one output");
  for (const Layer& layer : graph_.layers) track(layer);

  std::map<std::pair<const LayerCall*, int>, size_t> place_of;
  const auto place = [&](const KerasTensor& value) {
    const auto key = std::pair(value.impl()->call.get(), value.impl()->output);
    return place_of.emplace(key, place_of.size()).first->second;
  };
  for (const KerasTensor& input : inputs_.list()) input_places_.push_back(place(input));
  std::map<const LayerCall*, size_t> call_of;
  for (const auto& call : graph_.calls) {
    if (call->inputs.empty()) continue;
    PlacedCall placed{call, {}, {}, {}};
    for (const KerasTensor& input : call->inputs) placed.inputs.push_back(place(input));
    for (const KerasTensor& value : values_of(call->options)) placed.options.push_back(place(value));
    call_of[call.get()] = calls_.size();
    calls_.push_back(std::move(placed));
  }
  for (const KerasTensor& output : outputs_.list()) output_places_.push_back(place(output));
  // Places exist for the results that somebody reads.
  for (const auto& [key, at] : place_of) {
    const auto found = call_of.find(key.first);
    if (found == call_of.end()) continue;
    std::vector<size_t>& places = calls_[found->second].outputs;
    if (places.size() <= static_cast<size_t>(key.second))
      places.resize(static_cast<size_t>(key.second) + 1, SIZE_MAX);
    places[static_cast<size_t>(key.second)] = at;
  }
  places_ = place_of.size();
  std::vector<Shape> shapes;
  for (const KerasTensor& input : inputs_.list()) shapes.push_back(input.shape());
  ensure_built(shapes, where);
}

TensorList FunctionalModel::call_all(const TensorList& inputs, const CallContext&) {
  const std::source_location here = std::source_location::current();
  require(inputs.size() == inputs_.list().size(), ErrorCode::invalid_argument, here, "model \"", name(),
          "\" has ", inputs_.list().size(), " inputs, received ", inputs.size());
  TensorList values(places_);
  for (size_t i = 0; i < inputs.size(); ++i)
    values[input_places_[i]] = fit_to_input(inputs[i], inputs_.list()[i], name());
  const RematMode* mode = remat_mode();
  if (mode && mode->kind == RematMode::Kind::full) {
    const std::vector<size_t> last = last_readers();
    std::vector<std::vector<MadeValue>> made(calls_.size());
    for (size_t i = 0; i < calls_.size(); ++i)
      for (size_t k = 0; k < calls_[i].call->results.size(); ++k) {
        const size_t at = k < calls_[i].outputs.size() ? calls_[i].outputs[k] : SIZE_MAX;
        made[i].push_back({size_of(calls_[i].call->results[k]), at == SIZE_MAX ? i : last[at]});
      }
    call_in_parts(made, [&](size_t begin, size_t end) {
      // What the calls make is theirs alone, but for what others read.
      TensorList inside = values;
      run_calls(begin, end, inside);
      PartResults results;
      for (size_t i = begin; i < end; ++i)
        for (const size_t at : calls_[i].outputs)
          if (at != SIZE_MAX && last[at] >= end) results.emplace_back(&values[at], inside[at]);
      return results;
    });
  } else {
    run_calls(0, calls_.size(), values);
  }
  TensorList results;
  for (const size_t at : output_places_) results.push_back(values[at]);
  return results;
}

void FunctionalModel::run_calls(size_t begin, size_t end, TensorList& values) const {
  for (size_t i = begin; i < end; ++i) {
    const PlacedCall& placed = calls_[i];
    TensorList operands;
    for (const size_t at : placed.inputs) operands.push_back(values[at]);
    size_t next = 0;
    const CallOptions options = map_options<Tensor>(
        placed.call->options, [&](const KerasTensor&) { return values[placed.options[next++]]; });
    TensorList results = placed.call->layer.base()->run(operands, options, std::source_location::current());
    for (size_t k = 0; k < placed.outputs.size(); ++k)
      if (placed.outputs[k] != SIZE_MAX) values[placed.outputs[k]] = std::move(results[k]);
  }
}

std::vector<size_t> FunctionalModel::last_readers() const {
  std::vector<size_t> last(places_, 0);
  for (size_t i = 0; i < calls_.size(); ++i) {
    for (const size_t at : calls_[i].inputs) last[at] = i;
    for (const size_t at : calls_[i].options) last[at] = i;
  }
  for (const size_t at : output_places_) last[at] = calls_.size();
  return last;
}

TensorList FunctionalModel::compute_mask(const TensorList&, const TensorList&, size_t) {
  return {};  // the layers inside have attached theirs
}

std::vector<std::string> FunctionalModel::input_names() const {
  return inputs_.names().empty() ? ModelBase::input_names() : inputs_.names();
}

std::vector<std::string> FunctionalModel::output_names(size_t) const {
  if (!outputs_.names().empty()) return outputs_.names();
  std::vector<std::string> names;
  for (const KerasTensor& output : outputs_.list()) names.push_back(output.name());
  return names;
}

std::vector<DrawnCall> drawn_calls(const Model& model, std::source_location where) {
  const auto* functional = dynamic_cast<const FunctionalModel*>(&model.model_base(where));
  if (!functional) return {};
  // The very values that other calls are given: a model may start at them.
  std::map<std::pair<const LayerCall*, int>, KerasTensor> values;
  const auto note = [&](const KerasTensorList& some) {
    for (const KerasTensor& value : some)
      values.emplace(std::pair(value.impl()->call.get(), value.impl()->output), value);
  };
  note(functional->inputs());
  note(functional->outputs());
  for (const auto& call : functional->graph().calls) {
    note(call->inputs);
    note(values_of(call->options));
  }
  std::vector<DrawnCall> drawn;
  for (const auto& call : functional->graph().calls) {
    KerasTensorList outputs;
    for (size_t i = 0; i < call->results.size(); ++i) {
      KerasTensor& value = values[std::pair(call.get(), static_cast<int>(i))];
      if (!value.defined())
        value = KerasTensor(std::make_shared<KerasTensor::Impl>(KerasTensor::Impl{
            call->results[i].shape, call->results[i].dtype, call->layer.name(), call, static_cast<int>(i)}));
      outputs.push_back(value);
    }
    drawn.push_back({call->layer, call->inputs, std::move(outputs)});
  }
  return drawn;
}

std::vector<std::string> output_keys(const Model& model, std::source_location where) {
  const auto* functional = dynamic_cast<const FunctionalModel*>(&model.model_base(where));
  return functional ? functional->output_keys() : std::vector<std::string>();
}

Tensor fit_to_input(const Tensor& value, const KerasTensor& input, const std::string& model) {
  const Shape& expected = input.shape();
  Tensor fitted = value;
  // A last dimension of one may be left out or given too much, as in Keras.
  if (fitted.rank() == expected.rank() + 1 && fitted.shape()[-1] == 1) {
    fitted = squeeze(fitted, {-1});
  } else if (fitted.rank() + 1 == expected.rank() && expected[-1] == 1) {
    fitted = expand_dims(fitted, -1);
  }
  // A batch of another size than the input's is taken, as in Keras: the last one of an epoch is often
  // smaller.
  bool fits = fitted.rank() == expected.rank();
  for (int d = 1; fits && d < expected.rank(); ++d)
    fits = expected[d] < 0 || expected[d] == fitted.shape()[d];
  require(fits, ErrorCode::shape_mismatch, std::source_location::current(), "input \"", input.name(),
          "\" of model \"", model, "\" has shape ", expected, " (-1 is any size), received ", value.shape());
  if (fitted.dtype() != input.dtype()) fitted = cast(fitted, input.dtype());
  if (const Tensor mask = mask_of(value); mask.defined() && fitted.impl() != value.impl())
    fitted.impl()->mask = mask.impl();
  return fitted;
}

}  // namespace lockstep::keras
