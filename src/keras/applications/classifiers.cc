#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/layers/convolutional.h"
#include "lockstep/keras/layers/core.h"
#include "lockstep/keras/layers/pooling.h"

namespace lockstep::keras::applications {

Model mlp(const MlpOptions& options, std::source_location where) {
  const CallSite site(where);
  const KerasTensor input = Input(options.input_shape);
  KerasTensor x = options.input_shape.rank() == 1 ? input : layers::Flatten()(input);
  for (const int64_t units : options.hidden) {
    x = layers::Dense(units, {.activation = options.activation})(x);
    if (options.dropout > 0) x = layers::Dropout(options.dropout)(x);
  }
  x = layers::Dense(options.classes, {.activation = options.classifier_activation, .name = "predictions"})(x);
  return {input, x, {.name = options.name}};
}

Model lenet(const LenetOptions& options, std::source_location where) {
  const CallSite site(where);
  require(options.input_shape.rank() == 3, ErrorCode::invalid_argument, std::source_location::current(),
          "lenet: input_shape must be (height, width, channels), received ", options.input_shape);
  const KerasTensor input = Input(options.input_shape);
  KerasTensor x = input;
  x = layers::Conv2D(6, 5, {.padding = "same", .activation = options.activation, .name = "conv1"})(x);
  x = layers::MaxPooling2D({.name = "pool1"})(x);
  x = layers::Conv2D(16, 5, {.activation = options.activation, .name = "conv2"})(x);
  x = layers::MaxPooling2D({.name = "pool2"})(x);
  x = layers::Flatten()(x);
  x = layers::Dense(120, {.activation = options.activation, .name = "dense1"})(x);
  x = layers::Dense(84, {.activation = options.activation, .name = "dense2"})(x);
  x = layers::Dense(options.classes, {.activation = options.classifier_activation, .name = "predictions"})(x);
  return {input, x, {.name = options.name}};
}

}  // namespace lockstep::keras::applications
