// Models that are read from ONNX files.
#pragma once

#include "keras/onnx/graph_reader.h"
#include "lockstep/keras/model.h"

namespace lockstep::keras::onnx {

// A model of one layer that computes what the graph does. Throws Error(unsupported) that names all operators
// that are not known, or the first node that cannot be computed; Error(io) for a graph that makes no sense.
Model model_of(GraphFile file);

}  // namespace lockstep::keras::onnx
