// Layers that every model needs: dense, embedding, dropout, shapes.
//
// All throw Error(invalid_argument) for arguments out of range when they are made, and Error(shape_mismatch)
// for inputs of a wrong rank when they are built or called.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/keras/activations.h"
#include "lockstep/keras/layer.h"
#include "lockstep/keras/layers/one_or_many.h"
#include "lockstep/ops/conv.h"

namespace lockstep::keras::layers {

// What every layer takes.
struct LayerOptions {
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};

using keras::Input;

struct InputLayerOptions {
  Shape input_shape = {};  // without the batch; -1 is any size
  int64_t batch_size = -1;
  DType dtype = DType::float32;
  std::string name = {};
};
// The input of a Sequential, as a layer.
Layer InputLayer(const InputLayerOptions& options,
                 std::source_location where = std::source_location::current());

struct DenseOptions {
  keras::Activation activation = {};
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// activation(x kernel + bias), over the last dimension.
Layer Dense(int64_t units, const DenseOptions& options = {},
            std::source_location where = std::source_location::current());

struct EinsumDenseOptions {
  keras::Activation activation = {};
  std::optional<std::string> bias_axes = {};  // letters of the output that the bias has; nullopt: no bias
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// A product of the input and a kernel that an equation of letters names: "abc,cd->abd", "...x,xy->...y" or
// "ab...,bc->ac...". `output_shape` leaves out the batch and what "..." stands for; -1 takes the input's
// size.
Layer EinsumDense(const std::string& equation, const Shape& output_shape,
                  const EinsumDenseOptions& options = {},
                  std::source_location where = std::source_location::current());

struct EmbeddingOptions {
  Initializer embeddings_initializer = "uniform";
  Regularizer embeddings_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint embeddings_constraint = {};
  bool mask_zero = false;  // index 0 is padding: the result carries a mask
  Tensor weights = {};     // initial values; undefined: embeddings_initializer
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// A row of output_dim numbers for each index in [0, input_dim). Indices that are not integers are cast to
// int32.
Layer Embedding(int64_t input_dim, int64_t output_dim, const EmbeddingOptions& options = {},
                std::source_location where = std::source_location::current());

struct ReversibleEmbeddingOptions {
  bool tie_weights = true;  // false: the way back has a table of its own
  Initializer embeddings_initializer = "uniform";
  Regularizer embeddings_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint embeddings_constraint = {};
  bool mask_zero = false;
  std::optional<std::string> reverse_dtype = {};  // in which the way back is computed; nullopt: the policy's
  std::optional<double> logit_soft_cap = {};      // c: logits become c tanh(logits / c)
  Tensor weights = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// The same table in both directions: rows for int32 or int64 indices, and for floating-point vectors (...,
// output_dim) their products with every row (..., input_dim), the logits of a language model that ties them
// to its embedding. (Keras' argument `reverse` is the dtype of the input here.)
Layer ReversibleEmbedding(int64_t input_dim, int64_t output_dim,
                          const ReversibleEmbeddingOptions& options = {},
                          std::source_location where = std::source_location::current());

Layer Activation(const keras::Activation& activation, const LayerOptions& options = {},
                 std::source_location where = std::source_location::current());
Layer Identity(const LayerOptions& options = {},
               std::source_location where = std::source_location::current());

struct MaskingOptions {
  double mask_value = 0;
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Masks the time steps of which every feature is mask_value, and makes them 0.
Layer Masking(const MaskingOptions& options = {},
              std::source_location where = std::source_location::current());

struct LambdaOptions {
  // The mask of the result from the inputs and their masks (undefined where there is none). Empty: no mask.
  std::function<Tensor(const TensorList& inputs, const TensorList& masks)> mask = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// A function of a tensor, or of all inputs and the circumstances of the call, as a layer. It is run under
// traces as well as outside. Code cannot be written to files: serialising it throws Error(unsupported).
Layer Lambda(std::function<Tensor(const Tensor&)> function, const LambdaOptions& options = {},
             std::source_location where = std::source_location::current());
Layer Lambda(std::function<TensorList(const TensorList&, const CallContext&)> function,
             const LambdaOptions& options = {}, std::source_location where = std::source_location::current());

// --- regularisation by noise -------------------------------------------------------------------------------
// All are the identity but in training. Each example has numbers of its own, which do not depend on how the
// batch is spread over replicas. A seed gives the layer a generator of its own; without one it draws from the
// default one.

struct DropoutOptions {
  std::optional<Shape> noise_shape = {};  // 1: the dimension is dropped as a whole; -1: the input's size
  std::optional<int64_t> seed = {};
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Each element becomes 0 with probability `rate`, and the others grow by 1 / (1 - rate).
Layer Dropout(double rate, const DropoutOptions& options = {},
              std::source_location where = std::source_location::current());
// Keeps mean and variance of what SELU gives.
Layer AlphaDropout(double rate, const DropoutOptions& options = {},
                   std::source_location where = std::source_location::current());

struct SpatialDropoutOptions {
  DataFormat data_format = DataFormat::channels_last;  // of no meaning in one dimension
  std::optional<int64_t> seed = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Dropout of whole channels.
Layer SpatialDropout1D(double rate, const SpatialDropoutOptions& options = {},
                       std::source_location where = std::source_location::current());
Layer SpatialDropout2D(double rate, const SpatialDropoutOptions& options = {},
                       std::source_location where = std::source_location::current());
Layer SpatialDropout3D(double rate, const SpatialDropoutOptions& options = {},
                       std::source_location where = std::source_location::current());

struct NoiseOptions {
  std::optional<int64_t> seed = {};
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// x + normal(0, stddev)
Layer GaussianNoise(double stddev, const NoiseOptions& options = {},
                    std::source_location where = std::source_location::current());
// x * normal(1, sqrt(rate / (1 - rate)))
Layer GaussianDropout(double rate, const NoiseOptions& options = {},
                      std::source_location where = std::source_location::current());

struct ActivityRegularizationOptions {
  double l1 = 0;
  double l2 = 0;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// The identity; adds l1 sum |x| + l2 sum x^2 to the loss.
Layer ActivityRegularization(const ActivityRegularizationOptions& options = {},
                             std::source_location where = std::source_location::current());

// --- shapes ------------------------------------------------------------------------------------------------

struct FlattenOptions {
  // channels_first: channels come last in the result all the same.
  DataFormat data_format = DataFormat::channels_last;
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
Layer Flatten(const FlattenOptions& options = {},
              std::source_location where = std::source_location::current());
// `target_shape` leaves the batch out; one size may be -1: it takes what is left.
Layer Reshape(const Shape& target_shape, const LayerOptions& options = {},
              std::source_location where = std::source_location::current());
// Dimensions are counted from 1: the batch stays where it is.
Layer Permute(const Dims& dims, const LayerOptions& options = {},
              std::source_location where = std::source_location::current());
// (batch, features) -> (batch, n, features)
Layer RepeatVector(int64_t n, const LayerOptions& options = {},
                   std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::layers
