// What models of the functional API are drawn of.
//
//   for (const DrawnCall& call : drawn_calls(vgg))
//     if (call.layer.name() == "block3_conv1") return Model(vgg.inputs(), call.outputs);
#pragma once

#include <source_location>
#include <string>
#include <vector>

#include "lockstep/keras/model.h"

namespace lockstep::keras {

struct DrawnCall {
  Layer layer;
  KerasTensorList inputs;  // none of an input of the model
  KerasTensorList outputs;
};

// The calls of the layers of a functional model, every one after those that it needs; none for other models.
// Further models can be made of their values.
std::vector<DrawnCall> drawn_calls(const Model& model,
                                   std::source_location where = std::source_location::current());

// The names that the outputs of a functional model were given by; empty where they are a list.
std::vector<std::string> output_keys(const Model& model,
                                     std::source_location where = std::source_location::current());

}  // namespace lockstep::keras
