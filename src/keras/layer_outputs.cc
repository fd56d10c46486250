#include "keras/layer_outputs.h"

#include <utility>

namespace lockstep::keras {
namespace {

thread_local LayerOutputScope* innermost = nullptr;

}  // namespace

LayerOutputScope::LayerOutputScope(Heard heard)
    : heard_(std::move(heard)), outer_(std::exchange(innermost, this)) {}
LayerOutputScope::~LayerOutputScope() { innermost = outer_; }

void LayerOutputScope::tell(const LayerBase& layer, const TensorList& outputs) {
  if (innermost) innermost->heard_(layer, outputs);
}

}  // namespace lockstep::keras
