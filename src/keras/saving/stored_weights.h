// Where Keras' files keep the weights of a model: by the structure of its layers, not by their names, which
// count what else a program has made. "layers/dense_1/vars/0" is the first weight of the second Dense.
#pragma once

#include <source_location>
#include <string>
#include <vector>

#include "lockstep/keras/layer.h"

namespace lockstep::keras {

// One layer's own weights.
struct StoredWeights {
  std::string path;  // "layers/dense_1"; the model's own is ""
  Layer layer;
  std::vector<Variable> weights;
};

// The weights of `root` and of every layer inside, each layer once, at the first path where it is found.
std::vector<StoredWeights> stored_weights(const Layer& root);

// `prefix` and the classes of the layers in snake case, numbered where one comes again; empty for operations,
// which are no layers in Keras.
std::vector<std::string> names_by_class(const std::string& prefix, const std::vector<Layer>& layers);

// The group that the weights at `path` are in.
std::string group_of_weights(const std::string& path);

// Values that were read and looked at, for variables that are still as they were: a file changes a model
// wholly or not at all.
class PendingWeights {
 public:
  void add(const Variable& variable, Tensor value);
  // For a layer that keeps what it likes.
  void add(const Layer& layer, LayerBase::Named<Tensor> values);
  void assign(std::source_location where) const;

 private:
  std::vector<std::pair<Variable, Tensor>> values_;
  std::vector<std::pair<Layer, LayerBase::Named<Tensor>>> of_layers_;
};

// Whether a value of a file can become the variable's: the same shape, and a number of the same kind.
bool fits(const TensorSpec& stored, const Variable& variable);

// What does not fit, one line each; an Error(invalid_argument) that begins with `what` where there is any.
class Mismatches {
 public:
  void add(const std::string& line) { lines_ += "\n  " + line; }
  void add(const std::string& key, const TensorSpec& stored, const Variable& variable);
  void require_none(const std::string& what, std::source_location where) const;

 private:
  std::string lines_;
};

}  // namespace lockstep::keras
