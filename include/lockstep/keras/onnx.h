// Models as ONNX files, which many programs run and write.
//
// Both functions may be called by several threads at once; a model that is being written belongs to the
// calling thread (lockstep/keras/model.h).
#pragma once

#include <source_location>
#include <string>

#include "lockstep/keras/model.h"

namespace lockstep::keras::models {

// Writes what the model computes outside of training, with its weights, as an ONNX file (opset 17). Inputs
// and outputs have the model's names for them, sizes that are not known are named after them; images stay
// channels last. The file appears complete or not at all.
//
// Functional and Sequential models of float32 layers of the zoo (lockstep/keras/applications.h) and their
// like can be written; Error(unsupported) names the layer or the setting that cannot.
void export_onnx(const Model& model, const std::string& path,
                 std::source_location where = std::source_location::current());

// A model that computes what an ONNX file says (operators of versions 7 to 21), with the file's names of
// inputs and, where there are several, outputs; sizes that the file leaves open are -1. Its floating-point
// constants are the weights, under their names, and are trained; statistics of batch normalisations stay as
// they are. Data that the file keeps beside itself is read.
//
// Error(unsupported) names all operators that are not known, or the node that asks for something that is not;
// Error(io) says what is wrong with a damaged file. Such a model keeps its weights with save_weights(); it
// has no layers of Keras to be saved as.
Model import_onnx(const std::string& path, std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::models
