// What people see of a job: the workers' lines with their ranks in front, a file per rank, and the launcher's
// own words.
#pragma once

#include <deque>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/pipes.h"

namespace lockstep::launch {

struct OutputOptions {
  int workers = 1;
  std::string shown = "all";
  bool tags_first = true;
  std::string log_folder = {};
};

class Output {
 public:
  // Throws Error(invalid_argument) where `shown` names no ranks of the job, Error(io) where the folder cannot
  // be written to.
  explicit Output(const OutputOptions& options);

  // The rank's file is a new one: rank_0.log, and after the first restart rank_0.restart_1.log. Throws
  // Error(io).
  void begin_worker(int rank, int restart);
  void worker_line(int rank, bool errors, std::string_view line);
  // A line of the launcher's own, on standard error.
  void say(std::string_view text);
  void other_line(const std::string& host, std::string_view line);

  // The last lines of a rank, each behind "    | ".
  std::string last_lines(int rank) const;
  // Columns that the ranks in front of lines take.
  int prefix_width() const;

  Outbox& standard_output() { return output_; }
  Outbox& standard_errors() { return errors_; }
  bool full() const { return output_.full() || errors_.full(); }
  // What could not be written; empty: nothing.
  std::string problem() const;

 private:
  struct Worker {
    bool shown = true;
    std::deque<std::string> last;
    std::ofstream log;
  };

  std::string prefix(int rank, bool errors) const;
  void put(bool errors, std::string_view text) { (errors ? errors_ : output_).put(text); }

  std::string log_folder_;
  std::string log_problem_;
  std::vector<Worker> workers_;
  int digits_ = 1;
  bool tags_first_;
  bool colours_output_, colours_errors_;
  Outbox output_, errors_;
};

}  // namespace lockstep::launch
