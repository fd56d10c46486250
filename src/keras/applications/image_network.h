// What Keras' networks of images have in common.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

#include "lockstep/keras/applications.h"

namespace lockstep::keras::applications {

// What the options say, with the network's own input where they leave it out. Throws Error(invalid_argument)
// for shapes that are no images, smaller than `least` pixels, or open where a dense layer has to know them,
// and for unknown kinds of pooling.
ImageOptions checked(const char* network, ImageOptions options, int64_t usual, int64_t least,
                     bool flattens = false);

// Behind the last feature maps: their mean and a classifier, or without a top the pooling that the options
// ask for. Layers of poolings are called by these names, or by their classes where they are empty.
struct PoolNames {
  const char* top = "avg_pool";
  const char* average = "avg_pool";
  const char* max = "max_pool";
};
KerasTensor ending(const KerasTensor& x, bool include_top, const std::string& pooling, int64_t classes,
                   const Activation& classifier_activation, const PoolNames& names = {});
inline KerasTensor ending(const KerasTensor& x, const ImageOptions& options, const PoolNames& names = {}) {
  return ending(x, options.include_top, options.pooling, options.classes, options.classifier_activation,
                names);
}
KerasTensor pooled(const KerasTensor& x, const std::string& pooling, const PoolNames& names);
KerasTensor classified(const KerasTensor& x, int64_t classes, const Activation& classifier_activation);
void require_pooling(const char* network, const std::string& pooling);

// A batch normalisation and a ReLU, of these names.
KerasTensor normalised_relu(const KerasTensor& x, const std::string& normalisation, const std::string& relu);

// Zeros around images so that a strided convolution of this size, without padding of its own, sees what the
// published networks' see: one more behind than before where a side is even.
KerasTensor padded_for_stride(const KerasTensor& x, int64_t kernel_size, const std::string& name);

}  // namespace lockstep::keras::applications
