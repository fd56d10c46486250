// Models as ONNX files, which many programs run.
#pragma once

#include <source_location>
#include <string>

#include "lockstep/keras/model.h"

namespace lockstep::keras::models {

// Writes what the model computes outside of training, with its weights, as an ONNX file (opset 17). Inputs and outputs have
// the model's names for them, sizes that are not known are named after them; images stay channels last. The file appears
// complete or not at all.
//
// Functional and Sequential models of float32 layers of the zoo (lockstep/keras/applications.h) and their like can be written;
// Error(unsupported) names the layer or the setting that cannot.
void export_onnx(const Model& model, const std::string& path,
                 std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::models
