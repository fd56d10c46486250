// A progress bar on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

namespace lockstep::cli {

class Progress {
 public:
  // Writes to `out`; a bar is redrawn in place where that is a terminal, at most ten times a second.
  Progress(std::FILE* out, std::string title, int64_t total);

  void update(int64_t done, const std::string& figures);
  // The last state, with a newline.
  void finish(const std::string& figures);

  double seconds() const;

 private:
  void draw(int64_t done, const std::string& figures);

  using Clock = std::chrono::steady_clock;
  std::FILE* out_;
  std::string title_;
  int64_t total_;
  bool terminal_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_{};
};

}  // namespace lockstep::cli
