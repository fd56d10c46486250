// Gives stages that were told AUTOTUNE their threads and slots, by what was measured of them.
#pragma once

#include <cstdint>

#include "data/pipeline.h"

namespace lockstep::data {

class Tuner {
 public:
  explicit Tuner(Pipeline& pipeline);
  // Called with every element that the iterator gives; most calls only look at the clock, and not all do that.
  void step();

 private:
  void tune(int64_t now_ns);

  Pipeline& pipeline_;
  int64_t calls_ = 0;
  int64_t last_ns_ = 0;
};

}  // namespace lockstep::data
