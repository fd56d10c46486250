#include "keras/applications/image_network.h"

#include "lockstep/base/error.h"
#include "lockstep/keras/layers.h"

namespace lockstep::keras::applications {

void require_pooling(const char* network, const std::string& pooling) {
  require(pooling.empty() || pooling == "avg" || pooling == "max", ErrorCode::invalid_argument,
          std::source_location::current(), network,
          ": pooling must be \"avg\", \"max\" or empty, received \"", pooling, "\"");
}

ImageOptions checked(const char* network, ImageOptions options, int64_t usual, int64_t least, bool flattens) {
  const std::source_location here = std::source_location::current();
  if (options.input_shape.rank() == 0) options.input_shape = {usual, usual, 3};
  if (options.name.empty()) options.name = network;
  const Shape& shape = options.input_shape;
  require(shape.rank() == 3 && shape[2] > 0, ErrorCode::invalid_argument, here, network,
          ": input_shape must be (height, width, channels), received ", shape);
  for (const int d : {0, 1}) {
    require(shape[d] == -1 || shape[d] >= least, ErrorCode::invalid_argument, here, network,
            ": images have at least ", least, " x ", least, " pixels, received input_shape ", shape);
    require(shape[d] != -1 || !flattens || !options.include_top, ErrorCode::invalid_argument, here, network,
            ": the classifier is for images of one size, received input_shape ", shape,
            "; leave it out by include_top, or say height and width");
  }
  require_pooling(network, options.pooling);
  return options;
}

KerasTensor pooled(const KerasTensor& x, const std::string& pooling, const PoolNames& names) {
  if (pooling == "avg") return layers::GlobalAveragePooling2D({.name = names.average})(x);
  if (pooling == "max") return layers::GlobalMaxPooling2D({.name = names.max})(x);
  return x;
}

KerasTensor classified(const KerasTensor& x, int64_t classes, const Activation& classifier_activation) {
  return layers::Dense(classes, {.activation = classifier_activation, .name = "predictions"})(x);
}

KerasTensor ending(const KerasTensor& x, bool include_top, const std::string& pooling, int64_t classes,
                   const Activation& classifier_activation, const PoolNames& names) {
  if (!include_top) return pooled(x, pooling, names);
  return classified(layers::GlobalAveragePooling2D({.name = names.top})(x), classes, classifier_activation);
}

KerasTensor normalised_relu(const KerasTensor& x, const std::string& normalisation, const std::string& relu) {
  const KerasTensor y = layers::BatchNormalization({.epsilon = 1.001e-5, .name = normalisation})(x);
  return layers::Activation("relu", {.name = relu})(y);
}

KerasTensor padded_for_stride(const KerasTensor& x, int64_t kernel_size, const std::string& name) {
  const int64_t far = kernel_size / 2;
  const bool open = x.shape()[1] < 0;
  const auto near = [&](int d) { return far - (open || x.shape()[d] < 0 ? 1 : 1 - x.shape()[d] % 2); };
  return layers::ZeroPadding2D({std::pair(near(1), far), std::pair(near(2), far)}, {.name = name})(x);
}

}  // namespace lockstep::keras::applications
