// What the bindings of layers and of training share.
#pragma once

#include "lockstep/keras/layer.h"
#include "lockstep/keras/model.h"
#include "python.h"

namespace lockstep::python {

// The object of Python that a layer or a model of Python's own is; null for those of the engine.
nb::handle python_self(const keras::LayerBase& layer);

}  // namespace lockstep::python
