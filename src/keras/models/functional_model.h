// A model of the functional API: the layers between its inputs and its outputs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "keras/functional_graph.h"
#include "lockstep/keras/model.h"

namespace lockstep::keras {

class FunctionalModel final : public ModelBase {
 public:
  FunctionalModel(const KerasTensors& inputs, const KerasTensors& outputs, const ModelOptions& options,
                  std::source_location where);

  TensorList call_all(const TensorList& inputs, const CallContext& context) override;
  TensorList compute_mask(const TensorList& inputs, const TensorList& masks, size_t results) override;
  bool autocast_inputs() const override { return false; }
  bool recomputes_parts() const override { return true; }
  Json get_config() const override;
  std::string module() const override { return "keras.src.models.functional"; }

  KerasTensorList inputs() const override { return inputs_.list(); }
  KerasTensorList outputs() const override { return outputs_.list(); }
  std::vector<std::string> input_names() const override;
  // The names that the model was made with; empty where its inputs are a list.
  const std::vector<std::string>& input_keys() const { return inputs_.names(); }
  const std::vector<std::string>& output_keys() const { return outputs_.names(); }
  std::vector<std::string> output_names(size_t count) const override;
  const FunctionalGraph& graph() const { return graph_; }

 private:
  // One call with the places of its operands and results among all values.
  struct PlacedCall {
    std::shared_ptr<const LayerCall> call;
    std::vector<size_t> inputs;
    std::vector<size_t> options;
    std::vector<size_t> outputs;
  };

  void run_calls(size_t begin, size_t end, TensorList& values) const;
  // By place: the last call that reads it; the number of calls: it is a result.
  std::vector<size_t> last_readers() const;

  KerasTensors inputs_;
  KerasTensors outputs_;
  FunctionalGraph graph_;
  std::vector<PlacedCall> calls_;
  std::vector<size_t> input_places_;
  std::vector<size_t> output_places_;
  size_t places_ = 0;
};

// A value given for a model's input: dtype and rank as the input says, or an error naming both.
Tensor fit_to_input(const Tensor& value, const KerasTensor& input, const std::string& model);

}  // namespace lockstep::keras
