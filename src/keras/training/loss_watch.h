// Says once per fit why its loss is not finite.
#pragma once

#include "keras/training/source.h"
#include "keras/training/stream.h"

namespace lockstep::keras {

class Trainer;

class LossWatch {
 public:
  // Both have to outlive it.
  LossWatch(Trainer& trainer, const BatchStream& stream) : trainer_(trainer), stream_(stream) {}

  // Looks at the loss that somebody has read last, so that a step pays nothing for it. `last` is the last
  // batch that was trained with; empty where several steps were one launch.
  void look(const Batch& last);

 private:
  Trainer& trainer_;
  const BatchStream& stream_;
  bool told_ = false;
};

}  // namespace lockstep::keras
