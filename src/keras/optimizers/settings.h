// The options of optimizers as Keras' configurations.
#pragma once

#include "keras/fields.h"
#include "lockstep/keras/optimizers.h"

namespace lockstep::keras::optimizers {

// A schedule has ranges of its own.
inline void each_number(const LearningRate& rate, auto&& f) {
  if (!rate.is_schedule()) f(rate.number());
}

// The members that every options struct has, in Keras' order.
template <class Options>
void visit_common(Options& o, auto& v) {
  v("name", o.name), v("learning_rate", o.learning_rate, kNotNegative),
      v("weight_decay", o.weight_decay, kNotNegative);
  v("clipnorm", o.clipnorm, kPositive), v("global_clipnorm", o.global_clipnorm, kPositive),
      v("clipvalue", o.clipvalue, kPositive);
  v("use_ema", o.use_ema), v("ema_momentum", o.ema_momentum, kShare);
  v("ema_overwrite_frequency", o.ema_overwrite_frequency, kPositive),
      v("loss_scale_factor", o.loss_scale_factor, kPositive);
  v("gradient_accumulation_steps", o.gradient_accumulation_steps, at_least(2));
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
