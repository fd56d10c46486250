// What a RematScope asks of layers, for layers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/keras/layer.h"
#include "lockstep/keras/remat.h"

namespace lockstep::keras {

struct RematMode {
  enum class Kind { none, full, activations, larger_than, list_of_layers };
  Kind kind = Kind::full;
  int64_t output_size_threshold = 0;
  std::vector<std::string> layer_names;
};

// The mode of the innermost scope of this thread; null: there is none.
const std::shared_ptr<const RematMode>& current_remat_mode();

// Functions that are being recomputed on this thread, one inside of another.
int remat_depth();

// Whether the layer that is being called on this thread recomputes its activation.
bool recomputes_activations();
// Whether the layer that is being called on this thread was not called by another one.
bool is_outermost_call();

// While it lives, losses that layers add on this thread come here and not to their layers. Scopes nest; the
// innermost gets them.
class AddedLosses {
 public:
  AddedLosses();
  ~AddedLosses();
  AddedLosses(const AddedLosses&) = delete;
  AddedLosses& operator=(const AddedLosses&) = delete;

  struct Added {
    LayerBase* layer;
    Tensor loss;
  };
  std::vector<Added> added;
  static AddedLosses* current();

 private:
  AddedLosses* outer_;
};

}  // namespace lockstep::keras
