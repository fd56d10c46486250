#include "keras/training/stream.h"

#include <utility>

#include "lockstep/graph/variable.h"
#include "lockstep/ops/random.h"

namespace lockstep::keras {

void BatchStream::open() {
  reader_.reset();  // its thread ends before the next one's begins
  ended_ = in_hand_ = false;
  random_ = random_state();
  taken_ = 0;
  reader_ = source_->read(options_);
}

bool BatchStream::goes_on() const {
  return reader_ && continues_ && !ended_ && taken_ != source_->batches(options_.batch_size);
}

void BatchStream::begin_epoch() {
  if (!goes_on()) open();
}

bool BatchStream::next(Batch& batch) {
  ended_ = !reader_->next(batch);
  in_hand_ = !ended_;
  if (!ended_) ++taken_;
  return !ended_;
}

void BatchStream::put_back() {
  if (!std::exchange(in_hand_, false)) return;
  reader_->again();
  --taken_;
}

BatchStream::Position BatchStream::position() {
  return {random_, taken_, reader_ ? reader_->save() : data::IteratorState()};
}

BatchStream::Position BatchStream::position_after_epoch() {
  Position position = this->position();
  if (!goes_on()) position.random = 0, position.taken = -1;
  return position;
}

void BatchStream::restore(const Position& position, int64_t random) {
  if (position.taken >= 0 || !position.iterator.empty()) {
    set_random_state(position.random);
    open();
    if (!position.iterator.empty()) {
      reader_->restore(position.iterator);
      taken_ = position.taken;
    }
    if (taken_ < position.taken) skip(position.taken - taken_);
  }
  set_random_state(random);
  if (position.taken < 0) open();
}

observe::InputSummary BatchStream::input_summary() const {
  const std::optional<data::Explanation> found = explain();
  if (!found || found->bottleneck.empty()) return {};
  return {found->bottleneck + " [" + found->where + "]: " + found->cause, found->fix};
}

int64_t random_state() { return random::default_generator().position(); }
void set_random_state(int64_t state) { random::default_generator().state().assign(Tensor::scalar(state)); }

}  // namespace lockstep::keras
