// Layers that normalise. 16-bit inputs are computed in float32; weights are kept and used in the policy's
// variable dtype.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>

#include "lockstep/keras/layer.h"
#include "lockstep/keras/layers/one_or_many.h"

namespace lockstep::keras::layers {

struct RenormClipping {
  std::optional<double> rmin = {};
  std::optional<double> rmax = {};
  std::optional<double> dmax = {};
};

struct BatchNormalizationOptions {
  int64_t axis = -1;  // the features
  double momentum = 0.99;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  Initializer beta_initializer = "zeros";
  Initializer gamma_initializer = "ones";
  Initializer moving_mean_initializer = "zeros";
  Initializer moving_variance_initializer = "ones";
  Regularizer beta_regularizer = {};
  Regularizer gamma_regularizer = {};
  Constraint beta_constraint = {};
  Constraint gamma_constraint = {};
  bool renorm = false;  // corrects towards the moving statistics in training
  RenormClipping renorm_clipping = {};
  double renorm_momentum = 0.99;
  bool synchronized = false;  // statistics of the whole batch; else of each replica's slice
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// In training (and while trainable) by the statistics of the batch, with the biased variance, which move the
// moving statistics; otherwise by the moving statistics. Those are the same on every replica: the mean of the
// replicas', weighted by their examples. A mask says which examples or steps count.
Layer BatchNormalization(const BatchNormalizationOptions& options = {},
                         std::source_location where = std::source_location::current());

struct LayerNormalizationOptions {
  Axes axis = -1;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  bool rms_scaling = false;  // Keras' old form: x / sqrt(variance + epsilon) * gamma
  Initializer beta_initializer = "zeros";
  Initializer gamma_initializer = "ones";
  Regularizer beta_regularizer = {};
  Regularizer gamma_regularizer = {};
  Constraint beta_constraint = {};
  Constraint gamma_constraint = {};
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
Layer LayerNormalization(const LayerNormalizationOptions& options = {},
                         std::source_location where = std::source_location::current());

struct GroupNormalizationOptions {
  int64_t groups = 32;  // -1: one for each channel
  int64_t axis = -1;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  Initializer beta_initializer = "zeros";
  Initializer gamma_initializer = "ones";
  Regularizer beta_regularizer = {};
  Regularizer gamma_regularizer = {};
  Constraint beta_constraint = {};
  Constraint gamma_constraint = {};
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
Layer GroupNormalization(const GroupNormalizationOptions& options = {},
                         std::source_location where = std::source_location::current());

struct RMSNormalizationOptions {
  Axes axis = -1;
  double epsilon = 1e-6;
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// x / sqrt(mean(x^2) + epsilon) * scale
Layer RMSNormalization(const RMSNormalizationOptions& options = {},
                       std::source_location where = std::source_location::current());

struct UnitNormalizationOptions {
  Axes axis = -1;
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Vectors of Euclidean length 1.
Layer UnitNormalization(const UnitNormalizationOptions& options = {},
                        std::source_location where = std::source_location::current());

struct SpectralNormalizationOptions {
  int64_t power_iterations = 1;
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// In training, divides the kernel (or the embeddings) of `layer` by an estimate of its largest singular value
// before every call.
Layer SpectralNormalization(const Layer& layer, const SpectralNormalizationOptions& options = {},
                            std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::layers
