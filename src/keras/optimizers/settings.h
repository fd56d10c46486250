// The options of optimizers as Keras' configurations.
#pragma once

#include "keras/fields.h"
#include "lockstep/keras/optimizers.h"

namespace lockstep::keras::optimizers {

// The members that every options struct has, in Keras' order.
template <class Options>
void visit_common(Options& o, auto& v) {
  v("name", o.name), v("learning_rate", o.learning_rate), v("weight_decay", o.weight_decay);
  v("clipnorm", o.clipnorm), v("global_clipnorm", o.global_clipnorm), v("clipvalue", o.clipvalue);
  v("use_ema", o.use_ema), v("ema_momentum", o.ema_momentum);
  v("ema_overwrite_frequency", o.ema_overwrite_frequency), v("loss_scale_factor", o.loss_scale_factor);
  v("gradient_accumulation_steps", o.gradient_accumulation_steps);
}

template <class Options>
OptimizerOptions common_options(const Options& o) {
  return {.learning_rate = o.learning_rate,
          .weight_decay = o.weight_decay,
          .clipnorm = o.clipnorm,
          .clipvalue = o.clipvalue,
          .global_clipnorm = o.global_clipnorm,
          .use_ema = o.use_ema,
          .ema_momentum = o.ema_momentum,
          .ema_overwrite_frequency = o.ema_overwrite_frequency,
          .loss_scale_factor = o.loss_scale_factor,
          .gradient_accumulation_steps = o.gradient_accumulation_steps,
          .name = o.name};
}

}  // namespace lockstep::keras::optimizers
