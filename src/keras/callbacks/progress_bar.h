// The text of a run's progress, as Keras writes it.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/keras/callbacks.h"

namespace lockstep::keras {

struct ProgressBarOptions {
  int64_t target = -1;    // steps; -1: not known
  int verbose = 1;        // 1: a bar, 2: one line at the end
  bool terminal = false;  // the bar moves; else it is one line at the end too
  bool colours = false;
  int columns = 0;  // of the terminal, which no line is wider than; 0: as wide as it likes
  const Clock* clock = &Clock::system();
};

class ProgressBar {
 public:
  explicit ProgressBar(const ProgressBarOptions& options);

  // To be told how many steps are done, after every step or after several. Whether it is time to show text():
  // on a terminal, every 50 ms.
  bool due(int64_t done);
  // The line after the step that due() was told of last; it goes over the line before.
  std::string text(const Logs& values) const;
  // The last line, with the newline.
  std::string final_text(const Logs& values);

 private:
  std::string line(double seconds_per_step, const std::string& time, const std::string& values) const;
  std::string counter() const;
  std::string bar(int width) const;
  double seconds_per_step() const;

  ProgressBarOptions options_;
  int64_t done_ = 0;
  int64_t start_ = 0;
  int64_t now_ = 0;
  int64_t shown_ = 0;        // 0: never
  int64_t first_done_ = 0;   // when it was first told; 0: not yet. The first step is long: it compiles
  int64_t first_steps_ = 0;  // of that
};

}  // namespace lockstep::keras
