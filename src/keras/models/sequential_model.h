// A chain of layers.
#pragma once

#include <vector>

#include "lockstep/keras/model.h"

namespace lockstep::keras {

class SequentialModel final : public ModelBase {
 public:
  SequentialModel(const ModelOptions& options, std::source_location where);

  void add(const Layer& layer, std::source_location where);
  void set_input(const KerasTensor& input, std::source_location where);
  void pop(std::source_location where);

  void build(const Shape& input) override;
  Tensor call(const Tensor& x, const CallContext& context) override;
  TensorList compute_mask(const TensorList& inputs, const TensorList& masks, size_t results) override;
  bool autocast_inputs() const override { return false; }
  bool recomputes_parts() const override { return true; }
  Json get_config() const override;
  std::string module() const override { return "keras"; }

  KerasTensorList inputs() const override;
  KerasTensorList outputs() const override;
  // The value behind each layer; empty before the shapes are known.
  const KerasTensorList& values() const { return values_; }
  const KerasTensor& input() const { return input_; }

 private:
  void rebuild(std::source_location where);

  KerasTensor input_;  // empty: not known yet
  bool input_given_ = false;
  KerasTensorList values_;
};

}  // namespace lockstep::keras
