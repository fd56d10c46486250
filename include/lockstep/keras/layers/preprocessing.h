// Layers that prepare data.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/keras/layer.h"
#include "lockstep/keras/layers/core.h"

namespace lockstep::keras::layers {

// A layer that learns from data before training.
class AdaptableLayer : public Layer {
 public:
  using Layer::Layer;
  // Forgets what it learned before. Throws Error(failed_precondition) where nothing is left to learn.
  void adapt(const Tensor& data, std::source_location where = std::source_location::current()) const;
};

// x * scale + offset; a list has one number for each of the last dimension.
Layer Rescaling(const Numbers& scale, const Numbers& offset = 0.0, const LayerOptions& options = {},
                std::source_location where = std::source_location::current());

struct NormalizationOptions {
  Axes axis = -1;         // each of their positions has a mean and a variance of its own; {}: one for all
  Numbers mean = {};      // both or neither; neither: learned by adapt()
  Numbers variance = {};  // a list runs over the last of the axes
  bool invert = false;    // x * stddev + mean in place of (x - mean) / stddev
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
AdaptableLayer Normalization(const NormalizationOptions& options = {},
                             std::source_location where = std::source_location::current());

struct CategoryEncodingOptions {
  std::string output_mode = "multi_hot";  // or one_hot, count
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Numbers in [0, num_tokens) as rows of num_tokens; others count for nothing. With "count", a second input of
// the first's shape weighs them.
Layer CategoryEncoding(int64_t num_tokens, const CategoryEncodingOptions& options = {},
                       std::source_location where = std::source_location::current());

struct DiscretizationOptions {
  std::optional<std::vector<double>> bin_boundaries = {};  // ascending; or
  std::optional<int64_t> num_bins = {};                    // learned by adapt()
  double epsilon = 0.01;                                   // how exact adapt() is, as a share of the data
  std::string output_mode = "int";                         // or one_hot, multi_hot, count
  bool trainable = true;
  DTypePolicy dtype = {};
  std::string name = {};
  Shape input_shape = {};
};
// The number of the bin that each number falls into: boundaries belong to the bin above.
AdaptableLayer Discretization(const DiscretizationOptions& options,
                              std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::layers
