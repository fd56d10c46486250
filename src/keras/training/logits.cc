#include "keras/training/logits.h"

#include "keras/functional_graph.h"
#include "lockstep/base/log.h"

namespace lockstep::keras {
namespace {

// The layer that gives this output; that of a model inside, where a model gives it.
Layer last_layer(const ModelBase& model, size_t output) {
  const KerasTensorList outputs = model.outputs();
  Layer last;
  size_t inner = 0;
  if (output < outputs.size()) {
    const KerasTensor::Impl& value = *outputs[output].impl();
    if (value.call) last = value.call->layer;
    inner = static_cast<size_t>(value.output);
  } else if (output == 0 && !model.layers().empty()) {
    last = model.layers().back();
  }
  const auto* inside = dynamic_cast<const ModelBase*>(last.base().get());
  return inside ? last_layer(*inside, inner) : last;
}

std::string activation_of(const Layer& layer) {
  if (layer.class_name() == "Softmax") return "softmax";
  const Json config = layer.base()->get_config();
  const Json* activation = config.find("activation");
  return activation && activation->is_string() ? activation->as_string() : "";
}

void warn(const ModelBase& model, size_t output, const Loss& loss) {
  const Json config = loss.rule().config();
  const Json* from_logits = config.find("from_logits");
  const Layer layer = last_layer(model, output);
  if (!from_logits || !from_logits->is_bool() || !layer.base()) return;
  const std::string activation = activation_of(layer);
  const bool binary = loss.rule().class_name().starts_with("Binary");
  if (!from_logits->as_bool() && activation == "linear")
    log_once(LogLevel::warning, "compile: the loss \"", loss.name(), "\" takes probabilities, but layer \"",
             layer.name(),
             "\" gives logits, for it has no activation; set from_logits = true in the loss, or ",
             binary ? "activation = \"sigmoid\"" : "activation = \"softmax\"", " in the layer");
  if (from_logits->as_bool() && (activation == "softmax" || activation == "sigmoid"))
    log_once(LogLevel::warning, "compile: the loss \"", loss.name(),
             "\" takes logits (from_logits = true), but layer \"", layer.name(),
             "\" gives probabilities, for its "
             "activation is ",
             activation, ", which would be applied twice; leave out one of the two");
}

}  // namespace

void warn_of_mistaken_logits(const ModelBase& model, size_t output, const Loss& loss) {
  try {
    warn(model, output, loss);
  } catch (const Error&) {
    // A loss or a layer that is a function has no configuration that could be looked at.
  }
}

}  // namespace lockstep::keras
