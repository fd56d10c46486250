// A cursor of which the position is a number.
#pragma once

#include "data/node.h"

namespace lockstep::data {

class CountingCursor : public Cursor {
 public:
  using Cursor::Cursor;
  void save(StateWriter& state) override { state.number("at", at_); }
  void restore(const StateReader& state) override { at_ = state.number("at"); }

 protected:
  int64_t at_ = 0;
};

}  // namespace lockstep::data
