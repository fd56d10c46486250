// Where a random layer draws from: a generator of its own where it has a seed, else the default one.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/keras/layer.h"
#include "lockstep/ops/random.h"

namespace lockstep::keras {

class NoiseSource {
 public:
  NoiseSource(LayerBase& layer, const std::optional<int64_t>& seed) {
    if (!seed) return;
    own_.emplace(static_cast<uint64_t>(*seed));
    layer.track_state(own_->state());
  }
  const random::Generator* generator() const { return own_ ? &*own_ : nullptr; }

 private:
  std::optional<random::Generator> own_;
};

}  // namespace lockstep::keras
