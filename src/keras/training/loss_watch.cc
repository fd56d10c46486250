#include "keras/training/loss_watch.h"

#include <cmath>

#include "keras/training/non_finite.h"
#include "keras/training/trainer.h"
#include "lockstep/base/log.h"

namespace lockstep::keras {

void LossWatch::look(const Batch& last) {
  const double loss = trainer_.outputs().last_read();
  if (told_ || std::isfinite(loss)) return;
  told_ = true;
  const NonFiniteVerdict verdict =
      explain({.model = trainer_.model(),
               .data = stream_.source(),
               .loss = loss,
               .step = trainer_.outputs().finite_steps() + 1,
               .taken = stream_.taken(),
               .batch_size = stream_.batch_size(),
               .last = last,
               .can_run = trainer_.strategy().kind() == distribute::Strategy::Kind::none,
               .learning_rate = trainer_.options().optimizer.current_learning_rate()});
  log(LogLevel::warning, "fit: ", verdict.text);
}

}  // namespace lockstep::keras
