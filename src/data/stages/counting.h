// A cursor of which the position is a number, and its input's.
#pragma once

#include <memory>

#include "data/node.h"

namespace lockstep::data {

class CountingStage : public Cursor {
 public:
  CountingStage(const Opening& opening, const Node& input)
      : Cursor(opening.stage), input_(opening.open(input)) {}
  void save(StateWriter& state) override {
    state.number("at", at_);
    state.cursor("input", *input_);
  }
  void restore(const StateReader& state) override {
    at_ = state.number("at");
    state.cursor("input", *input_);
  }

 protected:
  std::unique_ptr<Cursor> input_;
  int64_t at_ = 0;
};

}  // namespace lockstep::data
