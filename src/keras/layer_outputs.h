// Hearing of what layers give, as they give it.
#pragma once

#include <functional>

#include "lockstep/keras/layer.h"

namespace lockstep::keras {

// While it lives, `heard` is called with the results of every layer that runs on this thread, inner layers
// before those that use them. Scopes nest; the innermost hears.
class LayerOutputScope {
 public:
  using Heard = std::function<void(const LayerBase& layer, const TensorList& outputs)>;
  explicit LayerOutputScope(Heard heard);
  ~LayerOutputScope();
  LayerOutputScope(const LayerOutputScope&) = delete;
  LayerOutputScope& operator=(const LayerOutputScope&) = delete;

  // For LayerBase::run().
  static void tell(const LayerBase& layer, const TensorList& outputs);

 private:
  Heard heard_;
  LayerOutputScope* outer_;
};

}  // namespace lockstep::keras
