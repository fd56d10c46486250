#include "keras/training/stream.h"

#include "lockstep/graph/variable.h"
#include "lockstep/ops/random.h"

namespace lockstep::keras {

void BatchStream::open() {
  reader_.reset();  // its thread ends before the next one's begins
  ended_ = false;
  position_ = {random_state(), 0};
  reader_ = source_->read(options_);
}

bool BatchStream::goes_on() const {
  return reader_ && continues_ && !ended_ && position_.taken != source_->batches(options_.batch_size);
}

void BatchStream::begin_epoch() {
  if (!goes_on()) open();
}

bool BatchStream::next(Batch& batch) {
  ended_ = !reader_->next(batch);
  if (!ended_) ++position_.taken;
  return !ended_;
}

void BatchStream::restore(const Position& position, int64_t random) {
  if (position.taken < 0) {
    set_random_state(random);
    open();
    return;
  }
  set_random_state(position.random);
  open();
  Batch skipped;
  while (position_.taken < position.taken && next(skipped)) {
  }
  set_random_state(random);
}

int64_t random_state() { return random::default_generator().state().value().item<int64_t>(); }
void set_random_state(int64_t state) { random::default_generator().state().assign(Tensor::scalar(state)); }

}  // namespace lockstep::keras
